"""The cost of controls, and the joint effect of several controls of one id in one transaction: index.named.named."""

import time

import pytest

from index.named.names import hash_of
from index.named.receipts import ControlOutcome, Receipt
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, start_of
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Action, Control

ID = b"customer-7"
NOTHING = Record(None, None, (), 0)
DUE_MS = 1_000_000
CONTROLS = 2_000
MANY = 20_000
FEW = 2_000
HELD_UP_S = 0.5


class Counting(PartitionIndex[None, None]):
    """Counts the positions that controls have looked at."""

    looked_at = 0

    def is_pending(self, place: Position) -> bool:
        self.looked_at += 1
        return super().is_pending(place)


def index_of(schedules: int) -> Counting:
    """Return an index with this number of schedules of one id, due a millisecond apart."""
    index = Counting(start_of(0), lambda _: 10)
    for offset in range(schedules):
        index.add([(DUE_MS + offset, offset, None)])
        index.named.names.add(hash_of(ID), Position(DUE_MS + offset, offset))
    # Commit before counting, so that entries are swept out here.
    commit(index)
    index.looked_at = 0
    return index


def ask(index: Counting, action: Action, if_due_ms: int | None = None, due_ms: int | None = None) -> Receipt:
    control = Control(action, ID, if_due_ms, due_ms)
    receipt, _ = index.control(index.indexed_to, control, NOTHING)
    assert receipt is not None
    return receipt


def commit(index: Counting, now_ms: int = 0) -> list[Receipt]:
    receipts = index.plan(now_ms, 1_000, 1_000_000).receipts
    index.confirm()
    index.check()
    return [*receipts]


def compare_and_cancel(index: Counting, schedules: int) -> None:
    """Cancel schedules by their due time; every other control names a wrong due time and finds that it has changed."""
    step = schedules // CONTROLS
    for number in range(CONTROLS):
        wanted_ms = DUE_MS + number * step if number % 2 else DUE_MS - 1 - number
        assert ask(index, Action.CANCEL, wanted_ms).outcome is (
            ControlOutcome.CANCELLED if number % 2 else ControlOutcome.CHANGED
        )
    index.plan(0, 1_000, 1_000_000)
    index.confirm()


def test_a_control_with_a_due_time_looks_at_the_schedules_that_it_matches() -> None:
    index = index_of(MANY)
    compare_and_cancel(index, MANY)
    assert index.looked_at <= 4 * CONTROLS
    assert index.pending == MANY - CONTROLS // 2


def test_what_a_control_with_a_due_time_costs_does_not_grow_with_the_schedules_of_its_id() -> None:
    def cost_s(schedules: int) -> float:
        index = index_of(schedules)
        began_s = time.process_time()
        compare_and_cancel(index, schedules)
        return time.process_time() - began_s

    costs_s = {schedules: min(cost_s(schedules) for _ in range(3)) for schedules in (FEW, MANY)}
    assert costs_s[MANY] < 4 * costs_s[FEW], costs_s


def test_one_control_of_20_000_schedules_holds_up_other_records_for_a_moment() -> None:
    """Evaluate it in one piece, and confirm it in one piece, since the receipt tells of all schedules.

    On a quiet machine this takes 80 ms.
    """

    def cost_s() -> float:
        index = index_of(MANY)
        began_s = time.thread_time()
        assert ask(index, Action.CANCEL).cancels == MANY
        index.plan(0, 1_000, 1_000_000)
        index.confirm()
        return time.thread_time() - began_s

    assert min(cost_s() for _ in range(5)) < HELD_UP_S


def test_a_control_without_a_due_time_does_not_look_at_what_has_left_again_and_again() -> None:
    index = index_of(MANY)
    while index.pending:
        index.plan(DUE_MS + MANY, MANY, 1 << 40)
        index.confirm()
    index.looked_at = 0
    for _ in range(CONTROLS):
        assert ask(index, Action.CANCEL).outcome is ControlOutcome.NOT_PENDING
    assert index.looked_at <= MANY + CONTROLS


def test_what_is_due_then_is_found_wherever_it_lies() -> None:
    """Schedules lie in every place: in buckets, being sealed, and in memory, each with and without a shift. A search by
    due time agrees with a search of all.
    """
    index = index_of(4)
    names, id_hash = index.named.names, hash_of(ID)
    names.add(id_hash, Position(DUE_MS + 5, 4), shift_ms=5)
    names.freeze()
    names.add(id_hash, Position(DUE_MS + 7, 301), shift_ms=7)
    names.add(id_hash, Position(DUE_MS, 302), shift_ms=1)
    names.look_up([id_hash])
    stored = [(DUE_MS + 9, 201, 0), (DUE_MS, 200, 0), (DUE_MS + 9, 202, 9), (DUE_MS + 9, 203, 8)]
    names.lookup.found(range(200, 300), [(id_hash, Position(due_ms, at), shift_ms) for due_ms, at, shift_ms in stored])
    assert {place.offset for place in names.find(id_hash, DUE_MS)} == {200, 202, 0, 4, 301}
    assert len(names.find(id_hash)) == len([*names.latest(id_hash)]) == 11
    names.remove(id_hash, [Position(DUE_MS, 200), Position(DUE_MS + 9, 202), Position(DUE_MS, 302)])
    assert {place.offset for place in names.find(id_hash, DUE_MS)} == {0, 4, 301}
    names.check()


def test_moves_in_one_transaction_are_each_answered_and_name_the_move_in_front() -> None:
    index = index_of(2)
    moves = [ask(index, Action.MOVE, due_ms=5_000_000 + number) for number in range(3)]
    assert [receipt.outcome for receipt in moves] == [ControlOutcome.MOVED] * 3
    assert moves[0].cancelled == (Position(DUE_MS, 0), Position(DUE_MS + 1, 1))
    assert moves[1].cancelled == moves[1].unwritten == (Position(5_000_000, 2),)
    assert moves[2].cancelled == moves[2].unwritten == (Position(5_000_001, 3),)
    index.check()
    assert commit(index) == moves
    assert set(index.named.mask._offsets) == {0, 1}, "nothing is written that had to be masked"


@pytest.mark.parametrize(
    ("if_due_ms", "outcome"),
    [(None, ControlOutcome.CANCELLED), (7_000, ControlOutcome.CANCELLED), (DUE_MS, ControlOutcome.CHANGED)],
)
def test_a_control_behind_a_move_holds_for_its_new_time(if_due_ms: int | None, outcome: ControlOutcome) -> None:
    index = index_of(1)
    ask(index, Action.MOVE, due_ms=7_000)
    receipt = ask(index, Action.CANCEL, if_due_ms)
    assert receipt.outcome is outcome
    assert receipt.cancelled == (() if outcome is ControlOutcome.CHANGED else (Position(7_000, 1),))
    assert receipt.masks == ()
    index.check()


def test_what_was_moved_lies_behind_all_others_of_its_id() -> None:
    index = index_of(1)
    ask(index, Action.MOVE, due_ms=7_000)
    offset = index.indexed_to
    index.add([(DUE_MS, offset, None)])
    index.named.names.add(hash_of(ID), Position(DUE_MS, offset))
    receipt = ask(index, Action.MOVE, due_ms=8_000)
    assert receipt.cancelled == (Position(DUE_MS, offset), Position(7_000, 1))
    assert (receipt.moved, receipt.written) == (Position(7_000, 1), (Position(DUE_MS, offset),))


def test_a_chain_of_moves_leaves_as_a_whole() -> None:
    """A clock that was set back holds a late record, and with it C. The record lies between two moves."""
    index = index_of(1)
    index.plan(DUE_MS, 1_000, 1_000_000)
    index.confirm()
    offset = index.indexed_to
    index.add([(DUE_MS + 50_000, offset, None)])
    index.named.names.add(hash_of(ID), Position(DUE_MS + 50_000, offset))
    first = ask(index, Action.MOVE, due_ms=DUE_MS + 60_000)
    index.add([(DUE_MS - 10, index.indexed_to, None)])
    second = ask(index, Action.MOVE, due_ms=DUE_MS + 70_000)
    assert commit(index, now_ms=DUE_MS - 20) == []
    assert index.committed.cursor == first.offset
    assert index.next_owed_ms() == DUE_MS - 10, "to begin a transaction sooner would be in vain"
    assert commit(index, now_ms=DUE_MS) == [first, second]


def test_a_schedule_that_could_not_be_written_again_is_pending_as_before() -> None:
    index = index_of(2)
    moves = [ask(index, Action.MOVE, due_ms=5_000_000 + number) for number in range(2)]
    index.named.names._sweep_at = 0
    index.named.sweep(index.is_pending)
    batch = index.plan(0, 1_000, 1_000_000)
    spared = index.spare(Position(DUE_MS + 1, 1), [receipt.offset for receipt in moves], "too large")
    assert spared == batch, "neither of the two schedules lies in a bucket"
    index.confirm()
    index.check()
    assert batch.receipts == moves, "what is told of them is for whoever writes them"
    assert set(index.named.mask._offsets) == {0}
    assert index.pending == 1
    assert ask(index, Action.CANCEL).cancelled == (Position(DUE_MS + 1, 1),)


def test_nothing_is_owed_at_once_that_has_to_wait_for_a_late_record() -> None:
    index = index_of(0)
    assert index.next_owed_ms() is None
    ask(index, Action.CANCEL)
    assert index.next_owed_ms() == AT_ONCE
