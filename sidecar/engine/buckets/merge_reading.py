"""Reads the sources of a merge some segments ahead, so that merging does not wait a round trip for each segment.

The segments read ahead stay in their stored form, so that the sizes in the manifests bound the memory. The thread that
merges decodes each segment when its turn comes. It decodes into columns of rows
(:mod:`sidecar.engine.payload.packed_run`) where all records can be rows of one table of header names, which is nearly
always so, and into an object for each record elsewhere. Each source keeps the order of its segments, even if they
arrive in another order.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import Any, Protocol, TypeAlias

from index.buckets.bucket import Manifest
from index.errors import ClusterError, ClusterTrouble
from index.named.id_pages import IdRows, rows_of
from index.pending.progress import Position
from index.pending.run import ListRun, Run, behind
from index.protocol.record import Record
from index.rules.unreadable import UnreadableHeaders
from sidecar.engine.buckets.id_pages import IdPageSource
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.ports import Pool, ReadEach, Records
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import StoredEntry
from snapshots.segments.writing import record_size

FIRST_POINTED = 16
"""Number of pointed-to records that are read together while their size is unknown."""

GROWTH = 4
"""Factor by which that number may grow from one read to the next."""

StoredSegments: TypeAlias = list[Record | None]
"""Segments that follow each other, as the snapshots topic stores them; None for a segment that is missing."""


MergedRun: TypeAlias = Run[Any]
"""Some entries of a merge: columns of rows, or a list with the record of each entry. The record is whole, or packed as
a row, or None where it has to be read from the delay topic."""


class MergeReads(Protocol):
    """Reads the sources of a merge."""

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Begin to read some segments of a bucket."""

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """Return the entries of one segment in release order, as rows of this packer where possible."""

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[IdRows]]:
        """Begin to read some pages of ids; the future raises FormatError when one of them is lost or damaged."""

    def records(self, offsets: Sequence[int]) -> ReadEach:
        """Yield records of the delay topic at these ascending offsets; None for a record that is gone."""


class PoolReads:
    """Reads the segments of one partition in the threads of a pool; ``reader`` belongs to the thread that merges."""

    def __init__(self, source: SegmentSource, pages: IdPageSource, pool: Pool, reader: Records) -> None:
        self._source = source
        self._pages = pages
        self._pool = pool
        self._reader = reader

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Begin to read some segments of a bucket, beside the merge."""
        source = self._source
        return self._pool.fetch(lambda reader: source.read(manifest, numbers, reader))

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """Return the entries of one segment; restore a damaged segment from the delay topic."""
        rows = self._source.rows(manifest, number, stored, packer)
        return ListRun(self._source.stored(manifest, number, stored, self._reader)) if rows is None else rows

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[IdRows]]:
        """Begin to read some pages of ids of a bucket, beside the merge."""
        pages = self._pages
        return self._pool.fetch(lambda reader: pages.read(manifest, numbers, reader))

    def records(self, offsets: Sequence[int]) -> ReadEach:
        """Read records of the delay topic in the thread that merges."""
        return self._source.records(offsets, self._reader)


class SourceAhead:
    """The entries of one source behind ``watermark``, one run for each segment that has some; iterated once.

    Requests the first segments at once, and the next ones each time the segments before them have arrived.
    """

    def __init__(
        self, reads: MergeReads, manifest: Manifest, watermark: Position, packer: RowPacker, most_bytes: int
    ) -> None:
        """Request the first segments; one read covers up to ``most_bytes`` of segments."""
        self._reads = reads
        self._manifest = manifest
        self._packer = packer
        self._pending_from = behind(watermark)
        self._runs = _runs(manifest, watermark, most_bytes)
        self._asked: deque[tuple[range, Future[StoredSegments]]] = deque()
        self._ask_next()

    def __iter__(self) -> Iterator[MergedRun]:
        while self._asked:
            numbers, future = self._asked.popleft()
            stored = future.result()
            self._ask_next()
            for number, each in zip(numbers, stored, strict=True):
                run = self._reads.run(self._manifest, number, each, self._packer)
                passed = run.count_before(self._pending_from)
                yield run.slice(passed, len(run)) if passed else run

    def cancel(self) -> None:
        """Cancel the reads that have not begun."""
        for _, future in self._asked:
            future.cancel()

    def _ask_next(self) -> None:
        for numbers in self._runs:
            self._asked.append((numbers, self._reads.ask(self._manifest, numbers)))
            return


class IdsAhead:
    """The rows of one source's pages of ids, in order; iterated once."""

    def __init__(self, reads: MergeReads, manifest: Manifest, most_bytes: int) -> None:
        self._reads = reads
        self._manifest = manifest
        self._left = _together([page.size_bytes for page in manifest.id_pages or ()], most_bytes)
        self._asked: deque[Future[list[IdRows]]] = deque()
        self._ask_next()

    def __iter__(self) -> Iterator[bytes]:
        while self._asked:
            pages = self._asked.popleft().result()
            self._ask_next()
            for page in pages:
                yield from rows_of(page)

    def cancel(self) -> None:
        """Cancel the reads that have not begun."""
        for future in self._asked:
            future.cancel()

    def _ask_next(self) -> None:
        for numbers in self._left:
            self._asked.append(self._reads.ask_pages(self._manifest, numbers))
            return


class PointedRecords:
    """Reads the records that pointers refer to, some at a time; holds at most twice the bytes of a segment."""

    def __init__(self, reads: MergeReads, segment_bytes: int) -> None:
        self._reads = reads
        self._segment_bytes = segment_bytes
        self._at_once = FIRST_POINTED

    def parts(self, entries: Sequence[StoredEntry]) -> Iterator[list[StoredEntry]]:
        """Cut entries into parts of a segment's bytes, and add the records they lack where the delay topic has them.

        A record that fits into no segment stays out. Raise ClusterError when the cluster does not answer.
        """
        part: list[StoredEntry] = []
        part_bytes = start = 0
        while start < len(entries):
            step = entries[start : start + self._at_once]
            whole = self._whole(step)
            if whole is None:
                self._at_once = len(step) // 2
                continue
            for entry in whole:
                size_bytes = record_size(entry[2])
                if part and part_bytes + size_bytes > self._segment_bytes:
                    yield part
                    part, part_bytes = [], 0
                part.append(entry)
                part_bytes += size_bytes
            start += len(step)
        if part:
            yield part

    def _whole(self, step: Sequence[StoredEntry]) -> list[StoredEntry] | None:
        """Return the entries with their records; None where these are too many bytes, or one of several is damaged."""
        missing = sorted(offset for _, offset, record in step if record is None)
        read: dict[int, Record | None] = {}
        read_bytes = 0
        try:
            with closing(self._reads.records(missing)) as records:
                for offset, record in records:
                    read[offset] = record if self._fits(record) else None
                    read_bytes += record_size(record)
                    if read_bytes > 2 * self._segment_bytes and len(step) > 1:
                        return None
        except ClusterError as error:
            if error.kind is not ClusterTrouble.UNREADABLE:
                raise
            if len(step) > 1:
                return None
        mean_bytes = read_bytes // max(len(read), 1) + 1
        self._at_once = min(max(self._segment_bytes // mean_bytes, 1), GROWTH * self._at_once)
        return [(due_ms, offset, record or read.get(offset)) for due_ms, offset, record in step]

    def _fits(self, record: Record | None) -> bool:
        if record is None or isinstance(record.headers, UnreadableHeaders):
            return False
        return record_size(record) <= self._segment_bytes


def _together(sizes: Sequence[int], most_bytes: int) -> Iterator[range]:
    begin, size_bytes = 0, 0
    for number, each in enumerate(sizes):
        if number > begin and size_bytes + each > most_bytes:
            yield range(begin, number)
            begin, size_bytes = number, 0
        size_bytes += each
    if begin < len(sizes):
        yield range(begin, len(sizes))


def _runs(manifest: Manifest, watermark: Position, most_bytes: int) -> Iterator[range]:
    """Yield ranges of the segments past the watermark; each range is read together."""
    sizes = [ref.size_bytes for ref in manifest.segments]
    passed = sum(ref.last <= watermark for ref in manifest.segments)
    return (range(passed + run.start, passed + run.stop) for run in _together(sizes[passed:], most_bytes))
