"""What is stored of one partition, read from Kafka."""

from collections.abc import Iterator, Sequence
from typing import Final

from index.bucket import SegmentRef
from index.id_pages import IdPage, IdPageRef
from index.record import Record
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.finding.kept_readers import About, Readers
from sidecar.finding.known_pages import KnownPages
from sidecar.finding.remembered import Remembered
from sidecar.ports import Stored
from snapshots.segment import StoredEntry, decode_segment

MOST_ENTRIES: Final = 20_000
"""Of segments that were read lately: a page of 500 ends within one, and the next one goes on there."""

KnownSegments = Remembered[tuple[About, int, SegmentRef], Sequence[StoredEntry]]
"""By the topics and the partition that they are of; up to so many entries together."""


class KafkaStored:
    """For one page; what its readers have read before does not matter."""

    def __init__(
        self,
        readers: Readers,
        topic: DelayTopicConfig,
        about: About,
        partition: int,
        pages: KnownPages,
        segments: KnownSegments,
    ) -> None:
        self._readers = readers
        self._pages = pages
        self._segments = segments
        self._about = about
        self._partition = partition
        self._log = topic.name, partition
        self._state = topic.state, partition
        self._snapshots = topic.snapshots, partition

    def state_since(self, offset: int) -> tuple[list[Stored], int]:
        """What the state has from an offset on, up to the first open transaction; also where that ended."""
        return self._readers.state_since(self._state, offset)

    def segment(self, ref: SegmentRef) -> Sequence[StoredEntry] | None:
        """As ``ports.Stored.segment``."""
        key = self._about, self._partition, ref
        known = self._segments.get(key)
        if known is not None:
            return known
        record = self._readers.records.read_large(*self._snapshots, [ref.record_offset])[ref.record_offset]
        if record is None or record.value is None:
            return None
        entries = decode_segment(record.value)
        self._segments.keep(key, entries, len(entries))
        return entries

    def id_page(self, ref: IdPageRef) -> IdPage | None:
        """As ``ports.Stored.id_page``."""

        def read() -> bytes | None:
            record = self._readers.records.read(*self._snapshots, [ref.record_offset])[ref.record_offset]
            return None if record is None else record.value

        return self._pages.page(self._snapshots, ref, read)

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """As ``ports.Stored.records``."""
        return self._readers.records.read(*self._log, offsets)

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        """As ``ports.Stored.log``."""
        start, end = self._readers.log_range(self._log)
        to_offset = end if to_offset is None else min(to_offset, end)
        return self._readers.records.scan(*self._log, max(start, from_offset), to_offset)

    def log_start(self) -> int:
        """As ``ports.Stored.log_start``."""
        return self._readers.log_range(self._log)[0]
