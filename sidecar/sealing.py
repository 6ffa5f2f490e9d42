"""Sealing the mutable bucket, some segments at a time between releases.

Segments first, then the manifest with S, in a later transaction of the same fenced producer: a crash in between leaves
segments that nothing refers to. Their keys are used again, since the id of the bucket was not taken, and what is not
overwritten goes when the topic is trimmed.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from index.bucket import Manifest, Placement, SegmentRef
from index.errors import FormatError
from index.partition import Installation
from index.pending import Entry
from index.pending_set import Unsealed
from index.progress import Position
from index.record import Record
from index.sealing import SealRules, cut, placement_of
from sidecar.records import Scheduled
from snapshots.manifest import segment_key
from snapshots.segment import StoredEntry, encode_segment

SEGMENTS_AT_ONCE = 1
"""Segments in one transaction: 2,000 records are cut and encoded in some 15 ms, which is what releasing waits for."""

MAX_SEGMENT_BYTES = 1_000_000
"""Longest value of a segment: with key and batch it stays below what brokers take by default."""

COLUMN_BYTES = 24
"""What an entry costs in a segment beside its key, value and headers."""


class Encoded(NamedTuple):
    """A segment that only has to be written; its record offset is known when it is."""

    ref: SegmentRef
    value: bytes


class SegmentWriter:
    """Encodes the segments of one bucket in order and collects what its manifest says of them."""

    def __init__(self, bucket_id: int, from_offset: int, to_offset: int) -> None:
        self.bucket_id = bucket_id
        self._range = from_offset, to_offset
        self._written: list[SegmentRef] = []
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
        first, last = entries[0], entries[-1]
        return SegmentRef(Position(*first[:2]), Position(*last[:2]), len(entries), size_bytes, -1, placement)

    def key(self, number: int) -> bytes:
        """Key of a segment in the snapshots topic."""
        return segment_key(self.bucket_id, number)

    @property
    def count(self) -> int:
        """Segments written so far."""
        return len(self._written)

    def written(self, refs: Sequence[SegmentRef], record_offsets: Sequence[int]) -> None:
        """These segments were committed at these offsets of the snapshots topic."""
        self._written += [ref._replace(record_offset=offset) for ref, offset in zip(refs, record_offsets, strict=True)]

    def manifest(self) -> Manifest:
        """The bucket of everything written."""
        return Manifest(self.bucket_id, *self._range, self._needs_from, tuple(self._written))


class Sealing:
    """One frozen bucket on its way into segments."""

    def __init__(self, frozen: Unsealed[Scheduled], to_offset: int, bucket_id: int, rules: SealRules) -> None:
        self._rules = rules
        self._writer = SegmentWriter(bucket_id, frozen.from_offset, to_offset)
        self._segments: Iterator[list[Entry[Scheduled]]] = cut(frozen.entries.chunks(), rules, stored_size)
        self._given: list[Encoded] = []

    def next_segments(self) -> tuple[tuple[bytes, bytes], ...]:
        """Encode the next ones, as (key, value); empty when all are written.

        The same again until they are ``written``: they may have had to make way for a record that was refused.
        """
        while len(self._given) < SEGMENTS_AT_ONCE and (entries := next(self._segments, None)) is not None:
            placement = placement_of(entries, self._rules.placement)
            stored = [(due_ms, offset, self._stored(payload, placement)) for due_ms, offset, payload in entries]
            self._given += self._writer.encode(placement, stored)
        first = self._writer.count
        return tuple((self._writer.key(number), value) for number, (_, value) in enumerate(self._given, first))

    def written(self, record_offsets: Sequence[int]) -> None:
        """The segments given last were committed."""
        self._writer.written([ref for ref, _ in self._given], record_offsets)
        self._given = []

    def installation(self, keep_to: Position) -> Installation | None:
        """The manifest to install; None when everything was released before it could be written."""
        return Installation(self._writer.manifest(), keep_to=keep_to) if self._writer.count else None

    def _stored(self, payload: Scheduled, placement: Placement) -> Record | None:
        if placement is Placement.POINTER or stored_size(payload) > self._rules.segment_bytes:
            return None
        return payload.record


def _encoded(placement: Placement, entries: Sequence[StoredEntry]) -> bytes | None:
    try:
        value = encode_segment(placement, entries)
    except FormatError:
        if len(entries) == 1 and entries[0][2] is None:
            # Nothing is left to leave out: it is not the size.
            raise
        return None
    return value if len(value) <= MAX_SEGMENT_BYTES else None


def stored_size(payload: Scheduled) -> int:
    """Bytes of an accepted record in an inline segment, about."""
    return record_size(payload[2])


def record_size(record: Record | None) -> int:
    """Bytes of a record in an inline segment, about; of an absent one what its columns take."""
    if record is None:
        return COLUMN_BYTES
    key, value, headers, _ = record
    size = COLUMN_BYTES + sum(len(content or b"") + 4 for _, content in headers)
    return size + len(key or b"") + len(value or b"")
