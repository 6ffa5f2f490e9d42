"""Routers with one mistake each in seals, loads, merges or removals of buckets."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar

from pyroaring import BitMap64

from index.buckets.bucket import Bucket, Manifest
from index.errors import ClusterError
from index.partition.batch import Installation
from index.partition.partition import PartitionIndex
from index.partition.pending_set import PendingSet
from index.pending.pending import Entry, PendingIndex
from index.pending.progress import BEFORE_ALL, Position, Progress
from index.pending.run import ListRun
from index.pending.waiting import Waiting
from index.protocol.record import Record
from sidecar.engine.buckets.lifecycle import Housekeeping
from sidecar.engine.buckets.merge_reading import MergedRun, PointedRecords, PoolReads, StoredSegments
from sidecar.engine.buckets.merging import Merging
from sidecar.engine.buckets.trimming import Trimming
from sidecar.engine.payload.records import Payload, Refused
from sidecar.engine.release.transaction import Request
from snapshots.segments.manifest import MANIFEST_PREFIX, manifest_key
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import StoredEntry
from tests.simulation.host import SMALL_RUNS, SimulatedTransactions
from tests.simulation.replacing import OWNED, Wrong
from tests.simulation.world import AbortedError, SegmentsRefusedError, Transaction


class _WithParts(PartitionIndex[Payload, Refused]):
    parts_type: type[PendingSet[Payload]]

    def __init__(self, progress: Progress, *given: Any) -> None:
        super().__init__(progress, *given)
        parts = self.parts_type(progress.sealed_to, SMALL_RUNS)
        parts.buckets = self._pending.buckets
        parts.catching_up = self._pending.catching_up
        self._pending = parts


class _DropsSegment(Housekeeping):
    def request(self, now_ms: int, *, memory_full: bool) -> Request | None:
        request = super().request(now_ms, memory_full=memory_full)
        if request is None or not isinstance(request.installs, Installation) or not request.installs.merged_from:
            return request
        manifest = request.installs.manifest
        if len(manifest.segments) == 1:
            return request
        fewer = replace(manifest, segments=manifest.segments[:-1])
        return replace(request, installs=replace(request.installs, manifest=fewer))


class MergeDropsSegment(Wrong):
    """Leaves a segment of a merged bucket out of its manifest."""

    replaces: ClassVar = {OWNED + "Housekeeping": _DropsSegment}


class _PastUnread(PoolReads):
    def ask(self, manifest: Manifest, numbers: range) -> Future[StoredSegments]:
        asked = super().ask(manifest, numbers)
        try:
            asked.result()
        except ClusterError:
            asked = Future()
            asked.set_result([None] * len(numbers))
        return asked

    def run(self, manifest: Manifest, number: int, stored: Record | None, packer: RowPacker) -> MergedRun:
        return ListRun([]) if stored is None else super().run(manifest, number, stored, packer)


class MergesPastUnread(Wrong):
    """Continues a merge without the segments that could not be read."""

    replaces: ClassVar = {"sidecar.engine.buckets.lifecycle.PoolReads": _PastUnread}


class _ByPlace(PointedRecords):
    def _whole(self, step: Sequence[StoredEntry]) -> list[StoredEntry] | None:
        whole = super()._whole(step)
        if whole is None or any(record is None for _, _, record in whole):
            return whole
        records = [record for _, _, record in sorted(whole, key=lambda entry: entry[1])]
        return [(due_ms, offset, record) for (due_ms, offset, _), record in zip(whole, records, strict=True)]


class InlinesByPlace(Wrong):
    """Writes the records of pointers into a segment ordered by offset, where the order is by due time."""

    replaces: ClassVar = {"sidecar.engine.buckets.merging.PointedRecords": _ByPlace}


class _RemovesNext(Housekeeping):
    def request(self, now_ms: int, *, memory_full: bool) -> Request | None:
        request = super().request(now_ms, memory_full=memory_full)
        if request is None or request.installs is not None:
            return request
        gone = [each for each in self._ledger.parts.buckets if manifest_key(each) in request.removed]
        following = [each for each in self._ledger.parts.buckets if gone and each > max(gone)]
        return replace(request, removed=(*request.removed, manifest_key(min(following)))) if following else request


class RemovesOneBucketTooMany(Wrong):
    """Removes the bucket that follows the one whose records have all left."""

    replaces: ClassVar = {OWNED + "Housekeeping": _RemovesNext}


class _TrimsNext(Trimming):
    def turn(self, now_s: float, committed: Progress, buckets: list[Bucket], being_read: tuple[int, ...]) -> None:
        needing = sorted(buckets, key=lambda bucket: bucket.manifest.from_offset)[1:]
        super().turn(now_s, committed, needing, being_read)


class TrimsOneBucketTooMany(Wrong):
    """Trims both topics up to the needs of the second bucket, and ignores the first."""

    replaces: ClassVar = {"tests.simulation.host.Trimming": _TrimsNext}


class _ManifestFirst(SimulatedTransactions):
    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._behind: list[tuple[bytes, bytes | None]] = []

    def apply(self, written: Transaction) -> list[int]:
        foretold = self._around.store.snapshots_end + len(self._behind)
        super().apply(replace(written, snapshots=()))
        self._behind += written.snapshots
        if any(key.startswith(MANIFEST_PREFIX) and value is not None for key, value in written.state):
            self._around.faults.point("manifest", rare=True)
            while self._behind:
                with suppress(AbortedError, SegmentsRefusedError):
                    segments = tuple(self._behind)
                    super().apply(Transaction(written.begun_ms, [], [], segments, log_start=written.log_start))
                    self._behind = []
        return list(range(foretold, foretold + len(written.snapshots)))


class ManifestFirst(Wrong):
    """Commits a manifest before its segments, with offsets that it predicts."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _ManifestFirst}


class _PastFrozen(PendingSet[Payload]):
    def lowest_unsealed(self, *, without_frozen: bool = False) -> int | None:
        return super().lowest_unsealed(without_frozen=True)


class _LedgerPastFrozen(_WithParts):
    parts_type = _PastFrozen


class SealedPastFrozen(Wrong):
    """Moves S past the bucket that is being sealed before its manifest is committed."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerPastFrozen}


class _LoadsDone(PendingSet[Payload]):
    def load(
        self, bucket_id: int, number: int, entries: Sequence[Entry[Payload]], watermark: Position
    ) -> list[Entry[Payload]]:
        return super().load(bucket_id, number, entries, BEFORE_ALL)


class _LedgerLoadsDone(_WithParts):
    parts_type = _LoadsDone


class LoadsDoneEntries(Wrong):
    """Loads entries at or before W from a segment as pending."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerLoadsDone}


class _LoadsHeld(PendingSet[Payload]):
    def load(
        self, bucket_id: int, number: int, entries: Sequence[Entry[Payload]], watermark: Position
    ) -> list[Entry[Payload]]:
        self._held = BitMap64()
        return super().load(bucket_id, number, entries, watermark)


class _LedgerLoadsHeld(_WithParts):
    parts_type = _LoadsHeld


class LoadsHeldEntries(Wrong):
    """Loads entries of a merged bucket that were already loaded from its sources."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerLoadsHeld}


class _MergedFromFurthest(PendingSet[Payload]):
    def install_merged(self, manifest: Manifest, sources: Sequence[int], watermark: Position) -> None:
        barriers = [at for source in sources if (at := self.buckets[source].barrier) is not None]
        loaded_to = [Position(at.due_ms, at.offset - 1) for at in barriers]
        super().install_merged(manifest, sources, max([watermark, *loaded_to]))


class _LedgerMergedFromFurthest(_WithParts):
    parts_type = _MergedFromFurthest


class MergedBeginsTooFar(Wrong):
    """Starts a merged bucket at the position of the source that was read furthest."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerMergedFromFurthest}


class _BeginsAtEnds(Merging):
    def installation(self) -> Installation | None:
        installs = super().installation()
        if installs is None:
            return None
        manifest = installs.manifest
        lowest = min(each.offset for segment in manifest.segments for each in (segment.first, segment.last))
        return replace(installs, manifest=replace(manifest, from_offset=lowest))


class MergedBeginsBehindEntries(Wrong):
    """Begins a merged bucket at the lowest end of a segment, though entries between the ends may lie in front."""

    replaces: ClassVar = {"sidecar.engine.buckets.lifecycle.Merging": _BeginsAtEnds}


class _NoBarrier(PendingSet[Payload]):
    def barrier(self) -> Position | None:
        return None


class _LedgerNoBarrier(_WithParts):
    parts_type = _NoBarrier


class BarrierIgnored(Wrong):
    """Releases beyond entries that have not been loaded."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerNoBarrier}


class _ReusesId(Housekeeping):
    def request(self, now_ms: int, *, memory_full: bool) -> Request | None:
        request = super().request(now_ms, memory_full=memory_full)
        return request and replace(request, segments=tuple(map(_of_bucket_before, request.segments)))


class BucketIdReused(Wrong):
    """Writes segments under the id of the previous bucket, which may be in force."""

    replaces: ClassVar = {OWNED + "Housekeeping": _ReusesId}


def _of_bucket_before(segment: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    bucket_id, rest = segment[0].split(b"/", 1)
    return b"%020d/%b" % (max(0, int(bucket_id) - 1), rest), segment[1]


class _DropsFrozen(Housekeeping):
    def committed(self, request: Request, offsets: Sequence[int]) -> None:
        super().committed(request, offsets)
        frozen = self._ledger.parts.frozen
        if request.segments and frozen is not None:
            frozen.soon, frozen.waiting = PendingIndex(SMALL_RUNS.chunk_bits), Waiting(SMALL_RUNS)


class FrozenDroppedEarly(Wrong):
    """Drops entries once their segments are committed, before a manifest names the segments."""

    replaces: ClassVar = {OWNED + "Housekeeping": _DropsFrozen}


ALL: tuple[type[Wrong], ...] = (
    MergeDropsSegment,
    MergesPastUnread,
    InlinesByPlace,
    RemovesOneBucketTooMany,
    TrimsOneBucketTooMany,
    ManifestFirst,
    SealedPastFrozen,
    LoadsDoneEntries,
    LoadsHeldEntries,
    MergedBeginsTooFar,
    MergedBeginsBehindEntries,
    BarrierIgnored,
    BucketIdReused,
    FrozenDroppedEarly,
)
