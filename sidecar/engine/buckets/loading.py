"""Loads segments shortly before they are due, in the threads of :mod:`sidecar.process.host.pool`.

A release never waits for a load in steady state: a segment is read ``load_lead_ms`` before its first entry is due, and
the segments of a bucket are read one after the other. Entries are handed over between two rounds of the worker. A load
that fails is counted and tried again; until it succeeds the watermark does not pass the missing entries.
"""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from index.buckets.bucket import Bucket, Manifest
from index.errors import ClusterError, ClusterTrouble, RefusedError, changed_on_disk, forget_frames
from index.partition.pending_set import PendingSet
from index.pending.pending import Entry
from index.pending.progress import Position
from sidecar import failpoints
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.memory import BudgetShare, LoadMemory
from sidecar.engine.payload.packed_run import resident_of
from sidecar.engine.payload.records import Payload, Scheduled, resident_bytes
from sidecar.engine.ports import Budget, Pool

URGENT_MS = 1_000
"""Time before its first due time at which a segment is loaded even where memory is used up: release must continue."""

RUN_ENTRIES = 10_000
"""Most entries of consecutive segments that are read together, since each seek costs some ms."""

RUNS_AHEAD = 2
"""Runs of one bucket requested at once: while catching up, the next run is read as one is released."""

ENOUGH_ENTRIES = 150_000
"""With more loaded entries than this only the bucket that holds up the others is read on, since more entries would only
take memory."""

ROOM_FOR_AHEAD_BYTES = 64 * 1_048_576
"""With less memory left than this only the next run of each bucket is requested."""


Run: TypeAlias = list[list[Entry[Scheduled]]]
"""The entries of consecutive segments of a bucket."""


@dataclass(slots=True)
class _Load:
    numbers: range
    size_bytes: int
    memory: LoadMemory
    future: Future[Run] | None = None
    retry_s: float = 0.0

    def abandon(self) -> None:
        """Give the memory back as soon as the load has ended."""
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
        """Take the budget; ``share`` is the part of ``budget`` that the partition has taken."""
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
        """True while a load is under way."""
        return bool(self._loads)

    def turn(self, now_ms: int, watermark: Position) -> None:
        """Take in the loads that have arrived, count their payload as used, and request the segments that are due soon.

        Raise RefusedError when a segment is lost for good, or is due and points into a damaged batch.
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
        """Give back the memory of the loads that have not arrived."""
        for bucket_id in list(self._loads):
            self._abandon(bucket_id)

    def let_go(self) -> int:
        """Drop some of the sealed entries that need no place in memory any more; return the bytes of their payload."""
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
        """Take in the loads of one bucket that have arrived, in order."""
        loads = self._loads[bucket_id]
        if bucket_id not in self._parts.buckets:
            # The bucket was merged meanwhile, and the merged bucket has the same entries.
            self._abandon(bucket_id)
            return
        while loads and (future := loads[0].future) is not None and future.done():
            try:
                run = future.result()
            except ClusterError as error:
                self._failed(bucket_id, loads[0], error, now_ms)
                forget_frames(error)
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
                " rejects that batch as UNREADABLE, and releases released records again"
            )


def _run(manifest: Manifest, number: int, until_ms: int, room_bytes: int) -> range:
    """Return the segments to read together from ``number`` on: due by ``until_ms``, not too many, and within the room.

    The range always includes a due first segment, since release must continue.
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
