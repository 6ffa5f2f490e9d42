"""Routers with one mistake each about cancelled and replaced schedules; see :mod:`.wrong`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from index.named.mask import Mask
from index.named.named import NamedSchedules
from index.named.names import Names
from index.named.places import NO_PLACES, Places
from index.named.receipts import Receipt
from index.named.transit import Transit
from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.headers import SERIES
from index.protocol.record import Record
from sidecar.engine.buckets.ids import Found, StoredIds
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.releaser import Releaser
from sidecar.engine.release.transaction import Transaction
from tests.simulation.replacing import OWNED, Wrong


def _nothing(_: Mask) -> Iterator[tuple[bytes, bytes | None]]:
    return iter(())


class MaskInMemory(Wrong):
    """Keeps cancellations in memory only."""

    replaces: ClassVar = {"sidecar.engine.release.releaser.mask_records": _nothing}


class MaskNotTakenOver(Wrong):
    """Ignores the cancellations of the last owner."""

    replaces: ClassVar = {OWNED + "Mask": lambda _: Mask()}


class _ForgetsBuckets(Mask):
    def forget(self, _ranges: Sequence[range], needed_from: int) -> None:
        super().forget([], needed_from)


class MaskForgottenInBuckets(Wrong):
    """Forgets that a record was cancelled while a bucket still holds it."""

    replaces: ClassVar = {OWNED + "Mask": _ForgetsBuckets}


class _ForgetsUnsealed(Mask):
    def forget(self, ranges: Sequence[range], _needed_from: int) -> None:
        super().forget(ranges, 1 << 40)


class MaskForgottenInLog(Wrong):
    """Forgets that a record was cancelled though the next owner reads that record again."""

    replaces: ClassVar = {OWNED + "Mask": _ForgetsUnsealed}


class _Spares(StoredIds):
    def held(self, _deliver_id: bytes) -> Mapping[Position, int]:
        return {}


class HeldSpared(Wrong):
    """Does not cancel a record that is held for its target."""

    replaces: ClassVar = {OWNED + "StoredIds": _Spares}


class _ReadsNothing(StoredIds):
    def are_known(self, _deliver_id: bytes, _following: Iterable[bytes]) -> bool:
        return True


class BucketsSpared(Wrong):
    """Does not cancel a record in a bucket that another router has sealed."""

    replaces: ClassVar = {OWNED + "StoredIds": _ReadsNothing}


class _ForgetsSealed(Names):
    @property
    def frozen(self) -> Places:
        return NO_PLACES


class SealedSpared(Wrong):
    """Does not cancel a record that it has sealed itself."""

    replaces: ClassVar = {"index.named.named.Names": _ForgetsSealed}


class _DecidesUndelayed(StoredIds):
    def _named(self, offset: int, record: Record) -> Iterator[Found]:
        for deliver_id, place, shift_ms in super()._named(offset, record):
            times = {"deliver-at", "deliver-after", "deliver-every", "deliver-cron", "deliver-series"}
            is_timed = any(name.lower() in times and raw is not None for name, raw in record.headers)
            yield deliver_id, place if is_timed else Position(0, offset), shift_ms


class TopicsDelaySpared(Wrong):
    """Does not cancel a record with the topic's delay in a bucket without pages of ids."""

    replaces: ClassVar = {OWNED + "StoredIds": _DecidesUndelayed}
    limits: ClassVar = {"max_pages": -1}


class _KeepsHeld(Gate):
    def cancel(self, _offsets: Collection[int]) -> frozenset[int]:
        return frozenset()


class HeldNotTakenOut(Wrong):
    """Releases a record that was held for its target when it was cancelled."""

    replaces: ClassVar = {OWNED + "Gate": _KeepsHeld}


class _GivesOutDoomed(Gate):
    def resumed(self, most: int, now_ms: int, most_bytes: int = 1 << 62, _doomed: Any = ()) -> list[Entry[Scheduled]]:
        return super().resumed(most, now_ms, most_bytes)


class DoomedResumed(Wrong):
    """Releases a held record in the transaction of the receipt that says it is cancelled."""

    replaces: ClassVar = {OWNED + "Gate": _GivesOutDoomed}


class _SparesLate(PartitionLedger):
    def is_pending(self, place: Position) -> bool:
        return place > self._committed.watermark


class LateSpared(Wrong):
    """Does not cancel a late record that has not left."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _SparesLate}


class _AnswersAgain(PartitionLedger):
    def is_settled(self, offset: int) -> bool:
        return super().is_settled(offset) and offset < self._committed.sealed_to


class AnsweredAgain(Wrong):
    """Answers a control a second time when it reads the control again."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _AnswersAgain}


class _LetsGoAtOnce(PartitionLedger):
    def control(self, *given: Any, **more: Any) -> Any:
        receipt, added = super().control(*given, **more)
        if receipt is not None:
            self._pending.cancel(receipt.cancelled)
        return receipt, added


class LetGoBeforeReceipt(Wrong):
    """Drops cancelled schedules before the receipt is committed."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LetsGoAtOnce}


class _AnswersLater(Releaser):
    _owed: Sequence[Receipt] = ()

    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        owed, _AnswersLater._owed = self._owed, transaction.receipts
        return replace(transaction, receipts=owed)


class AnsweredLater(Wrong):
    """Writes a receipt one transaction after the control is passed, and that transaction may never come."""

    replaces: ClassVar = {OWNED + "Releaser": _AnswersLater}


class _NeverVoid(NamedSchedules):
    def evaluate(self, *given: Any) -> Receipt:
        return super().evaluate(*given)._replace(voids_itself=False)


class ReplacesNothing(Wrong):
    """Accepts a replacement as a schedule though no schedule is due at the time that it names."""

    replaces: ClassVar = {"index.partition.entering.NamedSchedules": _NeverVoid}


class _FindsNothing(Transit):
    def find(self, _id_hash: bytes, _offset: int) -> list[Position]:
        return []


class TransitSpared(Wrong):
    """Does not cancel the next occurrence of a series that has been written and has not been read yet."""

    replaces: ClassVar = {OWNED + "Transit": _FindsNothing}


class TransitNotTakenOver(Wrong):
    """Ignores unread records that the last owner has written to the delay partition."""

    replaces: ClassVar = {OWNED + "Transit": lambda _: Transit()}


class _ReachesNowhere(Transit):
    @property
    def reaches(self) -> int:
        return 0


class CancelledInTransitReleased(Wrong):
    """Indexes a record that was cancelled before it was read."""

    replaces: ClassVar = {OWNED + "Transit": _ReachesNowhere}


class _ForgetsUnread(Transit):
    def leave(self, _cursor: int) -> None:
        self.leaving = tuple(self._lots)


class TransitForgotten(Wrong):
    """Removes the note of an occurrence with the next transaction, though the occurrence may be unread."""

    replaces: ClassVar = {OWNED + "Transit": _ForgetsUnread}


class ReplacesAgain(Wrong):
    """Lets every occurrence of a series replace the schedule that only the first one replaces."""

    replaces: ClassVar = {"index.protocol.occurrences._OF_ONE": frozenset((SERIES,))}


ALL: tuple[type[Wrong], ...] = (
    MaskInMemory,
    MaskNotTakenOver,
    MaskForgottenInBuckets,
    MaskForgottenInLog,
    HeldSpared,
    BucketsSpared,
    TopicsDelaySpared,
    SealedSpared,
    HeldNotTakenOut,
    DoomedResumed,
    LateSpared,
    AnsweredAgain,
    LetGoBeforeReceipt,
    AnsweredLater,
    ReplacesNothing,
    TransitSpared,
    TransitNotTakenOver,
    CancelledInTransitReleased,
    TransitForgotten,
    ReplacesAgain,
)
