"""Cuts the sorted rows of a task into segments and encodes them, as the owner of the partition does when it seals.

It works by columns: the rows of a segment lie behind each other in a column of bytes, and the segment is joined from
them. The ends of segments and the placement of payloads follow the rules of :mod:`index.buckets.bucket_rules`, for
whole columns; tests compare the two.
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from index.buckets.bucket import Placement
from index.buckets.bucket_rules import MANY, NEARLY_EMPTY, POINTER_BELOW_US, SCAN_US, SEEK_US, SealRules
from index.named.id_pages import row
from snapshots.segments.codec import SegmentCodec
from snapshots.segments.id_pages import EncodedPage, encode_pages
from snapshots.segments.writing import Encoded, SegmentWriter, joined
from spark_backfill.buckets.deciding import of_ids
from spark_backfill.buckets.decisions import objects
from spark_backfill.buckets.packing import common_names, records
from spark_backfill.buckets.plan import BucketRange


class BucketSegment(NamedTuple):
    """An encoded segment, and the number of its bucket."""

    bucket: int
    encoded: Encoded


class BucketPage(NamedTuple):
    """A page of ids, and the number of its bucket."""

    bucket: int
    page: EncodedPage


class Cutter:
    """Cuts the rows of one task into segments, and their ids into pages.

    ``needs_from`` has the lowest offset of the delay topic that each bucket points to, ``codec`` joins rows.
    """

    def __init__(self, buckets: Sequence[BucketRange], rules: SealRules, codec: SegmentCodec) -> None:
        self._buckets = buckets
        self._rules = rules
        self._codec = codec
        self._writers: dict[int, SegmentWriter] = {}
        self._ids: dict[int, list[bytes]] = {}

    @property
    def needs_from(self) -> dict[int, int]:
        """The lowest offset that each bucket needs of the delay topic, for buckets that need it."""
        needs = {bucket: writer.manifest().needs_from for bucket, writer in self._writers.items()}
        return {bucket: offset for bucket, offset in needs.items() if offset is not None}

    def segments(self, batches: Iterable[pa.RecordBatch]) -> Iterator[BucketSegment]:
        """Yield the segments of decided batches, which are sorted by (due, offset); ids are put aside."""
        for bucket, chunks in _by_bucket(self._without_ids(batches)):
            span = self._buckets[bucket]
            writer = self._writers.setdefault(bucket, SegmentWriter(0, span.from_offset, span.to_offset))
            for rows in cut(chunks, self._rules):
                for encoded in self._encoded(writer, rows):
                    yield BucketSegment(bucket, encoded)

    def pages(self) -> Iterator[BucketPage]:
        """Yield the pages of the ids that were put aside, for each bucket in order."""
        for bucket, rows in self._ids.items():
            rows.sort()
            for page in encode_pages(rows, self._buckets[bucket].span):
                yield BucketPage(bucket, page)

    def _without_ids(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            is_id = batch.column("bucket").to_numpy() < 0
            if is_id.any():
                self._put_aside(batch.filter(pa.array(is_id)))
                yield batch.filter(pa.array(~is_id))
            else:
                yield batch

    def _put_aside(self, batch: pa.RecordBatch) -> None:
        columns = (objects(batch.column(name)) for name in ("bucket", "record", "due_ms", "offset", "timestamp_ms"))
        for bucket, id_hash, due_ms, offset, asked_ms in zip(*columns, strict=True):
            self._ids.setdefault(of_ids(bucket), []).append(row(id_hash, due_ms, offset, due_ms - asked_ms))

    def _encoded(self, writer: SegmentWriter, rows: pa.RecordBatch) -> Sequence[Encoded]:
        placement = placement_of(rows.column("offset").to_numpy(), self._rules)
        # A record that does not fit is alone in its segment, see index.buckets.bucket_rules.cut.
        too_big = rows.column("size_bytes")[0].as_py() > self._rules.segment_bytes
        dues_ms, offsets = (_numbers(rows.column(name)) for name in ("due_ms", "offset"))
        if too_big or placement is Placement.POINTER:
            absent = [(due_ms, offset, None) for due_ms, offset in zip(dues_ms, offsets, strict=True)]
            return writer.encode(placement, absent)
        if (whole := _joined(rows, dues_ms, offsets, self._codec)) is not None:
            return [whole]
        found = records(zip(*(objects(rows.column(name)) for name in _PACKED), strict=True))
        return writer.encode(placement, list(zip(dues_ms, offsets, found, strict=True)))


def cut(chunks: Iterable[pa.RecordBatch], rules: SealRules) -> Iterator[pa.RecordBatch]:
    """Cut decided rows, given in release order, into segments, as ``index.buckets.bucket_rules.cut`` does."""
    held: list[pa.RecordBatch] = []
    count, enough = 0, MANY * rules.segment_entries
    for chunk in chunks:
        held.append(chunk)
        count += chunk.num_rows
        if count >= enough:
            whole = pa.concat_batches(held)
            at = 0
            for end in _ends(whole, rules):
                if count - at < enough:
                    break
                yield whole.slice(at, end - at)
                at = end
            held, count = [whole.slice(at)], count - at
    if count:
        whole, at = pa.concat_batches(held), 0
        for end in _ends(whole, rules):
            yield whole.slice(at, end - at)
            at = end


def placement_of(offsets: Any, rules: SealRules) -> Placement:
    """Return the payload placement for records of these offsets, by ``index.buckets.bucket_rules.placement_of``."""
    if rules.placement != "auto":
        return Placement[rules.placement.upper()]
    scanned = float(np.minimum(np.diff(np.sort(offsets)), SEEK_US / SCAN_US).sum())
    return Placement.POINTER if SEEK_US + SCAN_US * scanned < POINTER_BELOW_US * len(offsets) else Placement.INLINE


def _ends(rows: pa.RecordBatch, rules: SealRules) -> Iterator[int]:
    """Yield the end of each segment, on condition that these rows are the last."""
    dues_ms, room = rows.column("due_ms").to_numpy(), rules.segment_bytes
    taken = np.cumsum(np.minimum(rows.column("size_bytes").to_numpy().astype(np.int64), room))
    start = 0
    while start < len(dues_ms):
        step_end_ms = (int(dues_ms[start]) // rules.time_step_ms + 1) * rules.time_step_ms
        in_step = int(np.searchsorted(dues_ms[start : start + rules.segment_entries], step_end_ms))
        most = start + min(rules.segment_entries, max(in_step, rules.segment_entries // NEARLY_EMPTY))
        before = int(taken[start - 1]) if start else 0
        fits = start + int(np.searchsorted(taken[start:most], before + room, side="right"))
        # The first row always goes, however big.
        start = max(fits, start + 1)
        yield start


def _numbers(column: pa.Array) -> "array[int]":
    return array("q", column.to_numpy().tobytes())


def _joined(rows: pa.RecordBatch, dues_ms: "array[int]", offsets: "array[int]", codec: SegmentCodec) -> Encoded | None:
    """Join rows to a segment; None unless all are rows that go together, and the segment is not too long."""
    names = common_names(pc.unique(rows.column("names")).to_pylist())
    packed = rows.column("record")
    if names is None or packed.null_count:
        return None
    _, places, content = packed.buffers()
    edges = np.frombuffer(places, dtype=np.int32)[packed.offset : packed.offset + len(packed) + 1]
    body = content[int(edges[0]) : int(edges[-1])].to_pybytes()
    sizes = array("i", np.diff(edges).tobytes())
    return joined(dues_ms, offsets, _numbers(rows.column("timestamp_ms")), sizes, body, names, codec)


def _by_bucket(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
    """Yield the rows of each bucket; a task has one bucket, except where two slots share it."""
    source = _Runs(batches)
    while (bucket := source.bucket) is not None:
        yield bucket, source.run(bucket)


class _Runs:
    """Rows of batches, a bucket at a time."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._pieces = chain.from_iterable(_pieces(batch) for batch in batches if batch.num_rows)
        self._next = next(self._pieces, None)

    @property
    def bucket(self) -> int | None:
        """Bucket of the next rows; None at the end."""
        return None if self._next is None else self._next[0]

    def run(self, bucket: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows up to the next one of another bucket."""
        while self._next is not None and self._next[0] == bucket:
            batch = self._next[1]
            self._next = next(self._pieces, None)
            yield batch


def _pieces(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    buckets = batch.column("bucket").to_numpy()
    ends = [*(np.flatnonzero(np.diff(buckets)) + 1).tolist(), len(buckets)]
    start = 0
    for end in ends:
        yield int(buckets[start]), batch.slice(start, end - start)
        start = end


_PACKED = ("timestamp_ms", "names", "record")
