"""What is stored of one partition, read from Kafka, and how much of it a page may read."""

import time
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

MOST_READ: Final = 50_000
"""Records that are read for one page, and those of the segment in which it ends."""

READ_FOR_S: Final = 5.0

MOST_ENTRIES: Final = 20_000
"""Of segments that were read lately: a page of 500 ends within one, and the next one goes on there."""

KnownSegments = Remembered[tuple[About, int, SegmentRef], Sequence[StoredEntry]]
"""By the topics and the partition that they are of; up to so many entries together."""


class Allowance:
    """How much a page may still read."""

    def __init__(self, records: int = MOST_READ) -> None:
        self._left = records
        self._until_s = time.monotonic() + READ_FOR_S

    def is_spent(self) -> bool:
        """Whether the page has to end."""
        return self._left <= 0 or time.monotonic() > self._until_s

    def spend(self, records: int) -> None:
        """Count records that were read."""
        self._left -= records


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
        """Return the entries of a segment by (due, offset); None when it is there no more."""
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
        """Return a page of ids; None when it is there no more, or another page is at its place."""

        def read() -> bytes | None:
            record = self._readers.records.read(*self._snapshots, [ref.record_offset])[ref.record_offset]
            return None if record is None else record.value

        return self._pages.page(self._snapshots, ref, read)

    def records(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Return records of the delay partition at ascending offsets; None for one that is gone."""
        return self._readers.records.read(*self._log, offsets)

    def log(self, from_offset: int, to_offset: int | None = None) -> Iterator[tuple[int, Record]]:
        """Yield every committed record of the delay partition in [from, to) that is left, with its offset.

        Without ``to_offset`` to its end.
        """
        start, end = self._readers.log_range(self._log)
        to_offset = end if to_offset is None else min(to_offset, end)
        return self._readers.records.scan(*self._log, max(start, from_offset), to_offset)

    def log_start(self) -> int:
        """Return the first offset that the delay partition still has."""
        return self._readers.log_range(self._log)[0]
