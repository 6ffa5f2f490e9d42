"""Cuts what a task has sorted into segments and encodes them, as the owner of the partition does when it seals."""

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from index.bucket import Placement
from index.bucket_rules import SealRules, cut, placement_of
from index.pending import Entry
from snapshots.writing import Encoded, SegmentWriter, joined
from spark_backfill.buckets.deciding import objects
from spark_backfill.buckets.packing import Packed, joinable, records
from spark_backfill.buckets.plan import BucketRange


class BucketSegment(NamedTuple):
    """An encoded segment, and the number of its bucket."""

    bucket: int
    encoded: Encoded


class Cutter:
    """Segments of one task; ``needs_from`` has the lowest offset of the delay topic that each bucket points to."""

    def __init__(self, buckets: Sequence[BucketRange], rules: SealRules) -> None:
        self._buckets = buckets
        self._rules = rules
        self._writers: dict[int, SegmentWriter] = {}

    @property
    def needs_from(self) -> dict[int, int]:
        """For buckets that need the delay topic at all."""
        needs = {bucket: writer.manifest().needs_from for bucket, writer in self._writers.items()}
        return {bucket: offset for bucket, offset in needs.items() if offset is not None}

    def segments(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BucketSegment]:
        """Segments of decided batches, which are sorted by (due, offset), in that order."""
        for bucket, chunks in _by_bucket(batches):
            span = self._buckets[bucket]
            writer = self._writers.setdefault(bucket, SegmentWriter(0, span.from_offset, span.to_offset))
            for entries in cut(chunks, self._rules, itemgetter(0)):
                for encoded in self._encoded(writer, entries):
                    yield BucketSegment(bucket, encoded)

    def _encoded(self, writer: SegmentWriter, entries: Sequence[Entry[Packed]]) -> Sequence[Encoded]:
        placement = placement_of([offset for _, offset, _ in entries], self._rules.placement)
        # A record that does not fit is alone in its segment, see index.bucket_rules.cut.
        too_big = entries[0][2][0] > self._rules.segment_bytes
        if too_big or placement is Placement.POINTER:
            return writer.encode(placement, [(due_ms, offset, None) for due_ms, offset, _ in entries])
        if (whole := _joined(entries)) is not None:
            return [whole]
        found = records([packed for _, _, packed in entries])
        stored = [(due_ms, offset, record) for (due_ms, offset, _), record in zip(entries, found, strict=True)]
        return writer.encode(placement, stored)


def _joined(entries: Sequence[Entry[Packed]]) -> Encoded | None:
    """A segment joined of rows, where all are rows that go together and it is not too long."""
    dues_ms, offsets, packed = zip(*entries, strict=True)
    if (rows := joinable(packed)) is None:
        return None
    return joined(dues_ms, offsets, *rows)


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[list[Entry[Packed]]]]]:
    """Runs of rows of one bucket, which is all of a task but where two slots met in one."""
    source = _Runs(batches)
    while (bucket := source.bucket) is not None:
        yield bucket, source.run(bucket)


class _Runs:
    """Entries of batches, a bucket at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._pieces = (piece for batch in batches if batch.num_rows for piece in _pieces(batch))
        self._next = next(self._pieces, None)

    @property
    def bucket(self) -> int | None:
        """Bucket of what comes next, None at the end."""
        return None if self._next is None else self._next[0]

    def run(self, bucket: int) -> Iterator[list[Entry[Packed]]]:
        """Entries up to the next one of another bucket."""
        while self._next is not None and self._next[0] == bucket:
            batch = self._next[1]
            self._next = next(self._pieces, None)
            yield _entries(batch)


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    buckets = batch.column("bucket").to_numpy()
    ends = [*(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
    start = 0
    for end in ends:
        yield int(buckets[start]), batch.slice(start, end - start)
        start = end


def _entries(batch: pa.RecordBatch) -> list[Entry[Packed]]:
    dues_ms, offsets, *packed = (objects(batch.column(name)) for name in _COLUMNS)
    return list(zip(dues_ms, offsets, zip(*packed, strict=True), strict=True))


_COLUMNS = ("due_ms", "offset", "size_bytes", "timestamp_ms", "names", "record")
