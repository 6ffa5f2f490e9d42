"""The pending records of a partition by its state, a record at a time; sidecar/operations/finding tests whole walks."""

import pickle
from typing import Any

import pytest
from pyroaring import FrozenBitMap64

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress, Skipped
from index.protocol.headers import Headers
from index.protocol.occurrences import record_of
from index.protocol.record import Record
from index.protocol.recurring import Occurrence
from index.protocol.schedule import Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from snapshots.state.held import HeldEntry
from snapshots.state.pending import PendingSchedule, StoredPending
from snapshots.state.state import StoredState

RULES = Rules("d", default_target="out", allowed_targets=("a",), recurring=True, max_delay_ms=0)
SENT_MS = 1_000
KEY = b"k" * 16


def record(*headers: tuple[str, bytes | None]) -> Record:
    return Record(b"key", b"value", list(headers), SENT_MS)


def at(due_ms: int) -> tuple[str, bytes | None]:
    return "deliver-at", b"%d" % due_ms


def stored(**more: Any) -> StoredState:
    progress = Progress(50, Position(5_000, 45), 40, skipped=(Skipped(46, 48),), series_key=KEY)
    return StoredState(more.pop("progress", progress), "id", RuleHistory.beginning(0, RULES), **more)


@pytest.mark.parametrize(
    ("offset", "headers", "due_ms", "is_pending"),
    [
        (44, [at(5_000)], None, False),  # has left: at or before W
        (45, [at(5_000)], None, False),
        (46, [at(5_000)], None, True),  # the caller knows the skipped offsets
        (44, [at(5_001)], None, True),
        (50, [at(1)], None, True),  # nothing behind C has left
        (3, [at(4_000)], 4_000, True),  # in a bucket, whose reader has applied the watermark
        (3, [at(4_000)], 4_001, False),
        (44, [("deliver-at", b"soon")], None, False),
        (44, [("deliver-cancel", b"id")], None, False),
    ],
)
def test_whether_a_record_is_pending(offset: int, headers: Headers, due_ms: int | None, is_pending: bool) -> None:
    found = StoredPending.of(stored()).schedule(offset, record(*headers), due_ms)
    assert (found is not None) is is_pending


def test_what_is_told_elsewhere() -> None:
    held = HeldEntry(43, Schedule(1, ("out",), -1, None, None, False), record())
    pending = StoredPending.of(stored(mask=FrozenBitMap64([42]), held=(held,)))
    assert [offset for offset in range(40, 50) if pending.is_told_elsewhere(offset)] == [42, 43, 46, 47]
    assert pending.entries(range(40, 50), BEFORE_ALL, [(1, 42, None), (1, 43, None), (1, 46, None)]) == [(1, 46, None)]
    sent = pickle.loads(pickle.dumps(pending.without_lists()))  # noqa: S301 -- our own
    assert sent.elsewhere == pending.elsewhere
    assert (sent.state.held, sent.state.mask, sent.state.progress) == ((), FrozenBitMap64(), pending.state.progress)


def test_segments_by_the_watermark_of_their_bucket() -> None:
    passed, coming = Position(4_000, 1), Position(6_000, 1)
    refs = [
        SegmentRef(passed, passed, 1, 9, 0, Placement.INLINE),
        SegmentRef(passed, coming, 2, 9, 1, Placement.INLINE),
    ]
    progress = Progress(50, Position(5_000, 45), 40, next_bucket=3, catching_up=(Behind(2, Position(3_999, 0)),))
    buckets = tuple(Manifest(number, 10 * number, 10 * number + 10, None, tuple(refs)) for number in (1, 2))
    found = StoredPending.of(stored(progress=progress, buckets=buckets)).segments()
    assert [(bucket.bucket_id, ref.record_offset) for bucket, ref in found] == [(1, 1), (2, 0), (2, 1)]


def test_what_is_told_of_a_schedule() -> None:
    pending = StoredPending.of(stored())

    def told(offset: int, one: Record) -> PendingSchedule:
        found = pending.schedule(offset, one)
        assert found is not None
        return pending.told(offset, *found)

    named = record(at(9_000), ("deliver-id", b"x"), ("deliver-to", b"a"), ("deliver-to", b"out"))
    assert told(60, named) == PendingSchedule(9_000, ("a", "out"), b"x", None)
    assert told(60, record()) == PendingSchedule(SENT_MS, ("out",), None, None), "no time: that of the record"
    every = record(at(9_000), ("deliver-every", b"PT1H"))
    assert told(60, every).series == 60
    following = record_of(every, Occurrence(60, 2, 12_600_000), "d/0/60", KEY, SENT_MS)
    assert told(99, following).series == 60
