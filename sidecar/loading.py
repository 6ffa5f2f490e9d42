"""Fetching segments shortly before they are due, in threads that all partitions of a process share.

A release never waits for a fetch in steady state: a segment is asked for ``LEAD_MS`` before its first entry is due, and
the segments of a bucket come one after the other. What is fetched is handed over between two rounds of the worker. A
load that fails is tried again and counted; until it succeeds the watermark does not pass what is missing.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from confluent_kafka import Consumer, KafkaException

from index.bucket import Bucket
from index.pending import Entry
from index.pending_set import PendingSet
from index.progress import Position
from sidecar import failpoints
from sidecar.budget import PayloadBudget
from sidecar.kafka_errors import error_of
from sidecar.metrics import Metrics
from sidecar.reader import OffsetReader
from sidecar.records import Scheduled, resident_bytes
from sidecar.segments import SegmentSource

T = TypeVar("T")

LEAD_MS = 10_000
"""How long before its first due time a segment is asked for."""

URGENT_MS = 1_000
"""So soon before its first due time it is loaded even where memory is used up: release must go on."""

AHEAD = 4
"""Segments of one bucket asked for at once: while catching up, the next ones are read as one is released."""

ROOM_FOR_AHEAD_BYTES = 64 * 1_048_576
"""With less memory left than this only the next segment of each bucket is asked for."""

RETRY_AFTER_S = 0.5
LOADERS = 2
MERGERS = 1


class LoaderPool:
    """Threads that read segments, each with a reader of its own."""

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._own = threading.local()
        self._under_way: set[Future[Any]] = set()
        self._loaders = ThreadPoolExecutor(LOADERS, "loader")
        self._mergers = ThreadPoolExecutor(MERGERS, "merger")

    def load(self, work: Callable[[OffsetReader], list[Entry[Scheduled]]]) -> Future[list[Entry[Scheduled]]]:
        """Have a segment read."""
        return self.look(work)

    def look(self, work: Callable[[OffsetReader], T]) -> Future[T]:
        """Have a record or two read."""
        return self._submit(self._loaders, work)

    def merge(self, work: Callable[[OffsetReader], None]) -> Future[None]:
        """Have a merge prepared; apart from loading, so that a long merge never delays what is due."""
        return self._submit(self._mergers, work)

    @property
    def is_idle(self) -> bool:
        """Whether none of its threads is at work, so that the interpreter can exit at once."""
        return not self._under_way

    def stop(self) -> None:
        """Take no more work; what is under way is left to end by itself."""
        self._loaders.shutdown(wait=False, cancel_futures=True)
        self._mergers.shutdown(wait=False, cancel_futures=True)

    def _submit(self, threads: ThreadPoolExecutor, work: Callable[[OffsetReader], T]) -> Future[T]:
        future = threads.submit(lambda: work(self._reader()))
        self._under_way.add(future)
        future.add_done_callback(self._under_way.discard)
        return future

    def _reader(self) -> OffsetReader:
        if not hasattr(self._own, "reader"):
            self._own.reader = OffsetReader(self._connect)
        reader: OffsetReader = self._own.reader
        return reader


@dataclass(slots=True)
class _Load:
    number: int
    future: Future[list[Entry[Scheduled]]] | None
    retry_s: float = 0.0


class Loading:
    """The loads of one partition; used by its worker only."""

    def __init__(
        self,
        parts: PendingSet[Scheduled],
        source: SegmentSource,
        pool: LoaderPool,
        budget: PayloadBudget,
        metrics: Metrics,
        topic: str,
    ) -> None:
        self._parts = parts
        self._source = source
        self._pool = pool
        self._budget = budget
        self._metrics = metrics
        self._topic = topic
        self._loads: dict[int, deque[_Load]] = {}
        self._log = structlog.get_logger().bind(topic=topic)

    @property
    def under_way(self) -> bool:
        """Whether something is being fetched."""
        return bool(self._loads)

    def turn(self, now_ms: int, watermark: Position) -> int:
        """Take in what has arrived and ask for what is due soon; returns the bytes of payload to count as used.

        RefusedError when a segment is lost for good.
        """
        taken_bytes = sum([self._take_in(bucket_id, watermark) for bucket_id in list(self._loads)])
        room = self._budget.room_bytes > 0
        until_ms = now_ms + (LEAD_MS if room else URGENT_MS)
        for bucket in list(self._parts.buckets.values()):
            self._ask(bucket, until_ms)
        return taken_bytes

    def _ask(self, bucket: Bucket, until_ms: int) -> None:
        number, bucket_id = bucket.next_segment, bucket.manifest.bucket_id
        if number is None or self._parts.has_plenty(bucket):
            return
        loads = self._loads.setdefault(bucket_id, deque())
        if loads and loads[0].future is None and time.monotonic() >= loads[0].retry_s:
            loads[0].future = self._load(bucket, number)
        segments = bucket.manifest.segments
        most = AHEAD if self._budget.room_bytes > ROOM_FOR_AHEAD_BYTES else 1
        for ahead in range(number + len(loads), min(number + most, len(segments))):
            if segments[ahead].first.due_ms > until_ms:
                break
            loads.append(_Load(ahead, self._load(bucket, ahead)))
        if not loads:
            del self._loads[bucket_id]

    def _load(self, bucket: Bucket, number: int) -> Future[list[Entry[Scheduled]]]:
        manifest = bucket.manifest
        return self._pool.load(lambda reader: self._source.load(manifest, number, reader))

    def _take_in(self, bucket_id: int, watermark: Position) -> int:
        """Take in what has arrived of one bucket, in order; returns its bytes of payload."""
        loads = self._loads[bucket_id]
        if bucket_id not in self._parts.buckets:
            # Merged away meanwhile: the merged bucket has the same entries.
            del self._loads[bucket_id]
            return 0
        taken_bytes = 0
        while loads and (future := loads[0].future) is not None and future.done():
            try:
                entries = future.result()
            except KafkaException as exception:
                self._failed(bucket_id, loads[0], exception)
                break
            number = loads.popleft().number
            dropped = self._parts.load(bucket_id, number, entries, watermark)
            failpoints.passing("load.taken")
            taken_bytes += resident_bytes(entries) - resident_bytes(dropped)
        if not loads:
            del self._loads[bucket_id]
        return taken_bytes

    def _failed(self, bucket_id: int, load: _Load, exception: KafkaException) -> None:
        self._metrics.load_failures.labels(self._topic).inc()
        self._log.warning("load_failed", bucket=bucket_id, segment=load.number, error=error_of(exception).str())
        load.future = None
        load.retry_s = time.monotonic() + RETRY_AFTER_S
