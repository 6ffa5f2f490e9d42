"""Sealing the mutable bucket, some segments at a time between releases.

The worker cuts what is pending into segments, so that nothing leaves or comes back meanwhile; a thread of the pool
encodes them while the worker releases and waits for its transactions.

Segments first, then pages of the ids that they have, and at last the manifest with S, in a later transaction of the
same fenced producer: a crash in between leaves segments that nothing refers to. Their keys are used again, since the
id of the bucket was not taken, and what is not overwritten goes when the topic is trimmed.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import islice

from index.batch import Installation
from index.bucket import Placement
from index.bucket_rules import SealRules, cut, placement_of
from index.id_runs import NO_PLACES, Places
from index.pending import Entry
from index.progress import Position
from index.target_counts import count_routes
from index.unsealed import Unsealed
from sidecar.buckets.id_pages import Encode, SealedIds, WrittenIds
from sidecar.payload.packing import records_of
from sidecar.payload.records import Packed, Payload, routes_of
from snapshots.codec import PYTHON_CODEC, SegmentCodec
from snapshots.writing import COLUMN_BYTES, Encoded, SegmentWriter, joined, record_size

SEGMENTS_AT_ONCE = 8
"""Most segments in one transaction."""

BYTES_AT_ONCE = 2 << 20
"""Most of them all; releasing waits for the brokers to take it."""

AHEAD = 10
"""Segments cut and not committed yet."""

CUT_AT_ONCE = 3
"""Most segments cut in one round; of 2,000 records each takes a few milliseconds while other threads compute."""


class Sealing:
    """One frozen bucket on its way into segments."""

    def __init__(
        self,
        frozen: Unsealed[Payload],
        to_offset: int,
        bucket_id: int,
        rules: SealRules,
        encode: Encode,
        codec: SegmentCodec = PYTHON_CODEC,
        ids: Places = NO_PLACES,
    ) -> None:
        self._ids = WrittenIds(bucket_id, SealedIds(ids, encode))
        self._rules = rules
        self._encode = encode
        self._codec = codec
        self._encoding: deque[Future[list[Encoded]]] = deque()
        self._writer = SegmentWriter(bucket_id, frozen.from_offset, to_offset)
        self._segments: Iterator[list[Entry[Payload]]] = cut(frozen.entries.chunks(), rules, stored_size)
        self._given: list[Encoded] = []

    def next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """The next ones, and then pages of ids, as (key, value): empty when none is encoded yet, None at the end.

        The same again until they are ``written``: they may have had to make way for a record that was refused.
        """
        segments = self._next_segments()
        return self._ids.next_pages() if segments is None and self._writer.count else segments

    def _next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        for entries in islice(self._segments, min(CUT_AT_ONCE, AHEAD - len(self._encoding))):
            self._encoding.append(self._encode(partial(self._encoded, entries)))
        if not self._given:
            if not self._encoding:
                return None
            self._take_encoded()
        first = self._writer.count
        return tuple((self._writer.key(number), value) for number, (_, value) in enumerate(self._given, first))

    def written(self, record_offsets: Sequence[int]) -> None:
        """The segments or pages given last were committed."""
        if not self._given:
            self._ids.written(record_offsets)
            return
        self._writer.written([ref for ref, _ in self._given], record_offsets)
        self._given = []

    def installation(self, keep_to: Position) -> Installation | None:
        """The manifest to install; None when everything was released before it could be written."""
        if not self._writer.count:
            return None
        return Installation(replace(self._writer.manifest(), id_pages=self._ids.refs()), keep_to=keep_to)

    def _take_encoded(self) -> None:
        size_bytes = 0
        while self._encoding and self._encoding[0].done() and size_bytes < BYTES_AT_ONCE:
            if len(self._given) >= SEGMENTS_AT_ONCE:
                return
            encoded = self._encoding.popleft().result()
            self._given += encoded
            size_bytes += sum(len(value) for _, value in encoded)

    def _encoded(self, entries: Sequence[Entry[Payload]]) -> list[Encoded]:
        placement = placement_of(entries, self._rules.placement)
        if placement is Placement.POINTER:
            pointers = self._writer.encode(placement, [(due_ms, offset, None) for due_ms, offset, _ in entries])
            return _counted(pointers, entries)
        whole = self._joined(entries)
        if whole is not None:
            return [whole]
        payloads = [payload for _, _, payload in entries]
        stored = [
            (due_ms, offset, record if stored_size(payload) <= self._rules.segment_bytes else None)
            for (due_ms, offset, payload), record in zip(entries, records_of(payloads), strict=True)
        ]
        return _counted(self._writer.encode(placement, stored), entries)

    def _joined(self, entries: Sequence[Entry[Payload]]) -> Encoded | None:
        """A segment joined of rows, when every entry is one."""
        dues_ms, offsets, payloads = zip(*entries, strict=True)
        if set(map(type, payloads)) != {Packed}:
            return None
        timestamps_ms, _, rows, packers, routes = zip(*payloads, strict=True)
        if len(set(packers)) > 1 or max(map(len, rows)) + COLUMN_BYTES > self._rules.segment_bytes:
            return None
        segment = joined(dues_ms, offsets, timestamps_ms, rows, packers[0].names, self._codec)
        if segment is None:
            return None
        return Encoded(segment.ref._replace(targets=count_routes(routes)), segment.value)


def _counted(segments: list[Encoded], entries: Sequence[Entry[Payload]]) -> list[Encoded]:
    """Segments that these entries became, one or more, with what is in each by target."""
    routes, start, counted = routes_of(entries), 0, []
    for ref, value in segments:
        end = start + ref.entries
        counted.append(Encoded(ref._replace(targets=count_routes(routes[start:end])), value))
        start = end
    return counted


def stored_size(payload: Payload) -> int:
    """Bytes of an accepted record in an inline segment, about."""
    return COLUMN_BYTES + len(payload.row) if isinstance(payload, Packed) else record_size(payload.record)
