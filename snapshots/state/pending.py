"""The pending records of one delay partition by its state, for readers that release nothing.

::

    held ──► in the state itself
    below S ──► entries of segments, behind the watermark of their bucket
    [S, C) ──► records of the delay topic, behind W
    from C on ──► records of the delay topic that no router has indexed yet

A cancelled record is masked, or matches a query (:mod:`index.named.queries`). A held one is counted once, as held.
Records are decided by the rules of their offset, as the owner of the partition would decide them again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from pyroaring import BitMap64, FrozenBitMap64

from index.buckets.bucket import Manifest, SegmentRef
from index.named.queries import cancelling
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.recurring import recurrence_of
from index.protocol.schedule import AT_ONCE, Rejection, Schedule, schedule_of
from index.rules.unreadable import decide
from snapshots.segments.segment import StoredEntry
from snapshots.state.state import StoredState


class PendingSchedule(NamedTuple):
    """A pending schedule as it is told.

    ``due_ms`` of one that named no time is that of the record. ``series`` is the offset of the first record of the
    recurring schedule that it is an occurrence of.
    """

    due_ms: int
    targets: tuple[str, ...]
    deliver_id: bytes | None
    series: int | None


@dataclass(frozen=True, slots=True)
class StoredPending:
    """The pending records of one partition; ``elsewhere`` are the offsets that were cancelled or are held."""

    state: StoredState
    elsewhere: BitMap64

    @classmethod
    def of(cls, state: StoredState) -> Self:
        """Make it of the whole state."""
        return cls(state, BitMap64(state.mask) | BitMap64([entry.offset for entry in state.held]))

    def without_lists(self) -> Self:
        """Return a copy without buckets and held records, to be sent; it judges segments and records from S on."""
        return replace(
            self, state=replace(self.state, buckets=(), held=(), mask=FrozenBitMap64(), transit={}, inventory=None)
        )

    def segments(self) -> Iterator[tuple[Manifest, SegmentRef]]:
        """Yield the segments behind the watermark; their entries may have been cancelled."""
        for bucket in self.state.buckets:
            watermark = self.state.progress.watermark_of(bucket.bucket_id)
            yield from ((bucket, ref) for ref in bucket.segments if ref.last > watermark)

    def entries(self, offsets: range, after: Position, entries: Sequence[StoredEntry]) -> list[StoredEntry]:
        """Return the entries behind ``after`` that have these offsets and wait nowhere else."""
        waiting = (entry for entry in entries if entry[:2] > after and entry[1] in offsets)
        return [entry for entry in waiting if entry[1] not in self.elsewhere]

    def is_told_elsewhere(self, offset: int) -> bool:
        """Return whether the record at an offset from S on was cancelled, is held, or was skipped unread."""
        return offset in self.elsewhere or any(each[0] <= offset < each[1] for each in self.state.progress.skipped)

    def schedule(self, offset: int, record: Record, due_ms: int | None = None) -> tuple[Schedule, Record] | None:
        """Return the schedule of a record, and the record as it will leave; None when it is not pending.

        ``due_ms`` is its due time by the bucket that holds it, None for a record read from the log.
        """
        decision, record = decide(self.state.history.at(offset), record, offset)
        schedule = schedule_of(decision)
        if schedule is None or (due_ms is not None and schedule.due_ms != due_ms):
            return None
        if cancelling(self.state.queries, offset, schedule, record) is not None:
            return None
        is_indexed = due_ms is None and offset < self.state.progress.cursor
        if is_indexed and Position(schedule.due_ms, offset) <= self.state.watermark_at(offset):
            return None
        return schedule, record

    def told(self, offset: int, schedule: Schedule, record: Record) -> PendingSchedule:
        """Describe a pending schedule; O(headers)."""
        targets = tuple(dict.fromkeys(schedule.targets))
        return PendingSchedule(due_of(schedule, record), targets, schedule.deliver_id, self._series(offset, record))

    def _series(self, offset: int, record: Record) -> int | None:
        if not self.state.progress.series_key:
            return None
        recurrence = recurrence_of(record.headers)
        if recurrence is None or isinstance(recurrence, Rejection):
            return None
        return offset if recurrence.occurrence is None else recurrence.occurrence.first_offset


def due_of(schedule: Schedule, record: Record) -> int:
    """Return the due time that the released record will say: without a time of its own, that of the record."""
    return schedule.due_ms if schedule.due_ms != AT_ONCE else max(record.timestamp_ms, 0)
