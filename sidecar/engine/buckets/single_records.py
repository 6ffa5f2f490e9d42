"""Finds the records of single pending schedules, wherever each record waits.

A record that is held for its target is read from memory. A record in a bucket with inline payload is read from the one
segment that covers its due time. Every other record is read from the delay topic, which has all records outside such
buckets; memory is not searched for them, since it may only know where a record lies.
"""

from collections.abc import Sequence

from index.buckets.bucket import Manifest, Placement
from index.pending.progress import Position
from index.protocol.record import Record
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.ports import Records
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.screening import ReadRecords

_Segment = tuple[Manifest, int]


class SingleRecords:
    """Belongs to one owned partition; used only by its worker, which waits meanwhile."""

    def __init__(
        self, ledger: PartitionLedger, source: SegmentSource, gate: Gate, read: ReadRecords, reader: Records
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._gate = gate
        self._read = read
        self._reader = reader

    def of(self, places: Sequence[Position]) -> dict[int, Record | None]:
        """Return the record at each position, by offset; None for a record that is gone.

        Raise ClusterError when the cluster does not answer, RefusedError when a segment is lost for good.
        """
        found: dict[int, Record | None] = {**self._gate.records_at({place.offset for place in places})}
        in_log: list[int] = []
        in_segments: dict[tuple[int, int], tuple[_Segment, list[int]]] = {}
        for place in places:
            if place.offset in found:
                continue
            segment = self._segment_of(place)
            if segment is None:
                in_log.append(place.offset)
            else:
                in_segments.setdefault((segment[0].bucket_id, segment[1]), (segment, []))[1].append(place.offset)
        for segment, offsets in in_segments.values():
            held = self._stored(segment)
            found |= {offset: held.get(offset) for offset in offsets}
            # The record was too large for the segment.
            in_log += [offset for offset in offsets if offset in held and held[offset] is None]
        return found | (self._read(sorted(in_log)) if in_log else {})

    def _segment_of(self, place: Position) -> _Segment | None:
        """Return the inline segment whose range holds the position; None where no segment does."""
        for bucket in self._ledger.parts.buckets.values():
            if not bucket.holds(place.offset):
                continue
            for number, ref in enumerate(bucket.manifest.segments):
                if ref.placement is Placement.INLINE and ref.first <= place <= ref.last:
                    return bucket.manifest, number
        return None

    def _stored(self, segment: _Segment) -> dict[int, Record | None]:
        manifest, number = segment
        [record] = self._source.read(manifest, [number], self._reader)
        return {offset: held for _, offset, held in self._source.stored(manifest, number, record, self._reader)}
