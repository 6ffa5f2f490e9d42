"""Reading the sources of a merge some segments ahead, so that merging does not wait a round trip for each.

What is ahead is kept as it is stored, so that the sizes in the manifests bound it; it is decoded when its turn comes,
in the thread that merges: into columns of rows (:mod:`sidecar.payload.packed_run`) where all its records can be rows of
one table of header names, as nearly always, and into an object for each where not. Of each source the order stays that
of its segments, whichever arrives first.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeAlias

from index.bucket import Manifest
from index.id_pages import rows_of
from index.progress import Position
from index.record import Record
from index.run import ListRun, Run
from sidecar.buckets.id_pages import IdPageSource
from sidecar.buckets.pool import LoaderPool
from sidecar.buckets.segments import SegmentSource
from sidecar.intake.offset_reader import OffsetReader
from snapshots.rows import RowPacker

StoredSegments: TypeAlias = list[Record | None]
"""Segments that follow each other, as they lie in the snapshots topic; None for one that is not there."""


MergedRun: TypeAlias = Run[Any]
"""What a merge has of some entries: columns of rows, or of each its record, whole or packed as a row, None where it has
to be read from the delay topic."""


class MergeReads(Protocol):
    """How a merge reads its sources."""

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Have some segments of a bucket read."""

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """What one of them holds, in release order; as rows of this packer where it can."""

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[bytes]]:
        """Have some pages of ids of a bucket read; FormatError when one of them is lost or damaged."""


class PoolReads:
    """Reads the segments of one partition in the threads of a pool; ``reader`` is that of the thread that merges."""

    def __init__(self, source: SegmentSource, pages: IdPageSource, pool: LoaderPool, reader: OffsetReader) -> None:
        self._source = source
        self._pages = pages
        self._pool = pool
        self._reader = reader

    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        """Have some segments of a bucket read, beside the merge."""
        source = self._source
        return self._pool.fetch(lambda reader: source.read(manifest, numbers, reader))

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        """What one of them holds, in release order; made good from the delay topic where it is damaged."""
        rows = self._source.rows(manifest, number, stored, packer)
        return ListRun(self._source.stored(manifest, number, stored, self._reader)) if rows is None else rows

    def ask_pages(self, manifest: Manifest, numbers: range) -> Future[list[bytes]]:
        """Have some pages of ids of a bucket read, beside the merge."""
        pages = self._pages
        return self._pool.fetch(lambda reader: pages.read(manifest, numbers, reader))


class SourceAhead:
    """The segments of one source that are not wholly at or before ``watermark``, a run each; iterated once.

    Its first segments are asked for at once, the next ones each time when the ones before them are at hand.
    """

    def __init__(
        self, reads: MergeReads, manifest: Manifest, watermark: Position, packer: RowPacker, most_bytes: int
    ) -> None:
        """``most_bytes`` of segments are read together."""
        self._reads = reads
        self._manifest = manifest
        self._packer = packer
        self._runs = _runs(manifest, watermark, most_bytes)
        self._asked: deque[tuple[range, Future[StoredSegments]]] = deque()
        self._ask_next()

    def __iter__(self) -> Iterator[MergedRun]:
        while self._asked:
            numbers, future = self._asked.popleft()
            stored = future.result()
            self._ask_next()
            for number, each in zip(numbers, stored, strict=True):
                yield self._reads.run(self._manifest, number, each, self._packer)

    def cancel(self) -> None:
        """Read nothing of what was asked for and has not begun to be read."""
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
        self._asked: deque[Future[list[bytes]]] = deque()
        self._ask_next()

    def __iter__(self) -> Iterator[bytes]:
        while self._asked:
            pages = self._asked.popleft().result()
            self._ask_next()
            for page in pages:
                yield from rows_of(page)

    def cancel(self) -> None:
        """Read nothing of what was asked for and has not begun to be read."""
        for future in self._asked:
            future.cancel()

    def _ask_next(self) -> None:
        for numbers in self._left:
            self._asked.append(self._reads.ask_pages(self._manifest, numbers))
            return


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
    """The segments that have not left, cut into runs that are read together."""
    sizes = [ref.size_bytes for ref in manifest.segments]
    passed = sum(ref.last <= watermark for ref in manifest.segments)
    return (range(passed + run.start, passed + run.stop) for run in _together(sizes[passed:], most_bytes))
