"""Seals the mutable bucket, some segments at a time, between releases.

The worker cuts the pending entries into segments, so that no record leaves or comes back meanwhile. A thread of the
pool encodes the segments while the worker releases and waits for its transactions.

The segments are written first, then the pages of their ids, and at last the manifest with S in a later transaction of
the same fenced producer. A crash in between leaves segments that nothing refers to. The next seal uses their keys
again, since the id of the bucket was not taken, and trimming the topic removes the segments that are not overwritten.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial

from index.buckets.bucket import Placement
from index.buckets.bucket_rules import SealRules, cut_runs, placement_of
from index.buckets.target_counts import Route, count_routes
from index.partition.batch import Installation
from index.pending.progress import Position
from index.pending.run import Run
from index.pending.unsealed import Unsealed
from sidecar.engine.buckets.id_pages import Encode, Take, WrittenIds
from sidecar.engine.limits import Limits
from sidecar.engine.payload.packed_run import PackedRun, packed_run, routes_in
from sidecar.engine.payload.packing import records_of
from sidecar.engine.payload.records import Packed, Payload
from snapshots.segments.codec import PYTHON_CODEC, SegmentCodec
from snapshots.segments.writing import COLUMN_BYTES, Encoded, SegmentWriter, record_size

BYTES_AT_ONCE = 2 << 20
"""Most bytes of segments in one transaction; releasing waits for the brokers to take it."""


class Sealing:
    """One frozen bucket that becomes segments."""

    def __init__(
        self,
        frozen: Unsealed[Payload],
        to_offset: int,
        bucket_id: int,
        rules: SealRules,
        limits: Limits,
        encode: Encode,
        codec: SegmentCodec = PYTHON_CODEC,
        ids: Take = lambda: None,
    ) -> None:
        """Take the frozen bucket; ``ids`` returns the pages of its ids."""
        self._ids = WrittenIds(bucket_id, ids, limits)
        self._limits = limits
        self._rules = rules
        self._encode = encode
        self._codec = codec
        self._encoding: deque[Future[list[Encoded]]] = deque()
        self._ready: list[Encoded] = []
        self._writer = SegmentWriter(bucket_id, frozen.from_offset, to_offset)
        self._segments: Iterator[Run[Payload]] = cut_runs(frozen.pieces(), rules, stored_sizes, len(frozen))
        self._given: list[Encoded] = []

    def next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        """Return the next segments, then pages of ids, as (key, value); empty when none is ready, None at the end.

        Returns the same ones until they are ``written``, since they may have had to make way for a record that was
        refused.
        """
        segments = self._next_segments()
        return self._ids.next_pages() if segments is None and self._writer.count else segments

    def _next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        self._cut()
        if not self._given:
            if not self._ready and not self._encoding:
                return None
            self._take_encoded()
            if not self._encoding or self._is_worth_it:
                self._given, self._ready = self._ready, []
        first = self._writer.count
        return tuple((self._writer.key(number), value) for number, (_, value) in enumerate(self._given, first))

    def _cut(self) -> None:
        entries, limits = 0, self._limits
        while entries < limits.seal_cut_entries and len(self._encoding) < limits.seal_ahead_segments:
            run = next(self._segments, None)
            if run is None:
                return
            entries += len(run)
            self._encoding.append(self._encode(partial(self._encoded, run)))

    @property
    def _is_worth_it(self) -> bool:
        return self._ready_bytes >= self._limits.seal_worth_bytes or len(self._ready) >= self._limits.seal_segments

    @property
    def _ready_bytes(self) -> int:
        return sum([len(value) for _, value in self._ready])

    def written(self, record_offsets: Sequence[int]) -> None:
        """Note that the segments or pages given last were committed."""
        if not self._given:
            self._ids.written(record_offsets)
            return
        self._writer.written([ref for ref, _ in self._given], record_offsets)
        self._given = []

    def installation(self, keep_to: Position) -> Installation | None:
        """Return the manifest to install; None when every entry was released before it could be written."""
        if not self._writer.count:
            return None
        return Installation(replace(self._writer.manifest(), id_pages=self._ids.refs()), keep_to=keep_to)

    def _take_encoded(self) -> None:
        size_bytes = self._ready_bytes
        while (
            self._encoding
            and self._encoding[0].done()
            and size_bytes < BYTES_AT_ONCE
            and len(self._ready) < self._limits.seal_segments
        ):
            encoded = self._encoding.popleft().result()
            self._ready += encoded
            size_bytes += sum(len(value) for _, value in encoded)

    def _encoded(self, run: Run[Payload]) -> list[Encoded]:
        placement = placement_of(run.offsets, self._rules.placement)
        whole = self._joined(run) if placement is Placement.INLINE else None
        if whole is not None:
            return [whole]
        entries, routes = [*run], routes_in(run)
        if placement is Placement.POINTER:
            pointers = self._writer.encode(placement, [(due_ms, offset, None) for due_ms, offset, _ in entries])
            return _counted(pointers, routes)
        payloads = [payload for _, _, payload in entries]
        stored = [
            (due_ms, offset, record if stored_size(payload) <= self._rules.segment_bytes else None)
            for (due_ms, offset, payload), record in zip(entries, records_of(payloads), strict=True)
        ]
        return _counted(self._writer.encode(placement, stored), routes)

    def _joined(self, run: Run[Payload]) -> Encoded | None:
        """Return a segment joined of rows; None unless every entry is a row and fits into a segment."""
        packed = packed_run(run)
        if packed is None or max(packed.sizes) + COLUMN_BYTES > self._rules.segment_bytes:
            return None
        segment = packed.segment(self._codec)
        if segment is None:
            return None
        return Encoded(segment.ref._replace(targets=count_routes(packed.routes)), segment.value)


def _counted(segments: list[Encoded], routes: Sequence[Route]) -> list[Encoded]:
    """Add to each segment the number of its entries for each target; ``routes`` has the targets of all entries in
    order.
    """
    start, counted = 0, []
    for ref, value in segments:
        end = start + ref.entries
        counted.append(Encoded(ref._replace(targets=count_routes(routes[start:end])), value))
        start = end
    return counted


def stored_sizes(run: Run[Payload]) -> Sequence[int]:
    """Return about how many bytes each entry of a run takes in an inline segment."""
    if isinstance(run, PackedRun):
        return run.stored_sizes
    return [stored_size(payload) for _, _, payload in run]


def stored_size(payload: Payload) -> int:
    """Return about how many bytes an accepted record takes in an inline segment."""
    return COLUMN_BYTES + len(payload.row) if isinstance(payload, Packed) else record_size(payload.record)
