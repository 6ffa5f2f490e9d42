"""The memory that a load or a partition has taken: counted once, and given back once."""

from sidecar.engine.payload.memory import LARGE_BYTES, LEAST_LOADED_BYTES, BudgetShare, LoadMemory
from sidecar.process.host.budget import PayloadBudget

MIB = 1_048_576


def test_a_load_takes_memory_while_it_reads_until_memory_is_full() -> None:
    budget = PayloadBudget(16 * LEAST_LOADED_BYTES)
    memory = LoadMemory(budget, soon_ms=1_000)
    kept = [memory.keeps(1_000, MIB) for _ in range(200)]
    assert kept.count(True) == 60
    assert kept == sorted(kept, reverse=True)
    assert budget.used_bytes == 60 * MIB
    assert budget.is_full
    memory.close()
    memory.close()
    assert budget.used_bytes == 0


def test_a_load_keeps_a_segment_even_where_memory_is_full() -> None:
    budget = PayloadBudget(MIB)
    budget.take(MIB)
    memory = LoadMemory(budget, soon_ms=1_000)
    assert [memory.keeps(1_000, MIB) for _ in range(6)] == [True] * 4 + [False] * 2


def test_what_is_large_and_due_later_is_read_again_by_itself() -> None:
    budget = PayloadBudget(100 * MIB)
    memory = LoadMemory(budget, soon_ms=1_000)
    assert memory.keeps(1_001, LARGE_BYTES)
    assert not memory.keeps(1_001, LARGE_BYTES + 1)
    assert memory.keeps(1_000, LARGE_BYTES + 1)


def test_whoever_takes_over_what_a_load_has_taken_answers_for_it() -> None:
    budget = PayloadBudget(100 * MIB)
    memory, share = LoadMemory(budget, soon_ms=1_000), BudgetShare(budget)
    assert memory.keeps(0, MIB)
    share.adopt(memory.hand_over())
    memory.close()
    assert (budget.used_bytes, share.used_bytes, budget.given_back_bytes) == (MIB, MIB, 0)
    share.close()
    assert budget.used_bytes == 0


def test_a_partition_gives_back_no_more_than_it_has_taken() -> None:
    budget = PayloadBudget(100 * MIB)
    budget.take(7)
    share = BudgetShare(budget)
    share.take(1_000)
    share.give_back(300)
    share.give_back(-50)
    assert (share.used_bytes, budget.used_bytes) == (750, 757)
    share.close()
    assert (share.used_bytes, budget.used_bytes) == (0, 7)
