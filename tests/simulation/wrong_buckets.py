"""Routers that seal, load, merge or remove wrongly, in one thing each."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from pyroaring import BitMap64

from index.batch import Installation
from index.bucket import Bucket, Manifest
from index.partition import PartitionIndex
from index.pending import Entry, PendingIndex
from index.pending_set import PendingSet
from index.progress import BEFORE_ALL, Position, Progress
from index.rules import Rules
from sidecar.payload.records import Leaving, Payload, Refused
from sidecar.release.chores import Chores
from snapshots.manifest import manifest_key, segment_key
from tests.simulation.router import Router, Surroundings
from tests.simulation.world import AbortedError, SegmentsRefusedError, Transaction


class Wrong(Router):
    """Caught from outside, and not by the assertions of what it is made of."""

    checks_itself = False


class _WithParts(PartitionIndex[Payload, Refused]):
    parts_type: type[PendingSet[Payload]]

    def __init__(self, progress: Progress, size_of: Callable[[Payload], int], buckets: Iterable[Manifest] = ()) -> None:
        super().__init__(progress, size_of, buckets)
        parts = self.parts_type(progress.sealed_to)
        parts.buckets = self._pending.buckets
        parts.catching_up = self._pending.catching_up
        self._pending = parts


class MergeDropsSegment(Wrong):
    """Leaves a segment of a merged bucket out of its manifest."""

    def chores(self, now_ms: int) -> Chores:
        chores = super().chores(now_ms)
        if not isinstance(chores.installs, Installation) or not chores.installs.merged_from:
            return chores
        if len(chores.installs.manifest.segments) == 1:
            return chores
        manifest = chores.installs.manifest
        fewer = replace(manifest, segments=manifest.segments[:-1])
        return replace(chores, installs=replace(chores.installs, manifest=fewer))


class RemovesOneBucketTooMany(Wrong):
    """Removes the bucket after the one that has left."""

    def chores(self, now_ms: int) -> Chores:
        chores = super().chores(now_ms)
        gone = [each for each in self.ledger.parts.buckets if manifest_key(each) in chores.removed]
        following = [each for each in self.ledger.parts.buckets if gone and each > max(gone)]
        if chores.installs is not None or not following:
            return chores
        return replace(chores, removed=(*chores.removed, manifest_key(min(following))))


class TrimsOneBucketTooMany(Wrong):
    """Trims both topics up to what the bucket after the first one needs."""

    def needing(self) -> list[Bucket]:
        return sorted(super().needing(), key=lambda bucket: bucket.manifest.from_offset)[1:]


class ManifestFirst(Wrong):
    """Commits a manifest before the segments it names, whose offsets can be foretold, after all."""

    def __init__(self, around: Surroundings, rules: Rules) -> None:
        super().__init__(around, rules)
        self._behind: list[tuple[bytes, bytes | None]] = []

    def write(self, batch: Leaving, chores: Chores, now_ms: int) -> list[int]:
        foretold = self.around.store.snapshots_end + len(self._behind)
        held_back = (*chores.segments, *((key, None) for key in chores.reclaimed))
        super().write(batch, replace(chores, segments=(), reclaimed=()), now_ms)
        self._behind += held_back
        if chores.installs is not None:
            self.around.faults.point("manifest", rare=True)
            self._commit_behind(now_ms)
        return list(range(foretold, foretold + len(chores.segments)))

    def _commit_behind(self, now_ms: int) -> None:
        while self._behind:
            with suppress(AbortedError, SegmentsRefusedError):
                self.commit(Transaction(now_ms, [], [], tuple(self._behind)))
                self._behind = []


class _PastFrozen(PendingSet[Payload]):
    def lowest_unsealed(self, *, without_frozen: bool = False) -> int | None:
        return super().lowest_unsealed(without_frozen=True)


class _LedgerPastFrozen(_WithParts):
    parts_type = _PastFrozen


class SealedPastFrozen(Wrong):
    """S passes the bucket that is being sealed before its manifest is committed."""

    ledger_type = _LedgerPastFrozen


class _LoadsDone(PendingSet[Payload]):
    def load(
        self, bucket_id: int, number: int, entries: Sequence[Entry[Payload]], watermark: Position
    ) -> list[Entry[Payload]]:
        return super().load(bucket_id, number, entries, BEFORE_ALL)


class _LedgerLoadsDone(_WithParts):
    parts_type = _LoadsDone


class LoadsDoneEntries(Wrong):
    """Takes entries at or before W out of a segment for pending."""

    ledger_type = _LedgerLoadsDone


class _LoadsHeld(PendingSet[Payload]):
    def load(
        self, bucket_id: int, number: int, entries: Sequence[Entry[Payload]], watermark: Position
    ) -> list[Entry[Payload]]:
        self._held = BitMap64()
        return super().load(bucket_id, number, entries, watermark)


class _LedgerLoadsHeld(_WithParts):
    parts_type = _LoadsHeld


class LoadsHeldEntries(Wrong):
    """Takes in entries of a merged bucket that its sources had loaded already."""

    ledger_type = _LedgerLoadsHeld


class _NoBarrier(PendingSet[Payload]):
    def barrier(self) -> Position | None:
        return None


class _LedgerNoBarrier(_WithParts):
    parts_type = _NoBarrier


class BarrierIgnored(Wrong):
    """Releases beyond entries that have not been loaded."""

    ledger_type = _LedgerNoBarrier


class BucketIdReused(Wrong):
    """Writes segments under the id of the bucket before, which may be in force."""

    def write(self, batch: Leaving, chores: Chores, now_ms: int) -> list[int]:
        return super().write(batch, replace(chores, segments=tuple(map(_of_bucket_before, chores.segments))), now_ms)


def _of_bucket_before(segment: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    bucket_id, number = map(int, segment[0].split(b"/"))
    return segment_key(max(0, bucket_id - 1), number), segment[1]


class FrozenDroppedEarly(Wrong):
    """Lets go of entries once their segments are committed, while no manifest says so."""

    def done(self, chores: Chores, record_offsets: list[int]) -> None:
        super().done(chores, record_offsets)
        frozen = self.ledger.parts.frozen
        if chores.segments and frozen is not None:
            frozen.entries = PendingIndex()


ALL: tuple[type[Router], ...] = (
    MergeDropsSegment,
    RemovesOneBucketTooMany,
    TrimsOneBucketTooMany,
    ManifestFirst,
    SealedPastFrozen,
    LoadsDoneEntries,
    LoadsHeldEntries,
    BarrierIgnored,
    BucketIdReused,
    FrozenDroppedEarly,
)
