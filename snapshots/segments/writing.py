"""Writing a bucket: its segments encoded one by one, and their manifest.

Shared by the two makers of buckets: the owner of a partition, and the jobs that build them in bulk.
"""

from collections.abc import Sequence
from typing import NamedTuple

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.buckets.due_marks import MOST_MARKS, marks_of, thinned
from index.errors import FormatError
from index.pending.progress import Position
from index.protocol.record import Record
from snapshots.envelope import MAX_BODY_BYTES
from snapshots.segments.codec import SegmentCodec
from snapshots.segments.manifest import segment_key
from snapshots.segments.segment import StoredEntry, encode_segment

MAX_SEGMENT_BYTES = 1_000_000
"""Longest value of a segment: with key and batch it stays below the default limit of brokers."""

COLUMN_BYTES = 24
"""Bytes of an entry in a segment beside its key, value and headers."""

HEADER_BYTES = 4
"""Bytes of a header beside its value."""

MOST_COLUMN_BYTES = 32
"""No three numbers take more, and whether there is a key."""

NAME_BYTES = 6
"""Most bytes of a name beside itself."""


class Encoded(NamedTuple):
    """A segment that only has to be written; its record offset is known when it is."""

    ref: SegmentRef
    value: bytes


def joined(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    sizes: Sequence[int],
    body: bytes,
    names: Sequence[str],
    codec: SegmentCodec,
) -> Encoded | None:
    """Join the rows in ``body``, in due order and of these ``names``, into a segment; None where it would be too long.

    A codec of native code wants the numbers as arrays of 64 bits, the sizes of 32.
    """
    longest = len(body) + MOST_COLUMN_BYTES * len(dues_ms) + sum(NAME_BYTES + len(name.encode()) for name in names)
    if longest > MAX_BODY_BYTES:
        return None
    value = codec.encode_body(dues_ms, offsets, timestamps_ms, sizes, body, names)
    if len(value) > MAX_SEGMENT_BYTES:
        return None
    first, last = Position(dues_ms[0], offsets[0]), Position(dues_ms[-1], offsets[-1])
    ref = SegmentRef(first, last, len(dues_ms), len(value), -1, Placement.INLINE, dues=marks_of(dues_ms))
    return Encoded(ref, value)


class SegmentWriter:
    """Encodes the segments of one bucket in order and collects their references for its manifest.

    >>> writer = SegmentWriter(bucket_id=3, from_offset=10, to_offset=20)
    >>> made = writer.encode(Placement.INLINE, [(5_000, 12, Record(b"k", b"v", [], 1_000)), (6_000, 11, None)])
    >>> writer.written([each.ref for each in made], record_offsets=[77])
    >>> bucket = writer.manifest()
    >>> bucket.segments[0].last, bucket.segments[0].record_offset
    (Position(due_ms=6000, offset=11), 77)
    >>> bucket.needs_from
    11
    """

    def __init__(self, bucket_id: int, from_offset: int, to_offset: int) -> None:
        self.bucket_id = bucket_id
        self._range = from_offset, to_offset
        self._written: list[SegmentRef] = []
        self._marks = 0
        self._needs_from: int | None = None

    def encode(self, placement: Placement, entries: Sequence[StoredEntry]) -> list[Encoded]:
        """Encode a segment; more than one where it turns out too big, since its size was estimated."""
        value = _encoded(placement, entries)
        if value is not None:
            return [Encoded(self._ref(placement, entries, len(value)), value)]
        if len(entries) == 1:
            due_ms, offset, _ = entries[0]
            return self.encode(placement, [(due_ms, offset, None)])
        half = len(entries) // 2
        return self.encode(placement, entries[:half]) + self.encode(placement, entries[half:])

    def _ref(self, placement: Placement, entries: Sequence[StoredEntry], size_bytes: int) -> SegmentRef:
        pointed = [offset for _, offset, record in entries if record is None or placement is Placement.POINTER]
        if pointed:
            lowest = min(pointed)
            self._needs_from = lowest if self._needs_from is None else min(lowest, self._needs_from)
        first, last = Position(*entries[0][:2]), Position(*entries[-1][:2])
        marks = marks_of([due_ms for due_ms, _, _ in entries])
        return SegmentRef(first, last, len(entries), size_bytes, -1, placement, dues=marks)

    def key(self, number: int) -> bytes:
        """Key of a segment in the snapshots topic."""
        return segment_key(self.bucket_id, number)

    @property
    def count(self) -> int:
        """Segments written so far."""
        return len(self._written)

    def written(self, refs: Sequence[SegmentRef], record_offsets: Sequence[int]) -> None:
        """Note the offsets of the snapshots topic at which these segments were committed."""
        self._written += [ref._replace(record_offset=offset) for ref, offset in zip(refs, record_offsets, strict=True)]
        self._marks += sum(len(ref.dues.at_ms) for ref in refs)
        # Not only at the end: a bucket of millions of scattered entries would hold a due time of each until then.
        if self._marks > 2 * MOST_MARKS:
            self._written = list(thinned(self._written))
            self._marks = sum(len(ref.dues.at_ms) for ref in self._written)

    def manifest(self) -> Manifest:
        """Return the manifest of all segments written."""
        return Manifest(self.bucket_id, *self._range, self._needs_from, thinned(self._written))


def _encoded(placement: Placement, entries: Sequence[StoredEntry]) -> bytes | None:
    try:
        value = encode_segment(placement, entries)
    except FormatError:
        if len(entries) == 1 and entries[0][2] is None:
            # Nothing is left to leave out: it is not the size.
            raise
        return None
    return value if len(value) <= MAX_SEGMENT_BYTES else None


def record_size(record: Record | None) -> int:
    """Estimate the bytes of a record in an inline segment; of an absent record those of its columns."""
    if record is None:
        return COLUMN_BYTES
    key, value, headers, _ = record
    size = COLUMN_BYTES + sum(len(content or b"") + HEADER_BYTES for _, content in headers)
    return size + len(key or b"") + len(value or b"")
