"""PartitionIndex, one rule at a time; test_partition_model.py has the random operations."""

import pytest

from index.named.names import hash_of
from index.named.receipts import ControlOutcome
from index.partition.batch import Batch
from index.partition.partition import PartitionIndex
from index.pending.progress import BEFORE_ALL, Position, Progress, Skipped, start_of
from index.protocol.record import Record
from index.protocol.schedule import Action, Control
from tests.support.manifests import manifest


def make(progress: Progress | None = None) -> PartitionIndex[str, str]:
    return PartitionIndex(progress or start_of(0), len)


def released(index: PartitionIndex[str, str], now_ms: int) -> Batch[str, str]:
    batch = index.plan(now_ms, 100, 1_000)
    index.confirm()
    index.check()
    return batch


def test_a_record_indexed_after_its_due_time_leaves_in_the_next_batch_whatever_its_size() -> None:
    index = make()
    index.add([(100, 0, "first")])
    released(index, 100)
    for offset in range(1, 6):
        index.add([(50, offset, "late")])
    batch = index.plan(100, max_entries=1, max_bytes=1)
    assert [offset for _, offset, _ in batch.late] == [1, 2, 3, 4, 5]
    assert batch.progress == Progress(6, Position(100, 0), 6, 2)


def test_at_the_same_due_time_offsets_decide_who_is_late() -> None:
    index = make(Progress(cursor=10, watermark=Position(100, 5), sealed_to=4))
    assert not index.add([(100, 4, "released")])
    assert not index.add([(100, 5, "released")])
    assert index.add([(100, 6, "pending")])
    index.advance(10)
    batch = index.plan(100, 10, 100)
    assert [offset for _, offset, _ in batch.due] == [6]
    assert batch.late == []


def test_a_range_to_be_sealed_begins_where_nothing_below_is_remembered() -> None:
    index = make()
    index.add([(100, 3, "released"), (900, 7, "stays")])
    assert released(index, 100).progress.sealed_to == 7
    assert index.freeze().from_offset == 7
    index.check()
    index.thaw()
    released(index, 900)
    assert index.parts.mutable.from_offset == 7


def test_one_record_leaves_however_big_it_is() -> None:
    index = make()
    index.add([(1, 0, "x" * 1_000)])
    index.add([(1, 1, "y")])
    assert [offset for _, offset, _ in index.plan(1, 10, 500).due] == [0]


def test_a_clock_that_was_set_back_keeps_a_late_record_and_all_behind_it() -> None:
    index = make()
    index.add([(200, 0, "released at 200")])
    released(index, 200)
    index.reject(1, "before")
    index.add([(150, 2, "late, and not due at 120")])
    index.add([(100, 3, "behind")])
    index.reject(4, "behind")
    index.add([(300, 5, "pending behind it, which must not move S past C")])
    assert index.next_owed_ms() == 0

    batch = released(index, 120)
    assert (batch.late, batch.due, batch.rejected) == ([], [], [(1, "before")])
    assert batch.progress.cursor == batch.progress.sealed_to == 2
    assert (index.owed, index.next_owed_ms()) == (3, 150)

    batch = released(index, 150)
    assert [offset for _, offset, _ in batch.late] == [2, 3]
    assert batch.rejected == [(4, "behind")]
    assert (batch.progress.cursor, batch.progress.sealed_to) == (6, 5)
    assert index.next_owed_ms() is None


def test_owed_from_a_rejected_record_is_due_at_once() -> None:
    index = make(Progress(0, Position(200, 0), 0))
    assert index.next_owed_ms() is None
    index.add([(150, 0, "late")])
    assert index.next_owed_ms() == 150
    index.reject(1, "behind")
    assert index.next_owed_ms() == 150
    other = make()
    other.reject(0, "alone")
    assert other.next_owed_ms() == 0


def test_nothing_is_planned_before_the_replay_reaches_the_cursor() -> None:
    index = make(Progress(cursor=10, watermark=BEFORE_ALL, sealed_to=3))
    assert (index.indexed_to, index.replaying) == (3, True)
    index.advance(9)
    with pytest.raises(ValueError, match="planned at 9, before the replay reached 10"):
        index.plan(0, 1, 1)
    index.advance(12)
    assert not index.replaying
    assert index.plan(0, 1, 1).progress.cursor == 12


def test_a_replay_does_not_reject_again() -> None:
    index = make(Progress(cursor=5, watermark=BEFORE_ALL, sealed_to=3))
    assert not index.reject(3, "left already")
    assert index.reject(5, "new")
    assert index.plan(0, 1, 1).rejected == [(5, "new")]


def test_offsets_only_rise() -> None:
    index = make()
    index.add([(10, 4, "")])
    with pytest.raises(ValueError, match="offset 4 indexed after 4"):
        index.add([(10, 4, "")])
    with pytest.raises(ValueError, match="offset 3 indexed after 4"):
        index.reject(3, "")
    with pytest.raises(ValueError, match="advanced to 4 after 4"):
        index.advance(4)
    index.advance(5)


def test_nothing_is_indexed_or_planned_while_a_batch_is_in_flight() -> None:
    index = make()
    index.plan(0, 1, 1)
    assert not index.may_freeze
    with pytest.raises(ValueError, match="in flight"):
        index.advance(1)
    with pytest.raises(ValueError, match="in flight"):
        index.add([(0, 0, "")])
    with pytest.raises(ValueError, match="in flight"):
        index.plan(0, 1, 1)


def test_counts_and_due_times() -> None:
    index = make()
    assert (index.pending, index.owed, index.next_due_ms(), index.furthest_due_ms()) == (0, 0, None, None)
    index.add([(700, 0, "")])
    index.add([(300, 1, "")])
    index.reject(2, "")
    assert (index.pending, index.owed, index.next_due_ms(), index.furthest_due_ms()) == (2, 1, 300, 700)
    index.plan(300, 9, 9)
    assert (index.pending, index.owed, index.next_due_ms()) == (1, 0, 700)


@pytest.mark.parametrize(
    ("due_ms", "offset", "done"),
    [(99, 9, True), (100, 5, True), (100, 6, False), (101, 0, False), (99, 10, False), (0, 99, False)],
)
def test_done_is_two_comparisons(due_ms: int, offset: int, done: bool) -> None:
    progress = Progress(cursor=10, watermark=Position(100, 5), sealed_to=0)
    assert progress.is_done(due_ms, offset) is done


def test_what_was_rejected_as_one_is_not_accepted_when_it_is_read_again() -> None:
    index = make()
    index.add([(500, 0, "waits, so that S stays here")])
    index.skip(1, 4, "cannot be read")
    index.skip(4, 6, "nor can this, which touches it")
    index.add([(100, 6, "b")])
    index.skip(7, 9, "nor this")
    committed = released(index, 100)
    assert [offset for offset, _ in committed.rejected] == [1, 4, 7]
    assert committed.progress == Progress(9, Position(100, 6), 0, 1, skipped=(Skipped(1, 6), Skipped(7, 9)))
    for _ in range(2):
        index = make(committed.progress)
        assert [entry[1] for entry in index.add([(500, offset, "again") for offset in range(9)])] == [0, 6]
        index.skip(9, 10, "of now")
        index.add([(500, 10, "of now")])
        again = released(index, 100)
        assert [offset for offset, _ in again.rejected] == [9]
        assert again.progress.skipped == (Skipped(1, 6), Skipped(7, 10))


def test_what_cannot_be_read_again_is_rejected_once() -> None:
    index = make(Progress(9, Position(100, 6), 0, skipped=(Skipped(1, 6),)))
    index.skip(0, 5, "read by another client before")
    index.skip(5, 9, "likewise")
    batch = released(index, 100)
    assert batch.rejected == []
    assert batch.progress.skipped == ()


def test_nothing_is_said_of_what_s_has_passed_or_c_has_not() -> None:
    index = make()
    index.add([(200, 0, "released at 200")])
    index.skip(1, 3, "before W, and S passes it")
    assert released(index, 200).progress.skipped == ()
    index.add([(150, 3, "late, and not due at 120")])
    index.skip(4, 6, "behind")
    assert index.plan(120, 10, 100).progress.skipped == ()
    index.confirm()
    assert released(index, 150).progress == Progress(6, Position(200, 0), 6, 3)


@pytest.mark.parametrize(
    ("is_there", "outcome"), [(True, ControlOutcome.CANCELLED), (False, ControlOutcome.NOT_PENDING)]
)
def test_what_was_looked_up_in_a_bucket_is_not_pending_once_that_is_done(
    is_there: bool, outcome: ControlOutcome
) -> None:
    """Every entry of the bucket behind W was cancelled, and the mask no longer knows a bucket that is gone."""
    index = make(Progress(cursor=10, watermark=Position(100, 5), sealed_to=10))
    if is_there:
        index.parts.add_bucket(manifest(0, [(200, 4)], offsets=(0, 10)), Position(100, 5), None)
    names, id_hash = index.named.names, hash_of(b"order-7")
    names.look_up([id_hash])
    names.lookup.found(range(10), [(id_hash, Position(200, 4), 0)])
    receipt, _ = index.control(10, Control(Action.CANCEL, b"order-7"), Record(None, b"", [], 0))
    assert receipt is not None
    assert receipt.outcome is outcome
