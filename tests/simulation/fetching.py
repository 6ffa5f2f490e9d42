"""Reads records by offset, and segments in a pool whose threads take their time."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from random import Random
from typing import Any, TypeVar

from index.errors import ClusterError, ClusterTrouble
from index.protocol.record import Record
from sidecar.engine.ports import ReadEach, Records
from sidecar.process.host.pool import MERGE_TURN_S, MERGES_AT_ONCE, SEAL_TURN_S, SEALS_AT_ONCE, FairTurns
from tests.simulation.checker import Violation
from tests.simulation.world import DELAY_TOPIC, DelayLog, Faults, Produced, Store

T = TypeVar("T")

UNREAD_PART = 8
"""A merge has about this many fetches and fails with the first of them that fails."""


def record_of(produced: Produced) -> Record:
    """Return a record as a client reads it; its value says which one it is."""
    return Record(produced.key, produced.value, produced.headers, produced.timestamp_ms)


class Reader:
    """Reads the modelled delay and snapshots topics: the port ``Records`` in memory.

    While a router owns the partition and nothing was damaged, every segment matches its manifest. So a repair of a
    segment is a violation then, even if it does no harm yet. A zombie may find that segments are gone.
    """

    def __init__(self, log: DelayLog, store: Store, is_owner: Callable[[], bool]) -> None:
        self._log = log
        self._store = store
        self._is_owner = is_owner

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        if topic != DELAY_TOPIC:
            return {offset: self._segment(offset) for offset in offsets}
        held = {each.offset: record_of(each) for each in self._log.records if each.offset >= self._log.start}
        return {offset: held.get(offset) for offset in offsets}

    def read_each(self, topic: str, partition: int, offsets: Sequence[int]) -> ReadEach:
        yield from self.read(topic, partition, offsets).items()

    def read_large(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        return self.read(topic, partition, offsets)

    def read_apart(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        return self.read(topic, partition, offsets)

    def scan(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        if self._is_owner() and not self._store.was_damaged:
            raise Violation(f"a segment of offsets {from_offset} to {to_offset} is not what its manifest says")
        if from_offset >= self._log.start:
            yield from self.scan_left(topic, partition, from_offset, to_offset)

    def scan_left(self, topic: str, partition: int, from_offset: int, to_offset: int) -> Iterator[tuple[int, Record]]:
        assert (topic, partition) == (DELAY_TOPIC, 0)
        for each in self._log.records:
            if max(from_offset, self._log.start) <= each.offset < to_offset:
                yield each.offset, record_of(each)

    def first_timestamp_ms(self, topic: str, partition: int, from_offset: int) -> int | None:
        first = next(self.scan(topic, partition, from_offset, 1 << 62), None)
        return None if first is None else first[1].timestamp_ms

    def log_start(self, topic: str, partition: int) -> int:
        assert (topic, partition) == (DELAY_TOPIC, 0)
        return self._log.start

    def _segment(self, offset: int) -> Record | None:
        if offset not in self._store.snapshots:
            return None
        return Record(*self._store.snapshots[offset], [], 0)


class PageReader(Reader):
    """Reads pages of ids, which must exist while a router owns the partition and nothing was damaged."""

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, Record | None]:
        read = super().read(topic, partition, offsets)
        is_told = topic == DELAY_TOPIC or not self._is_owner() or self._store.was_damaged
        if None in read.values() and not is_told:
            raise Violation(f"of the snapshots topic {sorted(offsets)} are read, and not all of them are there")
        return read


class Handed:
    """The port ``Handover`` in one thread."""

    is_closed = False

    def __init__(self) -> None:
        self._made: deque[Any] = deque()

    def put(self, made: Any) -> bool:
        self._made.append(made)
        return True

    def take(self) -> Sequence[Any]:
        return (self._made.popleft(),) if self._made else ()

    def close(self) -> None:
        self.is_closed = True


class Pool:
    """The port ``Pool`` in one thread: does the work some rounds later, or fails."""

    def __init__(self, reader: Reader, pages: PageReader, looker: Records, faults: Faults) -> None:
        self.seals = FairTurns(SEALS_AT_ONCE, SEAL_TURN_S)
        self.merges = FairTurns(MERGES_AT_ONCE, MERGE_TURN_S)
        self._offset_reader = reader
        self._page_reader = pages
        self._looker = looker
        self._faults = faults
        self._waiting: list[Callable[[], None]] = []
        # A random generator of its own, so that the rest of a run stays the same for any number of reads by a merge.
        self._luck_of_merges = Random()
        self._luck_of_merges.setstate(faults.rng.getstate())

    def load(self, work: Callable[[Records], T]) -> Future[T]:
        return self._ask(work)

    def look(self, work: Callable[[Records], T]) -> Future[T]:
        return self._ask(work, self._looker)

    def merge(self, work: Callable[[Records], None]) -> Future[None]:
        return self._ask(work)

    def scan(self, work: Callable[[Records], T]) -> Future[T]:
        return self._ask(work)

    def look_up(self, work: Callable[[Records], T]) -> Future[T]:
        return self._ask(work, self._page_reader)

    def fetch(self, work: Callable[[Records], T]) -> Future[T]:
        # A merge is done in one go, so the answer to its fetch arrives at once, or when the merge waits for it.
        is_unread = self._luck_of_merges.random() < self._faults.unread_chance / UNREAD_PART
        future: _WhenWaitedFor[T] = _WhenWaitedFor(lambda: self._do(work, self._offset_reader, future, is_unread))
        if self._luck_of_merges.random() < 0.5:
            future.arrive()
        return future

    def handover(self, _: int) -> "Handed":
        # A merge is done in one go when its turn comes, so there is room for all of it.
        return Handed()

    def encode(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        # Only sometimes: if it always took some rounds, runs would have too few buckets to show anything.
        if self._faults.rng.random() < self._faults.slow_chance / 8:
            self._waiting.append(lambda: future.set_result(work()))
        else:
            future.set_result(work())
        return future

    def turn(self) -> None:
        """Do some of the waiting work."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if self._faults.rng.random() < self._faults.slow_chance:
                self._waiting.append(each)
            else:
                each()

    def _ask(self, work: Callable[[Records], T], reader: Records | None = None) -> Future[T]:
        future: Future[T] = Future()

        def do() -> None:
            is_unread = self._faults.rng.random() < self._faults.unread_chance
            self._do(work, reader or self._offset_reader, future, is_unread)

        self._waiting.append(do)
        return future

    def _do(self, work: Callable[[Records], T], reader: Records, future: Future[T], is_unread: bool) -> None:
        if is_unread:
            future.set_exception(ClusterError(ClusterTrouble.UNANSWERED, "no answer"))
            return
        try:
            future.set_result(work(reader))
        except Exception as exception:  # noqa: BLE001 - as a pool does
            future.set_exception(exception)


class _WhenWaitedFor(Future[T]):
    def __init__(self, do: Callable[[], None]) -> None:
        super().__init__()
        self._todo = do

    def arrive(self) -> None:
        if not self.done():
            self._todo()

    def result(self, timeout: float | None = None) -> T:
        self.arrive()
        return super().result(timeout)
