"""Through everything pending of one partition, by what is stored, as far as a page goes.

::

    held ──► below S: the range of one bucket after the other, each by (due, offset) ──► from S on: by offset

Of a bucket only those segments are read that reach behind its watermark and into the due times that are wanted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from index.bucket import Manifest, SegmentRef
from index.progress import BEFORE_ALL, Position
from index.record import Record
from index.recurring import recurrence_of
from index.schedule import Rejection, Schedule
from index.unreadable import decide
from sidecar.finding.wanted import Pending, Place, Wanted, due_of
from snapshots.segment import StoredEntry
from snapshots.state import StoredState

READ_AGAIN: Final = 200
"""So many records that a segment points to are read from the delay topic at a time."""


class Stored(Protocol):
    """Where the records of the partition are read."""

    def segment(self, ref: SegmentRef) -> Sequence[StoredEntry] | None:
        """What a segment holds, by (due, offset); None when it is there no more."""

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Records of the delay partition at ascending offsets; None for one that is gone."""

    def log(self, from_offset: int) -> Iterator[tuple[int, Record]]:
        """Every committed record of the delay partition from there on that is left, with its offset."""


class Allowance(Protocol):
    """How much a page may still read."""

    def is_spent(self) -> bool:
        """Whether it has to end."""

    def spend(self, records: int) -> None:
        """So many were read."""


@dataclass(slots=True)
class Walk:
    """Of one page; ``most`` is how many schedules it still takes."""

    partition: int
    state: StoredState
    wanted: Wanted
    stored: Stored
    allowance: Allowance
    most: int
    found: list[Pending] = field(default_factory=list)
    _elsewhere: frozenset[int] = frozenset()

    def read(self, place: Place) -> Place | None:
        """Go on from a place of this partition; where the next page does, None when nothing is left here."""
        state = self.state
        self._elsewhere = frozenset(state.mask).union(entry.offset for entry in state.held)
        if place.is_held:
            for entry in sorted(state.held, key=lambda entry: entry.offset):
                if entry.offset < place.offset:
                    continue
                if self._is_full():
                    return Place(self.partition, is_held=True, offset=entry.offset)
                self._take(entry.offset, entry.schedule, entry.record)
            place = Place(self.partition, is_held=False)
        for bucket in state.buckets:
            if bucket.to_offset <= place.offset:
                continue
            offsets, after = range(max(place.offset, bucket.from_offset), bucket.to_offset), BEFORE_ALL
            if offsets.start < place.to_offset:
                # Within a bucket that the one before this page had come to, and that may have been merged since.
                offsets, after = range(offsets.start, min(place.to_offset, bucket.to_offset)), place.after
            place = self._bucket(bucket, offsets, after)
            if place.to_offset:
                return place
            if place.offset < bucket.to_offset:
                return self.read(place)
        return self._log(max(place.offset, state.progress.sealed_to))

    def _is_full(self) -> bool:
        return len(self.found) >= self.most

    def _bucket(self, bucket: Manifest, offsets: range, after: Position) -> Place:
        behind = dict(self.state.progress.catching_up).get(bucket.bucket_id)
        watermark = self.state.progress.watermark if behind is None else behind
        for ref in bucket.segments:
            if ref.last <= max(watermark, after) or not self.wanted.takes_any(ref.first.due_ms, ref.last.due_ms):
                continue
            here = Place(self.partition, False, offsets.start, offsets.stop, after)
            if self._is_full() or self.allowance.is_spent():
                return here
            entries = self.stored.segment(ref)
            if entries is None:
                # Merged or released since the state was read: the next page reads that again.
                return here
            self.allowance.spend(len(entries))
            waiting = [each for each in entries if each[:2] > max(watermark, after) and self._is_of(offsets, each)]
            stopped_at = self._entries(waiting)
            if stopped_at is not None:
                return here._replace(after=stopped_at)
            after = ref.last
        return Place(self.partition, is_held=False, offset=offsets.stop)

    def _is_of(self, offsets: range, entry: StoredEntry) -> bool:
        due_ms, offset, _ = entry
        return offset in offsets and offset not in self._elsewhere and self.wanted.takes_any(due_ms, due_ms)

    def _entries(self, entries: Sequence[StoredEntry]) -> Position | None:
        """Take these; the last one that was looked at when the page is full before their end."""
        last = BEFORE_ALL
        for begin in range(0, len(entries), READ_AGAIN):
            if self._is_full():
                return last
            some = entries[begin : begin + READ_AGAIN]
            absent = sorted(offset for _, offset, record in some if record is None)
            read = self.stored.records(absent) if absent else {}
            for due_ms, offset, inline in some:
                if self._is_full():
                    return last
                last = Position(due_ms, offset)
                # One that is gone from the delay topic is counted as lost when it is due.
                if (record := inline or read.get(offset)) is not None:
                    self._judge(offset, record, due_ms)
        return None

    def _judge(self, offset: int, record: Record, due_ms: int | None = None) -> None:
        """Take a record if it is pending; ``due_ms`` is when it is by the bucket that holds it."""
        progress, history = self.state.progress, self.state.history
        decision, record = decide(history.at(offset), record)
        if isinstance(decision, Rejection) or (due_ms is not None and decision.due_ms != due_ms):
            return
        if not decision.targets:
            # It cancels others.
            return
        is_indexed = due_ms is None and offset < progress.cursor
        if is_indexed and Position(decision.due_ms, offset) <= progress.watermark:
            return
        self._take(offset, decision, record)

    def _log(self, from_offset: int) -> Place | None:
        skipped = self.state.progress.skipped
        for offset, record in self.stored.log(from_offset):
            if self._is_full() or self.allowance.is_spent():
                return Place(self.partition, is_held=False, offset=offset)
            self.allowance.spend(1)
            if offset not in self._elsewhere and not any(each[0] <= offset < each[1] for each in skipped):
                self._judge(offset, record)
        return None

    def _take(self, offset: int, schedule: Schedule, record: Record) -> None:
        due_ms = due_of(schedule, record)
        if not self.wanted.takes(schedule, due_ms):
            return
        targets = tuple(dict.fromkeys(schedule.targets))
        self.found.append(
            Pending(due_ms, self.partition, offset, targets, schedule.deliver_id, self._series(offset, record))
        )

    def _series(self, offset: int, record: Record) -> int | None:
        if not self.state.progress.series_key:
            return None
        recurrence = recurrence_of(record.headers)
        if recurrence is None or isinstance(recurrence, Rejection):
            return None
        return offset if recurrence.occurrence is None else recurrence.occurrence.first_offset
