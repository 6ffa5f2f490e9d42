"""Reads, when a control asks, at which positions the buckets hold records of an id.

Intake stops meanwhile, since a control holds for the records in front of it; releases continue. A bucket with pages of
its ids (:mod:`index.named.id_pages`) needs only the pages that may have the id of the control or one of the ids that
come next. These pages are read together, since each read waits for a round trip.

A bucket that 0.1.0 sealed has no pages. The first control causes a read of all its ids from its segments. They are kept
as pages in memory (``_made``), by offsets, since buckets are merged meanwhile. A bucket whose pages are damaged or gone
is handled in the same way: a page that cannot be trusted tells nothing about pending records.

Where segments only point to the delay topic, the delay topic is read in its own order instead, because each segment has
records of the whole range of its bucket. Records found there that have already left do no harm, since the caller checks
which are pending. Where the delay topic has expired before its time, records that were loaded before are still in
memory and will be released: then each control also searches memory.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from pyroaring import BitMap64

from index.buckets.bucket import Bucket, Manifest
from index.errors import ClusterError, ClusterTrouble, FormatError, forget_frames
from index.named.id_lookup import IdLookup
from index.named.id_pages import IdPage, Sought, join_rows, rows_in_order
from index.named.names import AnyPlaces, hash_of
from index.named.places import insert
from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Schedule, schedule_of
from index.protocol.where import CancelWhere
from sidecar.engine.buckets.id_pages import IdPageSource
from sidecar.engine.buckets.loading import Loading
from sidecar.engine.buckets.queries import QueryEffect, StoredQueries
from sidecar.engine.buckets.segments import SegmentSource, keep_nothing
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packing import records_of
from sidecar.engine.ports import Pool, Records
from sidecar.engine.release.gate import Gate

RETRY_AFTER_S: Final = 1.0

READ_TOGETHER: Final = 8
"""Segments that are requested at once, since each read waits for a round trip."""

LOOKED_UP_TOGETHER: Final = 10_000
"""Ids that are looked up at once."""

Found: TypeAlias = tuple[bytes, Position, int]
"""An id, the position of its record, and the spread: the time from the requested due time to the due time of the
record."""

SearchedPage: TypeAlias = tuple[IdPage, range]
"""A page, and the numbers of the ids that it may have."""

Tell: TypeAlias = Callable[[], None]
"""Passes the result of a read to the index; the worker calls it."""


class StoredIds:
    """Finds stored ids of one owned partition; used by its worker only."""

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        source: SegmentSource,
        pages: IdPageSource,
        pool: Pool,
        loading: Loading,
        gate: Gate,
        queries: StoredQueries,
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._pages = pages
        self._pool = pool
        self._loading = loading
        self._gate = gate
        self._queries = queries
        self._clock = context.clock
        self._log = context.log
        self._metrics = context.metrics
        self._topic = context.name
        self._partition = context.partition
        self._made_page_ids = context.limits.made_page_ids
        self._reading: dict[int, Future[Tell]] = {}
        self._made: list[tuple[range, list[IdPage]]] = []
        self._expired = BitMap64()
        self._stored_pages: set[int] = set()
        self._is_settling = False
        self._retry_s = 0.0
        self._looked_up: tuple[IdLookup, tuple[int, ...]] | None = None

    @property
    def is_reading(self) -> bool:
        """True while a read has to end before the next record can be taken in."""
        fails = self._clock.running_s() < self._retry_s
        is_reading = any(not reading.done() for reading in self._reading.values())
        return fails or is_reading or self._queries.is_counting

    @property
    def being_read(self) -> tuple[int, ...]:
        """Ids of the buckets whose segments or pages are being read; these buckets have to stay."""
        return (*self._reading, *self._queries.being_read)

    def are_known(self, deliver_id: bytes, following: Iterable[bytes]) -> bool:
        """Say whether a control about this id may be evaluated now; if not, the caller asks again.

        The control waits until the positions of the id in the buckets have been read, and until the receipt may be
        written. ``following`` are the ids of the next controls. Raise RefusedError when a segment is lost for good.
        """
        if self._gate.aside.stops_intake:
            return False
        self._take_in()
        names, id_hash = self._ledger.named.names, hash_of(deliver_id)
        if id_hash not in names.lookup or self._looked_up != (names.lookup, tuple(self._ledger.parts.buckets)):
            self._look_up(id_hash, following)
        # A load under way may have read its records just before they expired.
        self._is_settling = self._is_settling and self._loading.under_way
        return self._looked_up is not None and not self._is_settling

    def _look_up(self, id_hash: bytes, following: Iterable[bytes]) -> None:
        """Look up an id in the buckets; note the buckets if the places of its look-up are known in all of them."""
        names, watermark, parts = self._ledger.named.names, self._ledger.committed.watermark, self._ledger.parts
        # Segments that the watermark has passed may be trimmed at any moment, and none of their records is pending.
        buckets = [each for each in parts.buckets.values() if each.passed(watermark) < len(each.manifest.segments)]
        if id_hash not in names.lookup:
            names.look_up([id_hash, *map(hash_of, islice(following, LOOKED_UP_TOGETHER))])
            self._stored_pages = {page.record_offset for each in buckets for page in each.manifest.id_pages or ()}
            here = [each.manifest.offsets for each in buckets]
            self._made = [(of, pages) for of, pages in self._made if any(_overlap(of, offsets) for offsets in here)]
        unknown = [each for each in buckets if _may_have_any(each) and not names.knows(id_hash, each.manifest.offsets)]
        if self._clock.running_s() >= self._retry_s:
            for bucket in unknown:
                if bucket.manifest.bucket_id not in self._reading:
                    self._ask(bucket, names.lookup)
        self._looked_up = None if unknown else (names.lookup, tuple(parts.buckets))

    def held(self, deliver_id: bytes) -> Mapping[Position, int]:
        """Return the positions of the records of this id that only memory has, each with the spread in its due time.

        Such records are held for their targets, or were loaded before the delay topic let go of them.
        """
        return self._gate.places_of(deliver_id) | self._in_memory(deliver_id)

    def cancelled(self, deliver_id: bytes, held: Mapping[Position, int]) -> Collection[int]:
        """Return the offsets of schedules of this id that queries have cancelled, ``held`` ones among them."""
        return self._queries.cancelled(deliver_id, held)

    def answer(self, offset: int, where: CancelWhere) -> QueryEffect | None:
        """Return the schedules that a query cancels; None while they are counted, so ask again."""
        return self._queries.answer(offset, where)

    def _in_memory(self, deliver_id: bytes) -> dict[Position, int]:
        if not self._expired:
            return {}
        parts = self._ledger.parts
        there = [entry for index in parts.in_memory_indexes() for chunk in index.chunks() for entry in chunk]
        there += [entry for run in parts.waiting_runs() for entry in run]
        expired = [entry for entry in there if entry[1] in self._expired]
        records = records_of([payload for _, _, payload in expired])
        found = [
            each
            for (_, offset, _), record in zip(expired, records, strict=True)
            if record is not None
            for each in self._named(offset, record)
        ]
        return {place: shift_ms for each, place, shift_ms in found if each == deliver_id}

    def _ask(self, bucket: Bucket, lookup: IdLookup) -> None:
        manifest, first = bucket.manifest, bucket.passed(self._ledger.committed.watermark)
        sought, stored_pages = lookup.sought, self._stored_pages
        made = self._made_for(manifest.offsets, sought)
        if made is None and manifest.id_pages is None:
            self._reading[manifest.bucket_id] = self._pool.scan(lambda reader: self._read_all(manifest, first, reader))
            return

        def look_up(reader: Records) -> Tell:
            self._pages.forget_others(stored_pages)
            try:
                pages = self._stored(manifest, sought, reader) if made is None else made
                found = [each for page, numbers in pages for each in page.find(sought, numbers)]
            except FormatError:
                return self._read_all(manifest, first, reader)
            return partial(lookup.found, manifest.offsets, found)

        self._reading[manifest.bucket_id] = self._pool.look_up(look_up)

    def _made_for(self, offsets: range, sought: Sought) -> list[SearchedPage] | None:
        """Return the pages in memory of a bucket of these offsets; None where some of its ids are in none."""
        within = [(there, pages) for there, pages in self._made if _overlap(there, offsets)]
        known = BitMap64()
        for there, _ in within:
            known.add_range(there.start, there.stop)
        if known.range_cardinality(offsets.start, offsets.stop) < len(offsets):
            return None
        return [(page, sought.all) for _, pages in within for page in pages]

    def _stored(self, manifest: Manifest, sought: Sought, reader: Records) -> Iterable[SearchedPage]:
        """Return the stored pages of a bucket that may have some of the ids."""
        wanted = dict(sought.in_pages(manifest.id_pages or ()))
        return ((page, wanted[number]) for number, page in self._pages.pages(manifest, list(wanted), reader))

    def _read_all(self, manifest: Manifest, first: int, reader: Records) -> Tell:
        made: list[IdPage] = []
        found = self._read(manifest, first, reader)
        while lot := list(islice(found, self._made_page_ids)):
            places: AnyPlaces = {}
            for deliver_id, place, _ in lot:
                insert(places, hash_of(deliver_id), place)
            shifts_ms = {place.offset: shift_ms for _, place, shift_ms in lot if shift_ms}
            made.append(IdPage(join_rows([*rows_in_order(places, shifts_ms)])))
        needs_from = manifest.needs_from
        has_expired = needs_from is not None and reader.log_start(self._topic, self._partition) > needs_from

        def tell() -> None:
            if has_expired:
                self._expired.add_range(manifest.from_offset, manifest.to_offset)
                self._is_settling = True
            # A merge of buckets does not change the positions of their records.
            self._made.append((manifest.offsets, made))

        return tell

    def _read(self, manifest: Manifest, first: int, reader: Records) -> Iterator[Found]:
        """Yield each id that the bucket has from segment ``first`` on, with its position; an id may come twice."""
        left = range(first, len(manifest.segments))
        if manifest.needs_from is not None:
            try:
                yield from self._in_log(manifest, reader)
            except ClusterError as error:
                if error.kind is not ClusterTrouble.UNREADABLE:
                    raise
                # Segments hold no unreadable record, and have no pointer to one.
                for number in left:
                    for _, offset, (schedule, _, _) in self._source.load(manifest, number, reader, keep_nothing):
                        yield from _found(offset, schedule)
                return
            if reader.log_start(self._topic, self._partition) <= manifest.from_offset:
                return
        for at in range(0, len(left), READ_TOGETHER):
            yield from self._inline(manifest, left[at : at + READ_TOGETHER], reader)

    def _in_log(self, manifest: Manifest, reader: Records) -> Iterator[Found]:
        span = manifest.from_offset, manifest.to_offset
        for offset, record in reader.scan_left(self._topic, self._partition, *span):
            yield from self._named(offset, record)

    def _inline(self, manifest: Manifest, numbers: Sequence[int], reader: Records) -> Iterator[Found]:
        """Yield the ids of records that the segments hold; the records they point to have been read from the log."""
        read = self._source.read(manifest, numbers, reader)
        for number, segment in zip(numbers, read, strict=True):
            for _, offset, record in self._source.stored(manifest, number, segment, reader):
                if record is not None:
                    yield from self._named(offset, record)

    def _named(self, offset: int, record: Record) -> Iterator[Found]:
        # Most records have no id, and deciding a record takes several times as long as looking for the header.
        if self._source.names_id(offset, record):
            schedule = schedule_of(self._source.decide(offset, record))
            if schedule is not None:
                yield from _found(offset, schedule)

    def _take_in(self) -> None:
        for bucket_id, reading in list(self._reading.items()):
            if not reading.done():
                continue
            del self._reading[bucket_id]
            if reading.exception() is not None and bucket_id not in self._ledger.parts.buckets:
                # The bucket was merged meanwhile; the merged bucket is read instead.
                continue
            try:
                tell = reading.result()
            except ClusterError as error:
                self._metrics.load_failures.labels(self._topic).inc()
                self._log.warning("ids_not_read", bucket=bucket_id, error=str(error))
                self._retry_s = self._clock.running_s() + RETRY_AFTER_S
                forget_frames(error)
                continue
            tell()


def _found(offset: int, schedule: Schedule) -> Iterator[Found]:
    if schedule.deliver_id is not None:
        yield schedule.deliver_id, Position(schedule.due_ms, offset), schedule.shift_ms


def _overlap(one: range, other: range) -> bool:
    return one.start < other.stop and other.start < one.stop


def _may_have_any(bucket: Bucket) -> bool:
    pages = bucket.manifest.id_pages
    return pages is None or len(pages) > 0
