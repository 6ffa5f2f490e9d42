"""Routers with one thing wrong about what is cancelled and replaced; see :mod:`.wrong`."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from index.headers import SERIES
from index.id_runs import NO_PLACES, Places
from index.mask import Mask
from index.named import NamedSchedules
from index.names import Names
from index.pending import Entry
from index.progress import Position
from index.receipts import Receipt
from index.record import Record
from index.transit import Transit
from sidecar.buckets.ids import Found, StoredIds
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.records import Scheduled
from sidecar.release.gate import Gate
from sidecar.release.releaser import Releaser
from sidecar.release.transaction import Transaction
from tests.simulation.replacing import OWNED, Wrong


def _nothing(_: Mask) -> Iterator[tuple[bytes, bytes | None]]:
    return iter(())


class MaskInMemory(Wrong):
    """Does not write down what was cancelled."""

    replaces: ClassVar = {"sidecar.release.releaser.mask_records": _nothing}


class MaskNotTakenOver(Wrong):
    """Does not look at what the last owner has cancelled."""

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
    """Forgets that a record was cancelled which the next owner reads again."""

    replaces: ClassVar = {OWNED + "Mask": _ForgetsUnsealed}


class _Spares(StoredIds):
    def held(self, _deliver_id: bytes) -> Mapping[Position, int]:
        return {}


class HeldSpared(Wrong):
    """Does not cancel what is held for its target."""

    replaces: ClassVar = {OWNED + "StoredIds": _Spares}


class _ReadsNothing(StoredIds):
    def are_known(self, _deliver_id: bytes, _following: Iterable[bytes]) -> bool:
        self._ledger.named.names.ask()
        return True


class BucketsSpared(Wrong):
    """Does not cancel what lies in buckets that it has not sealed itself."""

    replaces: ClassVar = {OWNED + "StoredIds": _ReadsNothing}


class _ForgetsSealed(Names):
    @property
    def frozen(self) -> Places:
        return NO_PLACES


class SealedSpared(Wrong):
    """Does not cancel what it has sealed itself."""

    replaces: ClassVar = {"index.named.Names": _ForgetsSealed}


class _DecidesUndelayed(StoredIds):
    def _named(self, offset: int, record: Record) -> Iterator[Found]:
        for deliver_id, place, shift_ms in super()._named(offset, record):
            times = {"deliver-at", "deliver-after", "deliver-every", "deliver-cron", "deliver-series"}
            is_timed = any(name.lower() in times and raw is not None for name, raw in record.headers)
            yield deliver_id, place if is_timed else Position(0, offset), shift_ms


class TopicsDelaySpared(Wrong):
    """Does not cancel what lies in a bucket without pages of ids and has its due time from the topic."""

    replaces: ClassVar = {OWNED + "StoredIds": _DecidesUndelayed}
    limits: ClassVar = {"max_pages": -1}


class _KeepsHeld(Gate):
    def cancel(self, _offsets: Collection[int]) -> frozenset[int]:
        return frozenset()


class HeldNotTakenOut(Wrong):
    """Releases what was held for its target when it was cancelled."""

    replaces: ClassVar = {OWNED + "Gate": _KeepsHeld}


class _GivesOutDoomed(Gate):
    def resumed(self, most: int, now_ms: int, most_bytes: int = 1 << 62, _doomed: Any = ()) -> list[Entry[Scheduled]]:
        return super().resumed(most, now_ms, most_bytes)


class DoomedResumed(Wrong):
    """Releases what was held for its target together with the receipt that says it is cancelled."""

    replaces: ClassVar = {OWNED + "Gate": _GivesOutDoomed}


class _SparesLate(PartitionLedger):
    def _is_pending(self, place: Position) -> bool:
        return place > self._committed.watermark


class LateSpared(Wrong):
    """Does not cancel what is late and has not left."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _SparesLate}


class _AnswersAgain(PartitionLedger):
    def is_settled(self, offset: int) -> bool:
        return super().is_settled(offset) and offset < self._committed.sealed_to


class AnsweredAgain(Wrong):
    """Answers a control again when it is read again."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _AnswersAgain}


class _LetsGoAtOnce(PartitionLedger):
    def control(self, *given: Any, **more: Any) -> Any:
        receipt, added = super().control(*given, **more)
        if receipt is not None:
            self._pending.cancel(receipt.cancelled)
        return receipt, added


class LetGoBeforeReceipt(Wrong):
    """Lets go of what is cancelled before the receipt is committed."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LetsGoAtOnce}


class _AnswersLater(Releaser):
    _owed: Sequence[Receipt] = ()

    def _transaction(self, attempt: Any) -> Transaction:
        transaction = super()._transaction(attempt)
        owed, _AnswersLater._owed = self._owed, transaction.receipts
        return replace(transaction, receipts=owed)


class AnsweredLater(Wrong):
    """Writes a receipt with the transaction after that which passes the control, which may never come."""

    replaces: ClassVar = {OWNED + "Releaser": _AnswersLater}


class _NeverVoid(NamedSchedules):
    def evaluate(self, *given: Any) -> Receipt:
        return super().evaluate(*given)._replace(voids_itself=False)


class ReplacesNothing(Wrong):
    """Takes a replacement for a schedule though nothing is due when it was to be."""

    replaces: ClassVar = {"index.entering.NamedSchedules": _NeverVoid}


def _note_nothing(*_: Any) -> None:
    """Leave out where the next occurrence lies."""


class TransitSpared(Wrong):
    """Does not cancel the next occurrence of a series while it is written and not read yet."""

    replaces: ClassVar = {"sidecar.series.occurring._note": _note_nothing}


class TransitNotTakenOver(Wrong):
    """Does not look at what the last owner has written to the delay partition and nobody has read."""

    replaces: ClassVar = {OWNED + "Transit": lambda _: Transit()}


class _ReachesNowhere(Transit):
    @property
    def reaches(self) -> int:
        return 0


class CancelledInTransitReleased(Wrong):
    """Takes in what it reads though it was cancelled before that."""

    replaces: ClassVar = {OWNED + "Transit": _ReachesNowhere}


class _ForgetsUnread(Transit):
    def leave(self, _cursor: int) -> None:
        self.leaving = tuple(self._lots)


class TransitForgotten(Wrong):
    """Removes the note of an occurrence with the next transaction, whether it was read or not."""

    replaces: ClassVar = {OWNED + "Transit": _ForgetsUnread}


class ReplacesAgain(Wrong):
    """Lets every occurrence of a series replace what the first one was to replace."""

    replaces: ClassVar = {"index.occurrences._OF_ONE": frozenset((SERIES,))}


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
