"""Reads the stored parts of one partition for a page: state, segments, pages of ids, and the delay topic itself."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaException, TopicPartition

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import ClusterError, FormatError
from index.named.id_pages import IdPage, IdPageRef
from index.pending.progress import Position
from index.protocol.record import Record
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ports import Place, Stored
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.kafka.reading.scan import read_part
from sidecar.operations.finding.cache import FinderCaches, Incarnation
from snapshots.segments.id_pages import decode_page
from snapshots.segments.segment import StoredEntry, decode_segment

MOST_READ: Final = 50_000
"""Bound on the records that are read for one page; the segment in which the page ends is read to its end."""

READ_FOR_S: Final = 5.0

KEPT_FOR_S: Final = 120.0
"""Brokers close a connection that is unused for minutes, and the next page would have to notice that first."""


class Allowance:
    """How much a page may still read."""

    def __init__(self, records: int = MOST_READ) -> None:
        self._left = records
        self._until_s = time.monotonic() + READ_FOR_S

    def is_spent(self) -> bool:
        """Say whether the page has to end."""
        return self._left <= 0 or time.monotonic() > self._until_s

    def spend(self, records: int) -> None:
        """Count records that were read."""
        self._left -= records


class Readers:
    """The consumers that read one page; for one thread at a time."""

    def __init__(self, config: Config) -> None:
        self.records = OffsetReader(partial(clients.reader, config), partial(clients.bulk_reader, config))
        self._config = config
        self._state: Consumer | None = None

    def log_range(self, place: Place) -> tuple[int, int]:
        """Return the first offset of a partition, and the offset behind its last committed record.

        Raises KafkaException when the brokers do not answer.
        """
        start, settled = self._connected().get_watermark_offsets(TopicPartition(*place), REQUEST_TIMEOUT_S)
        return start, settled

    def state_since(self, place: Place, offset: int) -> tuple[list[Stored], int]:
        """Return the records of a state partition from an offset up to the first open transaction, and that end."""
        start, settled = self.log_range(place)
        return read_part(self._connected(), *place, max(start, offset), settled), settled

    def close(self) -> None:
        """Close the consumers."""
        self.records.close()
        if self._state is not None:
            self._state.close()

    def _connected(self) -> Consumer:
        if self._state is None:
            self._state = clients.state_reader(self._config)
        return self._state


class StoredPartition:
    """One partition of a delay topic as it is stored, read for one question."""

    def __init__(
        self, readers: Readers, topic: DelayTopicConfig, incarnation: Incarnation, partition: int, known: FinderCaches
    ) -> None:
        self.topic = topic
        self.incarnation = incarnation
        self.partition = partition
        self._readers = readers
        self._known = known
        self._log = topic.name, partition
        self._state = topic.state, partition
        self._snapshots = topic.snapshots, partition

    def state_since(self, offset: int) -> tuple[list[Stored], int]:
        """Return the records of the state from an offset up to the first open transaction, and that end."""
        return self._readers.state_since(self._state, offset)

    def segment(self, ref: SegmentRef) -> Sequence[StoredEntry] | None:
        """Return the entries of a segment by (due, offset); None when the segment is gone."""
        key = self.incarnation, self.partition, ref
        entries = self._known.segments.get(key)
        if entries is None:
            record = self._readers.records.read_large(*self._snapshots, [ref.record_offset])[ref.record_offset]
            if record is None or record.value is None:
                return None
            entries = decode_segment(record.value)
            self._known.segments.keep(key, entries, len(entries))
        return entries

    def in_segment(self, bucket: Manifest, place: Position) -> Record | None:
        """Return a record that the delay topic has no longer; None where no segment has it either."""
        for ref in bucket.segments:
            if ref.placement is Placement.INLINE and ref.first <= place <= ref.last:
                entries = self.segment(ref) or ()
                return next((record for due_ms, offset, record in entries if (due_ms, offset) == place), None)
        return None

    def id_page(self, ref: IdPageRef) -> IdPage | None:
        """Return a page of ids; None when it is gone, or another record is at its place."""
        key = self.incarnation, self.partition, ref
        page = self._known.pages.get(key)
        if page is None:
            record = self._readers.records.read_apart(*self._snapshots, [ref.record_offset])[ref.record_offset]
            try:
                page = IdPage(decode_page(ref, None if record is None else record.value))
            except FormatError:
                # The router that serves the partition tells of it.
                return None
            self._known.pages.keep(key, page, page.size_bytes)
        return page

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return records of the delay partition at ascending offsets; None for a record that is gone."""
        return self._readers.records.read(*self._log, offsets)

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        """Yield every committed record of the delay partition in [from, to) with its offset.

        Without ``to_offset`` the range ends where the partition does.
        """
        start, end = self.log_range()
        to_offset = end if to_offset is None else min(to_offset, end)
        return self._readers.records.scan(*self._log, max(start, from_offset), to_offset)

    def log_start(self) -> int:
        """Return the first offset that the delay partition still has."""
        return self.log_range()[0]

    def log_range(self) -> tuple[int, int]:
        """Return the first offset that the delay partition still has, and the one behind its last committed record."""
        return self._readers.log_range(self._log)


R = TypeVar("R", bound=Readers)
T = TypeVar("T")


class _KeptReaders(NamedTuple, Generic[R]):
    incarnation: Incarnation
    readers: R
    used_s: float


class ReaderPool(Generic[R]):
    """Keeps at most ``most`` readers from one page to the next, and lends each to one page at a time.

    Making a consumer, asking who leads each partition and connecting take longer than reading all that finds an id.
    Kept readers fetch nothing. The next call closes readers of a topic that was deleted or created again, and readers
    that were unused for ``KEPT_FOR_S``. ``connect`` makes readers, ``now_s`` is a clock that only goes forward. Any
    thread may call.
    """

    def __init__(self, connect: Callable[[], R], most: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._connect = connect
        self._most = most
        self._now_s = now_s
        self._room = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._kept: list[_KeptReaders[R]] = []
        self._lent = 0
        self._is_closed = False

    def read(self, incarnation: Incarnation, work: Callable[[R], T]) -> T:
        """Return the result of ``work`` with readers that have read this topic and no other, or with new readers.

        Where the cluster fails kept readers, do the work once more with new ones, which ask again who leads each
        partition.
        """
        with self._room:
            found = self._take(incarnation)
            try:
                if found is not None:
                    with suppress(KafkaException, ClusterError):
                        return self._used(incarnation, found, work)
                return self._used(incarnation, self._connect(), work)
            finally:
                with self._lock:
                    self._lent -= 1

    def close(self) -> None:
        """Close all kept readers, and keep none from now on."""
        with self._lock:
            self._is_closed = True
            kept, self._kept = self._kept, []
        _close(kept)

    def _take(self, incarnation: Incarnation) -> R | None:
        """Return kept readers of this topic, if there are any, and make room for them or for new ones."""
        with self._lock:
            self._lent += 1
            good = [each for each in self._kept if self._is_good(each, incarnation)]
            found = next((each for each in good if each.incarnation == incarnation), None)
            others = [each for each in good if each is not found]
            left = others[max(0, len(others) + self._lent - self._most) :]
            gone = [each for each in self._kept if each is not found and each not in left]
            self._kept = left
        _close(gone)
        return None if found is None else found.readers

    def _is_good(self, kept: _KeptReaders[R], incarnation: Incarnation) -> bool:
        is_other = kept.incarnation.topic == incarnation.topic and kept.incarnation != incarnation
        return not is_other and self._now_s() - kept.used_s <= KEPT_FOR_S

    def _used(self, incarnation: Incarnation, readers: R, work: Callable[[R], T]) -> T:
        """Do the work and keep the readers; close them when the work fails, since a read may be half done."""
        try:
            done = work(readers)
        except BaseException:
            readers.close()
            raise
        kept = _KeptReaders(incarnation, readers, self._now_s())
        with self._lock:
            if not self._is_closed:
                self._kept.append(kept)
                return done
        _close([kept])
        return done


def _close(kept: Iterable[_KeptReaders[R]]) -> None:
    for each in kept:
        each.readers.close()
