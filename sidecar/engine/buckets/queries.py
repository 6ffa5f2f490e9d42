"""Answers the questions that a query raises when its control is read (:mod:`index.named.queries`).

* How many schedules does it cancel? Entries are decided one by one, in memory and in segments, up to ``count_budget``
  of them. If there are more, a sample is decided, and the number is an estimate. A thread counts; intake waits
  meanwhile, and releases go on. A record that leaves meanwhile is not counted.
* Which records in transit does it cancel? They lie behind its control, so the mask takes them. They are read at once:
  there are few of them, unless series are very many.
* Has a query cancelled a schedule that another control finds by its id? The index knows due time and id of that
  schedule. If target or headers decide, its record is read.

Sealing and merging change no offsets, so the answer of the thread holds for the buckets that replace its sources.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from index.buckets.bucket import Manifest
from index.errors import ClusterError, RefusedError, forget_frames
from index.named.names import hash_of
from index.named.queries import Query, cancelling
from index.named.receipts import Matched
from index.pending.pending import Entry
from index.pending.progress import Position
from index.pending.run import Run
from index.pending.unsealed import Unsealed
from index.protocol.record import Record
from index.protocol.schedule import Schedule, schedule_of
from index.protocol.where import CancelWhere
from index.rules.unreadable import as_accepted
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packing import whole
from sidecar.engine.payload.records import Payload, Scheduled
from sidecar.engine.ports import Pool, Records
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.moving import RecordsOf

SAMPLED_TOGETHER = 100
"""Entries of a run of columns that are sampled together, because a slice of it takes as long as some entries."""

DECIDED_TOGETHER = 2_000
TRIES = 3
"""How often a count begins before it is given up: a merge may have replaced the segments that it was reading."""

LARGE_BYTES = 65_536
"""Bytes of a record that is not kept while a segment is counted."""


class QueryEffect(NamedTuple):
    """The schedules that a query cancels.

    ``behind`` are the places of the ones in transit. ``left`` is about how many of the others stay where they are.
    """

    behind: Sequence[Position]
    matched: Matched
    left: int


@dataclass(slots=True)
class _Count:
    """A count under way: every ``step``-th of about ``total`` entries is decided."""

    query: Query
    step: int
    total: int
    buckets: tuple[int, ...]
    future: Future["_Looked"]
    tries: int


class _Looked(NamedTuple):
    found: list[Position]
    looked: int


class StoredQueries:
    """Belongs to one owned partition; used by its worker only.

    ``read`` reads the records of pending schedules by their places.
    """

    def __init__(
        self,
        context: PartitionContext,
        ledger: PartitionLedger,
        source: SegmentSource,
        pool: Pool,
        gate: Gate,
        read: RecordsOf,
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._pool = pool
        self._gate = gate
        self._read = read
        self._budget = context.limits.count_budget
        self._log = context.log
        self._metrics = context.metrics
        self._topic = context.name
        self._count: _Count | None = None

    @property
    def is_counting(self) -> bool:
        """True while a count has to end before the next record can be taken in."""
        return self._count is not None and not self._count.future.done()

    @property
    def being_read(self) -> tuple[int, ...]:
        """Ids of the buckets whose segments are being read; these buckets have to stay."""
        return self._count.buckets if self._count is not None and self.is_counting else ()

    def answer(self, offset: int, where: CancelWhere) -> QueryEffect | None:
        """Return the schedules that a query cancels; None while they are counted, or while its receipt has to wait."""
        if self._gate.aside.stops_intake:
            return None
        query = Query(offset, where, 0)
        if self._count is None or self._count.query != query:
            self._count = self._begin(query, tries=1)
        if not self._count.future.done():
            return None
        count, self._count = self._count, None
        try:
            looked: _Looked | None = count.future.result()
        except (ClusterError, RefusedError) as error:
            self._metrics.load_failures.labels(self._topic).inc()
            self._log.warning("query_not_counted", offset=offset, tries=count.tries, error=str(error))
            forget_frames(error)
            if count.tries < TRIES:
                self._count = self._begin(query, count.tries + 1)
                return None
            looked = None
        return self._answer(count, looked)

    def cancelled(self, deliver_id: bytes, held: Mapping[Position, int]) -> Collection[int]:
        """Return the offsets of pending schedules of an id that queries have cancelled.

        ``held`` are the places that the index does not know, with their shifts.
        """
        named, queries = self._ledger.named, self._ledger.named.queries.in_force
        known = [place for place in named.names.find(hash_of(deliver_id)) if self._ledger.is_pending(place)]
        asked_ms = named.names.asked_ms(known) | {each.offset: each.due_ms - shift for each, shift in held.items()}
        gone, open_places = set[int](), list[Position]()
        for place in {*known, *held}:
            due_ms = asked_ms.get(place.offset, place.due_ms)
            possible = [
                query.where
                for query in queries
                if place.offset < query.offset and not query.where.excludes(due_ms, deliver_id)
            ]
            if any(where.is_decided_by(due_ms) for where in possible):
                gone.add(place.offset)
            elif possible and named.is_live(place.offset):
                open_places.append(place)
        for offset, schedule, record in self._schedules(open_places):
            if cancelling(queries, offset, schedule, record) is not None:
                gone.add(offset)
        return gone

    def _schedules(self, places: Iterable[Position]) -> Iterator[tuple[int, Schedule, Record]]:
        """Read records by their places, and yield the ones that are there and become schedules."""
        wanted = sorted(places, key=lambda place: place.offset)
        records = self._read(wanted) if wanted else {}
        for place in wanted:
            record = records.get(place.offset)
            schedule = None if record is None else schedule_of(self._source.decide(place.offset, record))
            if record is not None and schedule is not None:
                yield place.offset, schedule, as_accepted(record)

    def _answer(self, count: _Count, looked: _Looked | None) -> QueryEffect:
        query = count.query
        behind = self._behind(query)
        if looked is None:
            return QueryEffect(behind, Matched(), 0)
        live = self._live(looked.found)
        held = sum(
            query.cancels(offset, schedule, record)
            for lane in self._gate.waiting()
            for _, offset, (schedule, _, record) in lane
        )
        if count.step == 1:
            return QueryEffect(behind, Matched(len(live) + held + len(behind)), len(live))
        left = len(live) * count.total // max(looked.looked, 1)
        return QueryEffect(behind, Matched(None, left + held + len(behind)), left)

    def _live(self, places: Iterable[Position]) -> set[Position]:
        """Return the places whose schedules are pending and were not cancelled by an id."""
        ledger = self._ledger
        return {place for place in places if ledger.is_pending(place) and ledger.named.is_live(place.offset)}

    def _behind(self, query: Query) -> list[Position]:
        named = self._ledger.named
        places = {place.offset: place for place in named.transit.behind(query.offset) if named.is_live(place.offset)}
        return [
            places[offset]
            for offset, schedule, record in self._schedules(places.values())
            if schedule.targets and query.where.matches(schedule, record)
        ]

    def _begin(self, query: Query, tries: int) -> _Count:
        parts, watermark = self._ledger.parts, self._ledger.committed.watermark
        unsealed = [parts.mutable] if parts.frozen is None else [parts.frozen, parts.mutable]
        stored = [
            (bucket.manifest, number)
            for bucket in parts.buckets.values()
            for number in range(bucket.passed(watermark), len(bucket.manifest.segments))
        ]
        total = sum(map(len, unsealed)) + sum(manifest.segments[number].entries for manifest, number in stored)
        step = max(1, -(-total // self._budget))
        entries = [entry for part in unsealed for entry in _sample(part, step)]
        counter = _Counter(query, self._ledger.named.queries.in_force, self._source)
        future = self._pool.scan(lambda reader: counter.look(entries, stored[::step], reader))
        buckets = tuple(parts.buckets)
        return _Count(query, step, total, buckets, future, tries)


class _Counter:
    """Decides entries in a thread of the pool; ``earlier`` queries have cancelled their schedules already."""

    def __init__(self, query: Query, earlier: Sequence[Query], source: SegmentSource) -> None:
        self._query = query
        self._earlier = earlier
        self._source = source

    def look(
        self, entries: Sequence[Entry[Payload]], segments: Sequence[tuple[Manifest, int]], reader: Records
    ) -> _Looked:
        """Return the places that match, of these entries and of the entries in these segments."""
        found: list[Position] = []
        looked = len(entries)
        for start in range(0, len(entries), DECIDED_TOGETHER):
            some = whole([*entries[start : start + DECIDED_TOGETHER]], self._source.decide)
            found += self._matching(some, reader)
        for manifest, number in segments:
            stored = self._source.load(manifest, number, reader, self._keeps)
            looked += len(stored)
            found += self._matching(stored, reader)
        return _Looked(found, looked)

    def _keeps(self, _due_ms: int, size_bytes: int) -> bool:
        return size_bytes <= LARGE_BYTES

    def _matching(self, entries: Sequence[Entry[Scheduled]], reader: Records) -> Iterator[Position]:
        absent = [
            offset
            for _, offset, (schedule, _, record) in entries
            if record is None and schedule.targets and self._needs_record(offset, schedule)
        ]
        read: dict[int, Record | None] = {}
        if absent:
            with closing(self._source.records(sorted(absent), reader)) as records:
                read = dict(records)
        for due_ms, offset, (schedule, _, inline) in entries:
            record = inline or read.get(offset)
            matches = self._query.cancels(offset, schedule, record)
            if matches and cancelling(self._earlier, offset, schedule, record) is None:
                yield Position(due_ms, offset)

    def _needs_record(self, offset: int, schedule: Schedule) -> bool:
        """Return whether only the record tells if the query cancels a schedule, or if an earlier one has."""
        where = self._query.where
        if where.needs_record(schedule):
            return True
        is_open = any(offset < each.offset and each.where.needs_record(schedule) for each in self._earlier)
        return is_open and where.matches(schedule, None)


def _sample(part: Unsealed[Payload], step: int) -> Iterator[Entry[Payload]]:
    """Yield every ``step``-th entry of a part, or about so many."""
    index, seen = part.soon, 0
    for chunk, size in index.sizes(0, len(index)):
        yield from index.some(chunk, 0, size)[-seen % step :: step]
        seen += size
    yield from chain.from_iterable(_sample_of_run(run, step) for run in part.waiting.runs())


def _sample_of_run(run: Run[Payload], step: int) -> Iterator[Entry[Payload]]:
    if step == 1:
        yield from run
        return
    for start in range(0, len(run), SAMPLED_TOGETHER * step):
        yield from run.slice(start, min(start + SAMPLED_TOGETHER, len(run)))
