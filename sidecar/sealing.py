"""Sealing the mutable bucket, some segments at a time between releases.

Segments first, then the manifest with S, in a later transaction of the same fenced producer: a crash in between leaves
segments that nothing refers to. Their keys are used again, since the id of the bucket was not taken, and what is not
overwritten goes when the topic is trimmed.
"""

from collections.abc import Iterator, Sequence

from index.batch import Installation
from index.bucket import Placement
from index.pending import Entry
from index.pending_set import Unsealed
from index.progress import Position
from index.record import Record
from index.sealing import SealRules, cut, placement_of
from sidecar.records import Scheduled
from snapshots.writing import Encoded, SegmentWriter, record_size

SEGMENTS_AT_ONCE = 1
"""Segments in one transaction: 2,000 records are cut and encoded in some 15 ms, which is what releasing waits for."""


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


def stored_size(payload: Scheduled) -> int:
    """Bytes of an accepted record in an inline segment, about."""
    return record_size(payload[2])
