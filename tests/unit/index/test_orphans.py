"""The decision about each kind of orphan."""

import pytest

from index.bucket import Manifest
from index.orphans import NOTHING_WRITTEN, WHEN_INDEXED, Done, Hidden, Outcome, of_records, of_state
from index.progress import BEFORE_ALL, Behind, Position, Progress
from index.schedule import AT_ONCE

DONE = Done(Progress(cursor=100, watermark=Position(5_000, 50), sealed_to=0), held=frozenset({7}))


@pytest.mark.parametrize(
    ("record", "outcome"),
    [
        (Hidden(3, 4_000), Outcome.COMMITTED),
        (Hidden(50, 5_000), Outcome.COMMITTED),
        (Hidden(51, 5_000), Outcome.ABORTED),
        (Hidden(3, 5_001), Outcome.ABORTED),
        # Not in front of C, whenever it is due.
        (Hidden(100, 4_000), Outcome.ABORTED),
        (Hidden(100, AT_ONCE), Outcome.ABORTED),
        (Hidden(100, None), Outcome.ABORTED),
        (Hidden(99, AT_ONCE), Outcome.COMMITTED),
        (Hidden(99, WHEN_INDEXED), Outcome.COMMITTED),
        # Below W, and kept because it waits for its target.
        (Hidden(7, 4_000), Outcome.ABORTED),
        (Hidden(7, None), Outcome.ABORTED),
        (Hidden(8, None), Outcome.UNDECIDED),
    ],
)
def test_one_record_is_decided_by_the_state(record: Hidden, outcome: Outcome) -> None:
    assert of_records(DONE, [record]) is outcome
    assert of_records(DONE, [record, Hidden(NOTHING_WRITTEN, None)]) is outcome


def test_what_only_ended_a_transaction_is_aborted() -> None:
    assert of_records(DONE, [Hidden(NOTHING_WRITTEN, None)]) is Outcome.ABORTED


def test_records_that_contradict_each_other_leave_it_undecided() -> None:
    assert of_records(DONE, [Hidden(3, 4_000), Hidden(4, 6_000)]) is Outcome.UNDECIDED


def test_a_record_rejected_at_once_has_left_before_anything_was_due() -> None:
    done = Done(Progress(cursor=2, watermark=BEFORE_ALL, sealed_to=0))
    assert of_records(done, [Hidden(1, WHEN_INDEXED)]) is Outcome.COMMITTED
    assert of_records(done, [Hidden(1, None)]) is Outcome.UNDECIDED


def test_an_adopted_bucket_has_a_watermark_of_its_own() -> None:
    bucket = Manifest(bucket_id=4, from_offset=10, to_offset=20, needs_from=None, segments=())
    behind = (Behind(4, Position(1_000, 12)),)
    done = Done(DONE.progress._replace(catching_up=behind), (bucket,))
    assert of_records(done, [Hidden(12, 1_000)]) is Outcome.COMMITTED
    assert of_records(done, [Hidden(13, 1_000)]) is Outcome.ABORTED
    assert of_records(done, [Hidden(20, 1_001)]) is Outcome.COMMITTED


@pytest.mark.parametrize(
    ("visible", "all_looked_at", "outcome"),
    [
        ([], True, Outcome.ABORTED),
        ([], False, Outcome.UNDECIDED),
        ([Hidden(3, 6_000)], True, Outcome.COMMITTED),
        ([Hidden(3, 6_000)], False, Outcome.COMMITTED),
        ([Hidden(100, WHEN_INDEXED)], True, Outcome.COMMITTED),
        # It has left before, or leaves only later: says nothing about this transaction.
        ([Hidden(3, 4_000)], True, Outcome.ABORTED),
        ([Hidden(3, 9_000)], True, Outcome.ABORTED),
        ([Hidden(110, 6_000)], True, Outcome.ABORTED),
        ([Hidden(NOTHING_WRITTEN, None)], True, Outcome.ABORTED),
        ([Hidden(3, None)], True, Outcome.UNDECIDED),
    ],
)
def test_the_state_is_decided_by_what_is_visible(visible: list[Hidden], all_looked_at: bool, outcome: Outcome) -> None:
    then = Done(Progress(cursor=110, watermark=Position(6_000, 50), sealed_to=0))
    assert of_state(DONE, then, visible, all_looked_at=all_looked_at) is outcome
