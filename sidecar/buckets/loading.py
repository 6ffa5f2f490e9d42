"""Fetching segments shortly before they are due, in the threads of :mod:`sidecar.buckets.pool`.

A release never waits for a fetch in steady state: a segment is read ``load_lead_ms`` before its first entry is due, and
the segments of a bucket come one after the other. Entries are handed over between two rounds of the worker. A load that
fails is tried again and counted; until it succeeds the watermark does not pass the entries that are missing.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from index.bucket import Bucket, Manifest
from index.errors import ClusterError, ClusterTrouble, RefusedError, changed_on_disk
from index.pending import Entry
from index.pending_set import PendingSet
from index.progress import Position
from sidecar import failpoints
from sidecar.buckets.segments import SegmentSource
from sidecar.context import PartitionContext
from sidecar.payload.memory import BudgetShare, LoadMemory
from sidecar.payload.packed_run import resident_of
from sidecar.payload.records import Payload, Scheduled, resident_bytes
from sidecar.ports import Budget, Pool

URGENT_MS = 1_000
"""So soon before its first due time it is loaded even where memory is used up: release must go on."""

RUN_ENTRIES = 10_000
"""Segments that follow each other are read together up to this many entries, since each seek costs some ms."""

RUNS_AHEAD = 2
"""Runs of one bucket asked for at once: while catching up, the next one is read as one is released."""

ENOUGH_ENTRIES = 150_000
"""With more than this in memory only the bucket that holds up the others is read on: the rest would only be memory."""

ROOM_FOR_AHEAD_BYTES = 64 * 1_048_576
"""With less memory left than this only the next run of each bucket is asked for."""


Run: TypeAlias = list[list[Entry[Scheduled]]]
"""The entries of segments that follow each other in a bucket."""


@dataclass(slots=True)
class _Load:
    numbers: range
    size_bytes: int
    memory: LoadMemory
    future: Future[Run] | None = None
    retry_s: float = 0.0

    def abandon(self) -> None:
        """Give its memory back, as soon as it has ended."""
        if self.future is not None:
            self.future.add_done_callback(lambda _: self.memory.close())


class Loading:
    """The loads of one partition; used by its worker only."""

    def __init__(
        self,
        context: PartitionContext,
        parts: PendingSet[Payload],
        source: SegmentSource,
        pool: Pool,
        budget: Budget,
        share: BudgetShare,
    ) -> None:
        """``share`` is what the partition has taken of ``budget``."""
        self._parts = parts
        self._source = source
        self._pool = pool
        self._budget = budget
        self._share = share
        self._metrics = context.metrics
        self._topic = context.name
        self._place = f"{context.name}/{context.partition}"
        self._clock = context.clock
        self._limits = context.limits
        self._loads: dict[int, deque[_Load]] = {}
        self._log = context.log

    @property
    def under_way(self) -> bool:
        """Whether something is being fetched."""
        return bool(self._loads)

    def turn(self, now_ms: int, watermark: Position) -> None:
        """Take in what has arrived, count its payload as used, and ask for what is due soon.

        RefusedError when a segment is lost for good, or is due and points into a damaged batch.
        """
        for bucket_id in list(self._loads):
            self._take_in(bucket_id, watermark, now_ms)
        room = self._budget.room_bytes > 0
        until_ms = now_ms + (self._limits.load_lead_ms if room else URGENT_MS)
        buckets = [bucket for bucket in self._parts.buckets.values() if bucket.barrier is not None]
        if buckets and self._parts.loaded > ENOUGH_ENTRIES:
            buckets = [min(buckets, key=_barrier)]
        for bucket in buckets:
            self._ask(bucket, until_ms)

    def close(self) -> None:
        """Give back the memory of what has not arrived."""
        for bucket_id in list(self._loads):
            self._abandon(bucket_id)

    def let_go(self) -> int:
        """Drop some of what was sealed and needs no place in memory any more; returns its bytes of payload."""
        let_go_bytes, until_s = 0, self._clock.running_s() + self._limits.drop_for_s
        for run in self._parts.dropping():
            let_go_bytes += resident_of([run])
            if self._clock.running_s() >= until_s:
                break
        return let_go_bytes

    def _ask(self, bucket: Bucket, until_ms: int) -> None:
        number, bucket_id = bucket.next_segment, bucket.manifest.bucket_id
        if number is None or self._parts.has_plenty(bucket):
            return
        loads = self._loads.setdefault(bucket_id, deque())
        if loads and loads[0].future is None and self._clock.running_s() >= loads[0].retry_s:
            self._load(bucket, loads[0])
        most = RUNS_AHEAD if self._budget.room_bytes > ROOM_FOR_AHEAD_BYTES else 1
        while len(loads) < most:
            first = loads[-1].numbers.stop if loads else number
            numbers = _run(bucket.manifest, first, until_ms, self._budget.room_bytes - self._asked_bytes())
            if not numbers:
                break
            size_bytes = sum([segment.size_bytes for segment in bucket.manifest.segments[numbers.start : numbers.stop]])
            loads.append(_Load(numbers, size_bytes, LoadMemory(self._budget, until_ms)))
            self._load(bucket, loads[-1])
        if not loads:
            del self._loads[bucket_id]

    def _asked_bytes(self) -> int:
        return sum([load.size_bytes for loads in self._loads.values() for load in loads])

    def _load(self, bucket: Bucket, load: _Load) -> None:
        manifest, numbers, memory = bucket.manifest, load.numbers, load.memory
        load.future = self._pool.load(lambda reader: self._source.load_run(manifest, numbers, reader, memory.keeps))

    def _abandon(self, bucket_id: int) -> None:
        for load in self._loads.pop(bucket_id):
            load.abandon()

    def _take_in(self, bucket_id: int, watermark: Position, now_ms: int) -> None:
        """Take in what has arrived of one bucket, in order."""
        loads = self._loads[bucket_id]
        if bucket_id not in self._parts.buckets:
            # Merged away meanwhile: the merged bucket has the same entries.
            self._abandon(bucket_id)
            return
        while loads and (future := loads[0].future) is not None and future.done():
            try:
                run = future.result()
            except ClusterError as error:
                self._failed(bucket_id, loads[0], error, now_ms)
                break
            taken_bytes = 0
            for number, entries in zip(loads[0].numbers, run, strict=True):
                dropped = self._parts.load(bucket_id, number, entries, watermark)
                failpoints.passing("load.taken")
                taken_bytes += resident_bytes(entries) - resident_bytes(dropped)
            counted_bytes = loads.popleft().memory.hand_over()
            self._share.adopt(counted_bytes)
            self._share.give_back(counted_bytes - taken_bytes)
        if not loads:
            del self._loads[bucket_id]

    def _failed(self, bucket_id: int, load: _Load, error: ClusterError, now_ms: int) -> None:
        self._metrics.load_failures.labels(self._topic).inc()
        self._log.warning("load_failed", bucket=bucket_id, segment=load.numbers.start, error=str(error))
        load.memory.close()
        load.future = None
        load.retry_s = self._clock.running_s() + self._limits.load_again_s
        first = self._parts.buckets[bucket_id].manifest.segments[load.numbers.start].first
        if error.kind is ClusterTrouble.UNREADABLE and first.due_ms <= now_ms:
            raise RefusedError(
                f"{changed_on_disk(self._place, str(error))}. Pending records of that batch are due."
                f" Without a sound copy: delay-router start-over {self._place} indexes the delay topic anew,"
                " rejects that batch as UNREADABLE, and releases again what was released already"
            )


def _run(manifest: Manifest, number: int, until_ms: int, room_bytes: int) -> range:
    """Segments from this one on that are read together: those due by then, not too many, and what there is room for.

    The first goes always: release must go on.
    """
    segments, end, entries, size_bytes = manifest.segments, number, 0, 0
    while end < len(segments) and segments[end].first.due_ms <= until_ms:
        entries += segments[end].entries
        size_bytes += segments[end].size_bytes
        if end > number and (entries > RUN_ENTRIES or size_bytes > room_bytes):
            break
        end += 1
    return range(number, end)


def _barrier(bucket: Bucket) -> Position:
    assert bucket.barrier is not None
    return bucket.barrier
