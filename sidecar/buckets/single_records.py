"""The records of single pending schedules, wherever each of them waits.

It is read where it lies: what is held for its target in memory, what is in a bucket with inline payload in the one
segment that has its due time, and all else in the delay topic. That has everything which is not in such a bucket, and
memory is not asked, since it may only know where a record lies.
"""

from collections.abc import Sequence

from index.bucket import Manifest, Placement
from index.progress import Position
from index.record import Record
from sidecar.buckets.segments import SegmentSource
from sidecar.payload.ledger import PartitionLedger
from sidecar.ports import Records
from sidecar.release.gate import Gate
from sidecar.release.screening import ReadRecords

_Segment = tuple[Manifest, int]


class SingleRecords:
    """Belongs to one owned partition; used by its worker only, which waits meanwhile."""

    def __init__(
        self, ledger: PartitionLedger, source: SegmentSource, gate: Gate, read: ReadRecords, reader: Records
    ) -> None:
        self._ledger = ledger
        self._source = source
        self._gate = gate
        self._read = read
        self._reader = reader

    def of(self, places: Sequence[Position]) -> dict[int, Record | None]:
        """The record of each, by offset; None for one that is gone.

        ClusterError when the cluster does not answer, RefusedError when a segment is lost for good.
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
            # What was too large for the segment.
            in_log += [offset for offset in offsets if offset in held and held[offset] is None]
        return found | (self._read(sorted(in_log)) if in_log else {})

    def _segment_of(self, place: Position) -> _Segment | None:
        """The segment that holds the record itself, if one does."""
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
