"""Walks through the pending schedules of one partition as they are stored, for one page.

::

    held ──► below S: the range of one bucket after the other, each by (due, offset) ──► from S on: by offset

In a bucket the walk reads only the segments that reach behind its watermark and into the wanted due times.

Where an id is wanted, the pages of ids of all buckets tell where its records wait (:mod:`index.named.id_pages`)::

    held ──► below S: the places that pages name, by offset ──► from S on: blocks in front of C ──► the rest

Each block of the log is searched only once (:class:`sidecar.operations.finding.cache.IdBlocks`). Where a bucket of
0.1.0 has no pages, or a page is damaged, the search of blocks begins where the first bucket does, if the delay topic
still has all records from there on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from index.buckets.bucket import Manifest
from index.named.id_pages import Sought
from index.named.names import hash_of
from index.pending.progress import BEFORE_ALL, Position
from index.protocol.headers import HeaderRole
from index.protocol.record import Record
from index.protocol.recurring import recurrence_of
from index.protocol.schedule import Rejection, Schedule
from sidecar.operations.finding.cache import IdBlocks, Log
from sidecar.operations.finding.store import Allowance, StoredPartition
from sidecar.operations.finding.wanted import PagePlace, Pending, ScheduleFilter
from snapshots.segments.segment import StoredEntry
from snapshots.state.pending import StoredPending
from snapshots.state.state import StoredState

READ_AGAIN: Final = 200
"""How many records that a segment points to are read from the delay topic at a time."""

IDS_FOR_A_RECORD: Final = 10
"""Searching a record for its id costs about a tenth of deciding it."""


class _InBucket(NamedTuple):
    place: Position
    bucket: Manifest


@dataclass(slots=True)
class Walk:
    """The walk of one page, which takes at most ``most`` schedules.

    All pages share ``blocks``. None: part of the log cannot be read, so the walk does not search it for ids.
    """

    partition: int
    state: StoredState
    wanted: ScheduleFilter
    stored: StoredPartition
    allowance: Allowance
    blocks: IdBlocks | None
    most: int
    found: list[Pending] = field(default_factory=list)
    _pending: StoredPending = field(init=False)

    def __post_init__(self) -> None:
        self._pending = StoredPending.of(self.state)

    def read(self, place: PagePlace) -> PagePlace | None:
        """Go on from a place of this partition; return the place of the next page, None when nothing is left here."""
        if place.is_held:
            goes_on = self._held(place.offset)
            if goes_on is not None:
                return goes_on
            place = PagePlace(self.partition, is_held=False)
        stored_at = self._stored_at(place)
        if stored_at is not None:
            return self._by_stored_ids(stored_at, place.offset)
        blocks, deliver_id, pending_from = self.blocks, self.wanted.deliver_id, max(place.offset, self._pending_from)
        if blocks and deliver_id is not None and not place.to_offset and self.stored.log_start() <= pending_from:
            return self._by_id(blocks, deliver_id, pending_from)
        return self._stored(place)

    @property
    def _pending_from(self) -> int:
        """The first offset that may be pending, apart from held records."""
        return min([self.state.progress.sealed_to, *(each.from_offset for each in self.state.buckets)])

    def _held(self, from_offset: int) -> PagePlace | None:
        for entry in sorted(self.state.held, key=lambda entry: entry.offset):
            if entry.offset < from_offset:
                continue
            if self._is_full():
                return PagePlace(self.partition, is_held=True, offset=entry.offset)
            self._take(entry.offset, entry.schedule, entry.record)
        return None

    def _stored(self, place: PagePlace) -> PagePlace | None:
        """Take the records of one bucket after the other, and then the records behind S."""
        for bucket in self.state.buckets:
            if bucket.to_offset <= place.offset:
                continue
            offsets, after = range(max(place.offset, bucket.from_offset), bucket.to_offset), BEFORE_ALL
            if offsets.start < place.to_offset:
                # The page before ended within this bucket, which may have been merged since.
                offsets, after = range(offsets.start, min(place.to_offset, bucket.to_offset)), place.after
            place = self._bucket(bucket, offsets, after)
            if place.to_offset:
                return place
            if place.offset < bucket.to_offset:
                return self._stored(place)
        return self._log(max(place.offset, self.state.progress.sealed_to))

    def _stored_at(self, from_place: PagePlace) -> list[_InBucket] | None:
        """Return where records of the wanted id wait in buckets, by offset; None where the pages cannot tell.

        Cancelled and held records are among them.
        """
        if not self.blocks or self.wanted.deliver_id is None or from_place.to_offset:
            return None
        sought = Sought([hash_of(self.wanted.deliver_id)])
        found: list[_InBucket] = []
        for bucket in self.state.buckets:
            if bucket.id_pages is None:
                return None
            watermark = self.state.progress.watermark_of(bucket.bucket_id)
            for number, numbers in sought.in_pages(bucket.id_pages):
                page = self.stored.id_page(bucket.id_pages[number])
                if page is None:
                    return None
                places = (place for _, place, _ in page.find(sought, numbers) if place > watermark)
                found += [_InBucket(place, bucket) for place in places if place.offset in bucket.offsets]
        left = (each for each in found if each.place.offset >= from_place.offset)
        return sorted(left, key=lambda each: each.place.offset)

    def _by_stored_ids(self, stored_at: Sequence[_InBucket], from_offset: int) -> PagePlace | None:
        """Take the records that wait in buckets at these places, and then the records behind S, by offset."""
        waiting = [each for each in stored_at if not self._pending.is_told_elsewhere(each.place.offset)]
        for begin in range(0, len(waiting), READ_AGAIN):
            some = waiting[begin : begin + READ_AGAIN]
            if begin and self.allowance.is_spent():
                return PagePlace(self.partition, is_held=False, offset=some[0].place.offset)
            read = self.stored.records([each.place.offset for each in some])
            for (due_ms, offset), bucket in some:
                if self._is_full():
                    return PagePlace(self.partition, is_held=False, offset=offset)
                record = read.get(offset) or self.stored.in_segment(bucket, Position(due_ms, offset))
                if record is not None:
                    self._judge(offset, record, due_ms)
            self.allowance.spend(len(some))
        unsealed_from = max(from_offset, self.state.progress.sealed_to)
        if self.blocks and self.wanted.deliver_id is not None and self.stored.log_start() <= unsealed_from:
            return self._by_id(self.blocks, self.wanted.deliver_id, unsealed_from)
        return self._log(unsealed_from)

    def _by_id(self, blocks: IdBlocks, deliver_id: bytes, from_offset: int) -> PagePlace | None:
        """Take the records of the id by offset; return the place of the next page, None when nothing is left."""
        log, span = Log(self.wanted.topic, self.state.delay_topic_id, self.partition), blocks.span
        at = from_offset
        # A record from C on may still become another one: the router that serves the partition has not decided it.
        while (start := at // span * span) + span <= self.state.progress.cursor:
            if at > from_offset and self.allowance.is_spent():
                return PagePlace(self.partition, is_held=False, offset=at)
            offsets = blocks.find(log, start, deliver_id)
            if offsets is None:
                read_now = self._learn(blocks, log, at)
                if read_now is None:
                    # Retention has removed the block meanwhile.
                    return self._stored(PagePlace(self.partition, is_held=False, offset=at))
                offsets = [offset for raw, offset in read_now if raw == deliver_id]
            asked = [offset for offset in offsets if offset >= at]
            read = self.stored.records(asked) if asked else {}
            for offset in asked:
                if self._is_full():
                    return PagePlace(self.partition, is_held=False, offset=offset)
                if (record := read.get(offset)) is not None and not self._pending.is_told_elsewhere(offset):
                    self._judge(offset, record)
            at = start + span
        return self._log(at)

    def _learn(self, blocks: IdBlocks, log: Log, at: int) -> list[tuple[bytes, int]] | None:
        """Read the log from the block of this offset on, as far as the page goes, and store the ids of each block.

        Returns the ids of the first block with their offsets; None when the log has that block no longer.
        """
        first: list[tuple[bytes, int]] | None = None
        for start, found, records in self._read_blocks(blocks.span, at):
            first = found if first is None else first
            self.allowance.spend(records // IDS_FOR_A_RECORD)
            if not blocks.note(log, start, found) or self.allowance.is_spent():
                break
        return first

    def _read_blocks(self, span: int, at: int) -> Iterator[tuple[int, list[tuple[bytes, int]], int]]:
        """Yield each whole block in front of C from this offset on: its begin, its ids, and how many records it has."""
        start = at // span * span
        end = self.state.progress.cursor // span * span
        found: list[tuple[bytes, int]] = []
        records = 0
        for offset, record in self.stored.log(start, end):
            while offset >= start + span:
                yield start, found, records
                start, found, records = start + span, [], 0
            found += [(deliver_id, offset) for deliver_id in self._ids_in(offset, record)]
            records += 1
        if start < end and self.stored.log_start() <= at:
            yield start, found, records
            yield from ((block, [], 0) for block in range(start + span, end, span))

    def _ids_in(self, offset: int, record: Record) -> list[bytes]:
        """Return the ids that a record of the log names, at a tenth of the cost of deciding it."""
        controls = self.state.history.at(offset).controls
        if not controls.names_id(record.headers):
            return []
        return [raw for name, raw in record.headers if raw is not None and controls.role(name) is HeaderRole.ID]

    def _is_full(self) -> bool:
        return len(self.found) >= self.most

    def _bucket(self, bucket: Manifest, offsets: range, after: Position) -> PagePlace:
        watermark = self.state.progress.watermark_of(bucket.bucket_id)
        for ref in bucket.segments:
            if ref.last <= max(watermark, after) or not self.wanted.takes_any(ref.first.due_ms, ref.last.due_ms):
                continue
            here = PagePlace(self.partition, False, offsets.start, offsets.stop, after)
            if self._is_full() or self.allowance.is_spent():
                return here
            entries = self.stored.segment(ref)
            if entries is None:
                # Merged or released since the state was read, which the next page reads again.
                return here
            self.allowance.spend(len(entries))
            waiting = [
                each
                for each in self._pending.entries(offsets, max(watermark, after), entries)
                if self.wanted.takes_any(each[0], each[0])
            ]
            stopped_at = self._entries(waiting)
            if stopped_at is not None:
                return here._replace(after=stopped_at)
            after = ref.last
        return PagePlace(self.partition, is_held=False, offset=offsets.stop)

    def _entries(self, entries: Sequence[StoredEntry]) -> Position | None:
        """Take these entries; return the last one looked at where the page is full before their end, else None."""
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
                # A record that is gone from the delay topic is counted as lost when it is due.
                if (record := inline or read.get(offset)) is not None:
                    self._judge(offset, record, due_ms)
        return None

    def _judge(self, offset: int, record: Record, due_ms: int | None = None) -> None:
        """Take a record if it is pending; ``due_ms`` is its due time by the bucket that holds it."""
        pending = self._pending.schedule(offset, record, due_ms)
        if pending is not None:
            self._take(offset, *pending)

    def _log(self, from_offset: int) -> PagePlace | None:
        deliver_id = self.wanted.deliver_id
        for offset, record in self.stored.log(from_offset):
            if self._is_full() or self.allowance.is_spent():
                return PagePlace(self.partition, is_held=False, offset=offset)
            self.allowance.spend(1)
            is_wanted = deliver_id is None or deliver_id in self._ids_in(offset, record)
            if is_wanted and not self._pending.is_told_elsewhere(offset):
                self._judge(offset, record)
        return None

    def _take(self, offset: int, schedule: Schedule, record: Record) -> None:
        told = self._pending.told(offset, schedule, record)
        if not self.wanted.takes(schedule, record, told.due_ms):
            return
        _, targets, deliver_id, series = told
        if self.wanted.recurring and series is None:
            return
        recurrence = None if series is None else recurrence_of(record.headers)
        assert not isinstance(recurrence, Rejection), "a series has headers that can be read"
        named = targets, deliver_id, series, record.key
        more = schedule.attempt, recurrence, schedule.shift_ms
        self.found.append(Pending(told.due_ms, self.partition, offset, *named, *more))
