"""Shares threads and turns among all partitions of a process: the threads load, merge and encode beside the releases.

A hundred partitions that seal at once, as when memory is full, would each check a few hundred times a second for
encoded segments. They would leave hardly any time with the lock of the interpreter to the one thread that encodes: no
partition finished for half a minute, and each held a copy of its records meanwhile. A few partitions at a time seal as
fast as the machine allows.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from typing import Any, Generic, TypeVar

from confluent_kafka import Consumer

from sidecar.engine.ports import Records
from sidecar.kafka.client.errors import cluster_errors
from sidecar.kafka.reading.offset_reader import LogEnd, OffsetReader, unknown_end

T = TypeVar("T")
LOADERS = 2
MERGERS = 1
FETCHERS = 1
"""One thread alone, because the cache of pages of ids belongs to the thread that looks for ids."""

ENCODERS = 1
ASKERS = 1

ROOM_WAIT_S = 0.2

SEALS_AT_ONCE = 4
"""Partitions that seal at once: while one of them waits for the brokers, the others have segments to encode."""

SEAL_TURN_S = 5.0
"""Length of a turn, several times the duration of sealing a bucket: a partition whose brokers do not answer must not
keep other partitions from sealing."""

MERGES_AT_ONCE = 2
MERGE_TURN_S = 60.0


class FairTurns:
    """Gives turns to the first few partitions in line; used from any thread.

    A partition that has had its turn for ``longest_s`` keeps it, and another partition gets a turn beside it.
    """

    def __init__(self, at_once: int, longest_s: float) -> None:
        self._at_once = at_once
        self._longest_s = longest_s
        self._began_s: dict[object, float | None] = {}
        self._lock = threading.Lock()

    def has_come(self, who: object, now_s: float) -> bool:
        """Say whether a partition has its turn, which it keeps until it leaves; its first call puts it in line.
        O(line).
        """
        with self._lock:
            if self._began_s.setdefault(who, None) is None and self._in_front(who, now_s) < self._at_once:
                self._began_s[who] = now_s
            return self._began_s[who] is not None

    def leave(self, who: object) -> None:
        """Give the turn, or the place in line, to the next partition."""
        with self._lock:
            self._began_s.pop(who, None)

    def _in_front(self, who: object, now_s: float) -> int:
        in_front = takewhile(lambda each: each[0] != who, self._began_s.items())
        return sum(began_s is None or now_s < began_s + self._longest_s for _, began_s in in_front)


class QueuedHandover(Generic[T]):
    """A handover by a queue with room for ``most`` values; 0 means no bound."""

    def __init__(self, most: int) -> None:
        self._queue: queue.Queue[T] = queue.Queue(most)
        self._closed = threading.Event()

    @property
    def is_closed(self) -> bool:
        """True once the queue takes no more values."""
        return self._closed.is_set()

    def put(self, made: T) -> bool:
        """Hand over a value and wait for room; return False when the queue is closed before it has room."""
        while not self._closed.is_set():
            try:
                self._queue.put(made, timeout=ROOM_WAIT_S)
            except queue.Full:
                continue
            return True
        return False

    def take(self) -> Sequence[T]:
        """Take the next value; return an empty sequence when none is ready."""
        try:
            return (self._queue.get_nowait(),)
        except queue.Empty:
            return ()

    def close(self) -> None:
        """Close the queue, so that the thread that makes the values ends."""
        self._closed.set()


class LoaderPool:
    """Threads that read segments, each with its own reader, and the turns to seal and to merge.

    An error of the Kafka client in a thread becomes a ClusterError in the future.
    """

    def __init__(
        self,
        connect: Callable[[], Consumer],
        connect_bulk: Callable[[], Consumer] | None = None,
        log_end: LogEnd = unknown_end,
    ) -> None:
        """Start no thread yet; see :class:`OffsetReader` for the arguments."""
        self.seals = FairTurns(SEALS_AT_ONCE, SEAL_TURN_S)
        self.merges = FairTurns(MERGES_AT_ONCE, MERGE_TURN_S)
        self._connect = connect
        self._connect_bulk = connect_bulk
        self._log_end = log_end
        self._own = threading.local()
        self._merging: set[Future[None]] = set()
        self._loaders = ThreadPoolExecutor(LOADERS, "loader")
        self._mergers = ThreadPoolExecutor(MERGERS, "merger")
        self._fetchers = ThreadPoolExecutor(FETCHERS, "fetcher")
        self._encoders = ThreadPoolExecutor(ENCODERS, "encoder")
        self._askers = ThreadPoolExecutor(ASKERS, "asker")

    def load(self, work: Callable[[Records], T]) -> Future[T]:
        """Read segments in a loader thread."""
        return self.look(work)

    def look(self, work: Callable[[Records], T]) -> Future[T]:
        """Read a record or two in a loader thread."""
        return self._submit(self._loaders, work)

    def merge(self, work: Callable[[Records], None]) -> Future[None]:
        """Prepare a merge in a thread apart from loading, so that a long merge never delays records that are due."""
        future = self._submit(self._mergers, work)
        self._merging.add(future)
        future.add_done_callback(self._merging.discard)
        return future

    def scan(self, work: Callable[[Records], T]) -> Future[T]:
        """Read whole buckets in the thread of the merges, so that records that are due soon are loaded meanwhile."""
        return self._submit(self._mergers, work)

    def fetch(self, work: Callable[[Records], T]) -> Future[T]:
        """Read the segments that a merge needs next, in a thread beside the merge, which continues meanwhile."""
        return self._submit(self._fetchers, work)

    def look_up(self, work: Callable[[Records], T]) -> Future[T]:
        """Look for ids in a thread apart from the loads for release and from the merges, which may take minutes."""
        return self._submit(self._fetchers, work)

    def handover(self, most: int) -> QueuedHandover[Any]:
        """Make a handover with room for ``most`` values; 0 means no bound."""
        return QueuedHandover(most)

    def encode(self, work: Callable[[], T]) -> Future[T]:
        """Encode a segment in a thread apart from merging, which may take long while memory has to be freed."""
        return self._submit(self._encoders, lambda _: work())

    def ask(self, work: Callable[[], T]) -> Future[T]:
        """Ask the cluster in a thread of its own, since brokers that are away answer late."""
        return self._submit(self._askers, lambda _: work())

    @property
    def is_merging(self) -> bool:
        """True while a merge is being prepared or waits for its thread."""
        return bool(self._merging)

    def stop(self) -> None:
        """Take no more work; work under way ends by itself."""
        self._loaders.shutdown(wait=False, cancel_futures=True)
        self._mergers.shutdown(wait=False, cancel_futures=True)
        self._fetchers.shutdown(wait=False, cancel_futures=True)
        self._encoders.shutdown(wait=False, cancel_futures=True)
        self._askers.shutdown(wait=False, cancel_futures=True)

    def _submit(self, threads: ThreadPoolExecutor, work: Callable[[Records], T]) -> Future[T]:
        def run() -> T:
            with cluster_errors():
                return work(self._reader())

        return threads.submit(run)

    def _reader(self) -> OffsetReader:
        if not hasattr(self._own, "reader"):
            self._own.reader = OffsetReader(self._connect, self._connect_bulk, self._log_end)
        reader: OffsetReader = self._own.reader
        return reader
