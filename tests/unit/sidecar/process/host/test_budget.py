"""The payload budget of a process."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sidecar.process.host.budget import PayloadBudget


@pytest.mark.parametrize(
    ("used_bytes", "more_bytes", "exhausted"),
    [(0, 0, False), (0, 99, False), (0, 100, True), (60, 39, False), (60, 40, True)],
)
def test_exhausted_when_the_limit_is_reached(used_bytes: int, more_bytes: int, exhausted: bool) -> None:
    budget = PayloadBudget(100)
    budget.take(used_bytes)
    assert (budget.room_bytes <= more_bytes) is exhausted


def test_without_a_limit_to_spend_nothing_is_kept() -> None:
    assert PayloadBudget(0).room_bytes == 0


def test_what_was_given_back_may_be_taken_again() -> None:
    budget = PayloadBudget(100)
    budget.take(150)
    assert (budget.used_bytes, budget.room_bytes) == (150, -50)
    budget.give_back(100)
    assert (budget.used_bytes, budget.room_bytes) == (50, 50)


def test_giving_back_more_than_was_taken_is_a_defect() -> None:
    budget = PayloadBudget(100)
    budget.take(10)
    with pytest.raises(AssertionError, match="more payload given back than taken"):
        budget.give_back(11)


def test_partitions_share_it_without_losing_count() -> None:
    budget = PayloadBudget(100)

    def take_and_give_back(size_bytes: int) -> None:
        for _ in range(2_000):
            budget.take(size_bytes)
            budget.give_back(size_bytes)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take_and_give_back, [1, 10, 100, 1_000]))
    assert budget.used_bytes == 0


def test_it_is_full_while_what_is_under_way_still_fits() -> None:
    budget = PayloadBudget(1_600)
    budget.take(1_499)
    assert not budget.is_full
    budget.take(1)
    assert (budget.is_full, budget.room_bytes) == (True, 100)


def test_whoever_waits_for_room_goes_on_as_soon_as_memory_is_not_full() -> None:
    budget = PayloadBudget(1_600)
    budget.take(1_600)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(budget.wait_until_not_full, 60.0) for _ in range(2)]
        budget.give_back(101)
        for each in waiting:
            each.result(30.0)


def test_waiting_for_room_ends_without_any() -> None:
    budget = PayloadBudget(1_600)
    budget.take(1_600)
    budget.wait_until_not_full(0.001)
    assert budget.is_full


@pytest.mark.parametrize(("partitions", "kib"), [(1, 16_384), (4, 16_384), (16, 4_096), (100, 655), (1_000, 512)])
def test_the_more_partitions_the_less_is_prefetched_for_each(partitions: int, kib: int) -> None:
    budget = PayloadBudget(1_600)
    budget.partitions = partitions
    assert budget.prefetched_bytes // 1_024 == kib


def test_whoever_is_to_end_need_not_wait_for_room() -> None:
    budget = PayloadBudget(1_600)
    budget.take(1_600)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(budget.wait_until_not_full, 60.0)
        while not waiting.done():
            budget.look_again()
    assert budget.is_full
