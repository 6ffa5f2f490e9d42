"""Through everything pending of one partition, by what is stored, as far as a page goes.

::

    held ──► below S: the range of one bucket after the other, each by (due, offset) ──► from S on: by offset

Of a bucket only those segments are read that reach behind its watermark and into the due times that are wanted.

Where an id is wanted, the pages of ids of all buckets tell where it waits (:mod:`sidecar.finding.stored_ids`)::

    held ──► below S: the places that pages name, by offset ──► from S on: blocks in front of C ──► the rest

Blocks of the log are looked through once only (:mod:`sidecar.finding.known_ids`). Where a bucket of 0.1.0 has no
pages, or a page is damaged, that begins where the first bucket does, if the delay topic still has all from there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from index.bucket import Manifest, Placement
from index.headers import Role
from index.progress import BEFORE_ALL, Position
from index.record import Record
from index.schedule import Schedule
from sidecar.finding.kafka_stored import Allowance, KafkaStored
from sidecar.finding.known_ids import KnownIds, Log
from sidecar.finding.stored_ids import InBucket, places_in_buckets
from sidecar.finding.wanted import Pending, Place, Wanted
from snapshots.pending import StoredPending
from snapshots.segment import StoredEntry
from snapshots.state import StoredState

READ_AGAIN: Final = 200
"""So many records that a segment points to are read from the delay topic at a time."""

IDS_FOR_A_RECORD: Final = 10
"""To look whether a record has an id costs a tenth of what it costs to decide it, about."""


@dataclass(slots=True)
class Walk:
    """Of one page; ``most`` is how many schedules it still takes.

    ``ids`` are shared by all pages; None: part of the log cannot be read, so it is not looked through.
    """

    partition: int
    state: StoredState
    wanted: Wanted
    stored: KafkaStored
    allowance: Allowance
    ids: KnownIds | None
    most: int
    found: list[Pending] = field(default_factory=list)
    _pending: StoredPending = field(init=False)

    def __post_init__(self) -> None:
        self._pending = StoredPending.of(self.state)

    def read(self, place: Place) -> Place | None:
        """Go on from a place of this partition; where the next page does, None when nothing is left here."""
        if place.is_held:
            goes_on = self._held(place.offset)
            if goes_on is not None:
                return goes_on
            place = Place(self.partition, is_held=False)
        stored_at = self._stored_at(place)
        if stored_at is not None:
            return self._by_stored_ids(stored_at, place.offset)
        ids, deliver_id, pending_from = self.ids, self.wanted.deliver_id, max(place.offset, self._pending_from)
        if ids and deliver_id is not None and not place.to_offset and self.stored.log_start() <= pending_from:
            return self._by_id(ids, deliver_id, pending_from)
        return self._stored(place)

    @property
    def _pending_from(self) -> int:
        """The first offset that may be pending, but for what is held."""
        return min([self.state.progress.sealed_to, *(each.from_offset for each in self.state.buckets)])

    def _held(self, from_offset: int) -> Place | None:
        for entry in sorted(self.state.held, key=lambda entry: entry.offset):
            if entry.offset < from_offset:
                continue
            if self._is_full():
                return Place(self.partition, is_held=True, offset=entry.offset)
            self._take(entry.offset, entry.schedule, entry.record)
        return None

    def _stored(self, place: Place) -> Place | None:
        """Take what lies in buckets, one after the other, and then what lies behind S."""
        for bucket in self.state.buckets:
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
                return self._stored(place)
        return self._log(max(place.offset, self.state.progress.sealed_to))

    def _stored_at(self, place: Place) -> list[InBucket] | None:
        deliver_id = self.wanted.deliver_id
        if not self.ids or deliver_id is None or place.to_offset:
            return None
        return places_in_buckets(self.state, deliver_id, place.offset, self.stored.id_page)

    def _by_stored_ids(self, stored_at: Sequence[InBucket], from_offset: int) -> Place | None:
        """Take what waits in buckets at these places, and then what lies behind S, by offset."""
        waiting = [each for each in stored_at if not self._pending.is_told_elsewhere(each.place.offset)]
        for begin in range(0, len(waiting), READ_AGAIN):
            some = waiting[begin : begin + READ_AGAIN]
            if begin and self.allowance.is_spent():
                return Place(self.partition, is_held=False, offset=some[0].place.offset)
            read = self.stored.records([each.place.offset for each in some])
            for (due_ms, offset), bucket in some:
                if self._is_full():
                    return Place(self.partition, is_held=False, offset=offset)
                record = read.get(offset) or self._in_segment(bucket, Position(due_ms, offset))
                if record is not None:
                    self._judge(offset, record, due_ms)
            self.allowance.spend(len(some))
        unsealed_from = max(from_offset, self.state.progress.sealed_to)
        if self.ids and self.wanted.deliver_id is not None and self.stored.log_start() <= unsealed_from:
            return self._by_id(self.ids, self.wanted.deliver_id, unsealed_from)
        return self._log(unsealed_from)

    def _in_segment(self, bucket: Manifest, place: Position) -> Record | None:
        """A record that the delay topic has no longer; None where no segment has it either."""
        for ref in bucket.segments:
            if ref.placement is Placement.INLINE and ref.first <= place <= ref.last:
                entries = self.stored.segment(ref) or ()
                return next((record for due_ms, offset, record in entries if (due_ms, offset) == place), None)
        return None

    def _by_id(self, ids: KnownIds, deliver_id: bytes, from_offset: int) -> Place | None:
        """Take what has the id, by offset; where the next page goes on, None when nothing is left."""
        log, span = Log(self.wanted.topic, self.state.delay_topic_id, self.partition), ids.span
        at = from_offset
        # What is not decided yet by whoever serves the partition may still become another record of the log.
        while (start := at // span * span) + span <= self.state.progress.cursor:
            if at > from_offset and self.allowance.is_spent():
                return Place(self.partition, is_held=False, offset=at)
            offsets = ids.find(log, start, deliver_id)
            if offsets is None:
                read_now = self._learn(ids, log, at)
                if read_now is None:
                    # Retention has removed it meanwhile.
                    return self._stored(Place(self.partition, is_held=False, offset=at))
                offsets = [offset for raw, offset in read_now if raw == deliver_id]
            asked = [offset for offset in offsets if offset >= at]
            read = self.stored.records(asked) if asked else {}
            for offset in asked:
                if self._is_full():
                    return Place(self.partition, is_held=False, offset=offset)
                if (record := read.get(offset)) is not None and not self._pending.is_told_elsewhere(offset):
                    self._judge(offset, record)
            at = start + span
        return self._log(at)

    def _learn(self, ids: KnownIds, log: Log, at: int) -> list[tuple[bytes, int]] | None:
        """Read the log from the block of this offset on, as far as the page goes, and remember which ids it has.

        Returns those of the first block, with their offsets; None when the log does not have that any more.
        """
        first: list[tuple[bytes, int]] | None = None
        for start, found, records in self._blocks(ids.span, at):
            first = found if first is None else first
            self.allowance.spend(records // IDS_FOR_A_RECORD)
            if not ids.note(log, start, found) or self.allowance.is_spent():
                break
        return first

    def _blocks(self, span: int, at: int) -> Iterator[tuple[int, list[tuple[bytes, int]], int]]:
        """Each whole block in front of C from this offset on: where it begins, its ids, and how many records it has."""
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
        """The ids that a record of the log names, which costs a tenth of deciding it."""
        controls = self.state.history.at(offset).controls
        if not controls.names_id(record.headers):
            return []
        return [raw for name, raw in record.headers if raw is not None and controls.role(name) is Role.ID]

    def _is_full(self) -> bool:
        return len(self.found) >= self.most

    def _bucket(self, bucket: Manifest, offsets: range, after: Position) -> Place:
        watermark = self.state.progress.watermark_of(bucket.bucket_id)
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
            waiting = [
                each
                for each in self._pending.entries(offsets, max(watermark, after), entries)
                if self.wanted.takes_any(each[0], each[0])
            ]
            stopped_at = self._entries(waiting)
            if stopped_at is not None:
                return here._replace(after=stopped_at)
            after = ref.last
        return Place(self.partition, is_held=False, offset=offsets.stop)

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
        pending = self._pending.schedule(offset, record, due_ms)
        if pending is not None:
            self._take(offset, *pending)

    def _log(self, from_offset: int) -> Place | None:
        deliver_id = self.wanted.deliver_id
        for offset, record in self.stored.log(from_offset):
            if self._is_full() or self.allowance.is_spent():
                return Place(self.partition, is_held=False, offset=offset)
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
        self.found.append(Pending(told.due_ms, self.partition, offset, targets, deliver_id, series, record.key))
