"""Routers with one mistake each in the adoption of buckets."""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, ClassVar

from index.buckets.bucket import Bucket, Manifest
from index.buckets.retention import Kept
from index.partition.adopting import Adoption
from index.partition.batch import Installs
from index.partition.partition import PartitionIndex
from index.partition.pending_set import PendingSet
from index.pending.pending import Entry
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress
from index.protocol.record import Record
from sidecar.engine.buckets.segments import SegmentSource
from sidecar.engine.buckets.trimming import Trimming
from sidecar.engine.ownership.adopting import Adopting
from sidecar.engine.payload.records import Payload, Refused
from sidecar.engine.ports import Records
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.transaction import Request, Transaction
from snapshots.segments.segment import StoredEntry
from tests.simulation.replacing import OWNED, Wrong
from tests.simulation.wrong_buckets import _WithParts


class _TakenForReleased(Adoption):
    def behind(self, watermark: Position) -> tuple[Behind, ...]:
        return ()


class _AdoptsUnderWatermark(Adopting):
    def request(self, bucket_id: int) -> Request | None:
        request = super().request(bucket_id)
        if request is None or not isinstance(request.installs, Adoption):
            return request
        return replace(request, installs=_TakenForReleased(request.installs.manifest))


class AdoptedUnderWatermark(Wrong):
    """Treats records at or before W in an adopted bucket as released."""

    replaces: ClassVar = {OWNED + "Adopting": _AdoptsUnderWatermark}


class _Forgets(Releaser):
    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        return replace(transaction, progress=transaction.progress._replace(catching_up=()))


class WatermarkForgotten(Wrong):
    """Leaves out the watermarks of adopted buckets, so that W stands for them after a restart."""

    replaces: ClassVar = {OWNED + "Releaser": _Forgets}


class _BeginsAgain(Releaser):
    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        behind = tuple(Behind(bucket_id, BEFORE_ALL) for bucket_id, _ in transaction.progress.catching_up)
        return replace(transaction, progress=transaction.progress._replace(catching_up=behind))


class CatchesUpAgain(Wrong):
    """Records that an adopted bucket is catching up, and leaves out how far it has come."""

    replaces: ClassVar = {OWNED + "Releaser": _BeginsAgain}


class _Unmasked(PendingSet[Payload]):
    def _fresh(
        self, bucket: Bucket, entries: Sequence[Entry[Payload]], watermark: Position
    ) -> Sequence[Entry[Payload]]:
        manifest = bucket.manifest
        bucket.manifest = replace(manifest, from_offset=manifest.segments_from)
        fresh = super()._fresh(bucket, entries, watermark)
        bucket.manifest = manifest
        return fresh


class _LedgerUnmasked(_WithParts):
    parts_type = _Unmasked


class _SourceUnmasked(SegmentSource):
    def stored(self, manifest: Manifest, number: int, record: Record | None, reader: Records) -> list[StoredEntry]:
        return super().stored(replace(manifest, from_offset=manifest.segments_from), number, record, reader)


class NotMasked(Wrong):
    """Releases the records of an adopted bucket below the cursor that adopted it, which its own buckets release too."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerUnmasked, OWNED + "SegmentSource": _SourceUnmasked}


class _AnyTime(PartitionIndex[Payload, Refused]):
    @property
    def may_adopt(self) -> bool:
        return self._in_flight is None and not self.replaying and not self.owed and self._pending.frozen is None


class _BesideUnsealed(PendingSet[Payload]):
    @property
    def is_sealed(self) -> bool:
        return True


class _LedgerUnsealed(_WithParts, _AnyTime):
    parts_type = _BesideUnsealed


class AdoptedUnsealed(Wrong):
    """Moves C to the end of an adopted bucket while only memory holds [S, C), and leaves S behind."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LedgerUnsealed}


class _PastUnsealed(_LedgerUnsealed):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        progress = super()._progress_after(due, cursor, installs)
        return progress._replace(sealed_to=cursor) if isinstance(installs, Adoption) else progress


class AdoptedPastUnsealed(Wrong):
    """Moves C and S to the end of an adopted bucket while only memory holds [S, C)."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _PastUnsealed}


class _AsDecided(Trimming):
    def _ask(self, looked: "Future[Kept]", _needed_from: tuple[int, int]) -> None:
        super()._ask(looked, self._wanted)


class TrimsWhatIsStaged(Wrong):
    """Trims by the needs that its own buckets had at the decision, and ignores every other need."""

    replaces: ClassVar = {
        "tests.simulation.host.kept_by_backfills": lambda *_: Kept(),
        "tests.simulation.host.Trimming": _AsDecided,
    }


ALL: tuple[type[Wrong], ...] = (
    AdoptedUnderWatermark,
    WatermarkForgotten,
    CatchesUpAgain,
    NotMasked,
    AdoptedUnsealed,
    AdoptedPastUnsealed,
    TrimsWhatIsStaged,
)
