"""Routers with one thing wrong each; every one of them is a mistake that looks reasonable while it is made.

Each replaces a class of the code that ships by an override of it. Here those about cursor, watermark and transactions;
in :mod:`.wrong_buckets` those about buckets, in :mod:`.wrong_adopting` those about buckets that others have built, in
:mod:`.wrong_owning` those about other owners, about retention and about what is in a record, in
:mod:`.wrong_recurring` those about recurring schedules, :mod:`.wrong_naming` those about what is cancelled,
:mod:`.wrong_ids` those about where ids are looked up, :mod:`.wrong_moving` those about what is moved,
:mod:`.wrong_spreading` those about bursts.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from index.batch import Batch, Installs
from index.partition import PartitionIndex
from index.pending import Entry
from index.progress import Position, Progress
from index.rule_history import RuleHistory
from sidecar.doubts.aside import Aside
from sidecar.intake.deciding import Deciding
from sidecar.limits import Limits
from sidecar.partition.owned_partition import OwnedPartition
from sidecar.partition.rule_changes import RuleChanges
from sidecar.partition.tail import Tail
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.records import Payload, Refused, Scheduled
from sidecar.release.gate import Gate
from sidecar.release.rates import RateLimits
from sidecar.release.releaser import AFTER, Releaser
from sidecar.release.transaction import Outcome, Request, adoption_in
from snapshots.held import HeldEntry
from tests.simulation import (
    world,
    wrong_adopting,
    wrong_buckets,
    wrong_doubts,
    wrong_ids,
    wrong_moving,
    wrong_naming,
    wrong_owning,
    wrong_recurring,
    wrong_spreading,
)
from tests.simulation.host import SimulatedTransactions
from tests.simulation.replacing import OWNED, Wrong


class _LateOneByOne(PartitionIndex[Payload, Refused]):
    """Lets one late record leave in a batch, as if late ones were subject to a limit like the others."""

    holds_cursor = False

    def plan(
        self, now_ms: int, max_entries: int, max_bytes: int, installs: Installs | None = None
    ) -> Batch[Payload, Refused]:
        kept, self._late = self._late[1:], self._late[:1]
        batch = super().plan(now_ms, max_entries, max_bytes, installs)
        self._late += kept
        progress = batch.progress
        if kept:
            cursor = kept[0][1] if self.holds_cursor else progress.cursor
            progress = progress._replace(cursor=cursor, sealed_to=min(progress.sealed_to, cursor))
        self._in_flight = replace(batch, progress=progress)
        return self._in_flight


class _LateOneByOneHoldingCursor(_LateOneByOne):
    holds_cursor = True


class CursorHeldBack(Wrong):
    """C waits in front of a late record while records beyond it are released."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LateOneByOneHoldingCursor}


class CursorPastLate(Wrong):
    """C passes a late record that has not been released."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LateOneByOne}


class _DecidesByLast(Deciding):
    def __init__(self, history: RuleHistory, *given: Any, **more: Any) -> None:
        super().__init__(RuleHistory.beginning(0, history.in_force), *given, **more)


class NewRulesOnReplay(Wrong):
    """Decides [S, C) again by the rules of today."""

    replaces: ClassVar = {"tests.simulation.host.Deciding": _DecidesByLast}


class _Unwritten(RuleChanges):
    def request(self, ledger: PartitionLedger) -> Request | None:
        request = super().request(ledger)
        if request is not None:
            self.committed(request, ())
        return None


class RulesWithoutEpoch(Wrong):
    """Decides by other rules at once, and leaves it to the next owner to write that down."""

    replaces: ClassVar = {OWNED + "RuleChanges": _Unwritten}


class _FromLastCommit(RuleChanges):
    def request(self, ledger: PartitionLedger) -> Request | None:
        request = super().request(ledger)
        if request is None or request.history is None:
            return request
        history = request.history.with_epoch(ledger.committed.cursor, self.settings.rules)
        before = tuple(epoch for epoch in history.epochs if epoch.from_offset < ledger.committed.cursor)
        began = RuleHistory(before).with_epoch(ledger.committed.cursor, self.settings.rules) if before else history
        return replace(request, history=began)


class EpochAtLastCommit(Wrong):
    """Lets an epoch begin at the C of the last transaction, though more has been indexed since."""

    replaces: ClassVar = {OWNED + "RuleChanges": _FromLastCommit}


class _ReadsOn(Tail):
    def enter(self, history: RuleHistory) -> None:
        self._history = history
        ahead: Any = self._intake
        deciding = ahead._ahead._deciding
        deciding._history, deciding._rules_end = history, 0


class ReadAheadKept(Wrong):
    """Lets what was read ahead stay as it was decided, when an epoch begins before it."""

    replaces: ClassVar = {OWNED + "Tail": _ReadsOn}


class _WaitsForAdoption(OwnedPartition):
    def requests(self, now_ms: int) -> list[Request]:
        requests = [each for each in super().requests(now_ms) if each.history is None]
        adopts = adoption_in(requests) is not None
        change = self._changes.request(self.ledger)
        return [*requests, change] if change and (adopts or not self._adopting.pauses) else requests


class EpochWithAdoption(Wrong):
    """Waits with an epoch for the adoption to come, and begins it before the range that was decided by old rules."""

    replaces: ClassVar = {OWNED + "OwnedPartition": _WaitsForAdoption}


class _HoldsNothing(Gate):
    def __init__(
        self, rates: RateLimits, limits: Limits, _: Iterable[HeldEntry] = (), aside: Aside | None = None
    ) -> None:
        super().__init__(rates, limits, (), aside)


class HeldForgotten(Wrong):
    """Does not look at what the last owner held back."""

    replaces: ClassVar = {OWNED + "Gate": _HoldsNothing}


class _WritesNothing(Gate):
    def state(self) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value in super().state() if value is None]


class HeldInMemory(Wrong):
    """Does not write down what it holds back."""

    replaces: ClassVar = {OWNED + "Gate": _WritesNothing}


class _AllIsDue(Gate):
    def resumed(self, most: int, now_ms: int, most_bytes: int = 1 << 62, doomed: Any = ()) -> list[Entry[Scheduled]]:
        return super().resumed(most, max(now_ms, 1 << 62), most_bytes, doomed)


class HeldTakenForDue(Wrong):
    """Takes what was held for due, though the clock may have been set back since."""

    replaces: ClassVar = {OWNED + "Gate": _AllIsDue}


class _RemovesNothing(Gate):
    def state(self) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value in super().state() if value is not None]


class HeldForEver(Wrong):
    """Does not remove what it has released at last."""

    replaces: ClassVar = {OWNED + "Gate": _RemovesNothing}


class _ProgressFirst(SimulatedTransactions):
    def apply(self, written: world.Transaction) -> list[int]:
        offsets = super().apply(replace(written, left=[]))
        self._around.faults.point("progress")
        super().apply(replace(written, state=[], snapshots=(), withdrawn=()))
        return offsets


class ProgressFirst(Wrong):
    """Moves W before the records it speaks of are committed."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _ProgressFirst}


class _ProgressLast(SimulatedTransactions):
    def apply(self, written: world.Transaction) -> list[int]:
        super().apply(replace(written, state=[], snapshots=(), withdrawn=()))
        self._around.faults.point("records")
        return super().apply(replace(written, left=[]))


class ProgressLast(Wrong):
    """Moves W in a transaction after that of the records it speaks of."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _ProgressLast}


class _NeverReplaying(PartitionIndex[Payload, Refused]):
    @property
    def replaying(self) -> bool:
        return False

    def _cursor_at(self, now_ms: int) -> int:
        return max(super()._cursor_at(now_ms), self._replay_below)


class ReleasesDuringReplay(Wrong):
    """Does not wait until [S, C) is indexed again."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _NeverReplaying}


def _written_again(releaser: Releaser, attempt: Any, transaction: Any, result: Any) -> bool:
    if isinstance(result.error, world.UnknownOutcomeError):
        return releaser.write_again(attempt, transaction, result)
    return releaser.give_up(attempt, transaction, result)


class BatchReused(Wrong):
    """Writes a batch again when the outcome of its transaction is unknown."""

    replaces: ClassVar = {"sidecar.release.releaser.AFTER": {**AFTER, Outcome.UNKNOWN: _written_again}}


class _RoundsDown(PartitionIndex[Payload, Refused]):
    def add(self, run: Sequence[Entry[Payload]]) -> Sequence[Entry[Payload]]:
        return super().add([(due_ms // 10 * 10, offset, payload) for due_ms, offset, payload in run])


class RoundedDown(Wrong):
    """Rounds due times down to a tick."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _RoundsDown}


class _TrustsClock(PartitionIndex[Payload, Refused]):
    def _cursor_at(self, now_ms: int) -> int:
        return self._indexed_to


class ClockOnlyForward(Wrong):
    """Takes every due time at or before W for past, though the clock may have been set back since."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _TrustsClock}


class _DueTimesOnly(PartitionIndex[Payload, Refused]):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        progress = super()._progress_after(due, cursor, installs)
        return progress._replace(watermark=Position(progress.watermark.due_ms, 2**62))


class WatermarkWithoutOffset(Wrong):
    """Compares due times alone, though a batch may end between records of the same one."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _DueTimesOnly}


class _SealsPending(PartitionIndex[Payload, Refused]):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        return super()._progress_after(due, cursor, installs)._replace(sealed_to=cursor)


class SealedPastPending(Wrong):
    """S passes records that are still pending and nowhere else."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _SealsPending}


def _taken_for_committed(releaser: Releaser, attempt: Any, transaction: Any, result: Any) -> bool:
    offsets = [list(range(len(request.segments))) for request in attempt.requests]
    return releaser.confirm(attempt, transaction, replace(result, offsets=offsets))


class AbortTakenForCommit(Wrong):
    """Goes on after a clean abort as if the transaction had been committed."""

    replaces: ClassVar = {"sidecar.release.releaser.AFTER": {**AFTER, Outcome.ABORTED: _taken_for_committed}}


class _Trusting(SimulatedTransactions):
    def has_lost_connection(self) -> bool:
        return False


class AnswerTrusted(Wrong):
    """Begins the next transaction as the same producer, though the last was ended by a request sent twice."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _Trusting}


class _Unfenced(SimulatedTransactions):
    def apply(self, written: world.Transaction) -> list[int]:
        return self._around.store.commit(self._around.store.epoch, written)


class NotFenced(Wrong):
    """Commits whoever owns the partition."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _Unfenced}


def _told_that_all_went_through(releaser: Releaser, attempt: Any, transaction: Any, result: Any) -> bool:
    for request in (*attempt.blamed, *attempt.left_out):
        request.owner.committed(request, list(range(len(request.segments))))
    attempt.blamed, attempt.left_out = [], []
    return releaser.confirm(attempt, transaction, result)


class LeftOutTakenForCommitted(Wrong):
    """Tells an owner whose request was taken out of a transaction that it was committed with it."""

    replaces: ClassVar = {"sidecar.release.releaser.AFTER": {**AFTER, Outcome.COMMITTED: _told_that_all_went_through}}


ALL: tuple[type[Wrong], ...] = (
    CursorHeldBack,
    CursorPastLate,
    NewRulesOnReplay,
    RulesWithoutEpoch,
    EpochAtLastCommit,
    ReadAheadKept,
    EpochWithAdoption,
    HeldForgotten,
    HeldInMemory,
    HeldTakenForDue,
    HeldForEver,
    ProgressFirst,
    ProgressLast,
    ReleasesDuringReplay,
    BatchReused,
    RoundedDown,
    ClockOnlyForward,
    WatermarkWithoutOffset,
    SealedPastPending,
    AbortTakenForCommit,
    LeftOutTakenForCommitted,
    AnswerTrusted,
    NotFenced,
    *wrong_buckets.ALL,
    *wrong_adopting.ALL,
    *wrong_owning.ALL,
    *wrong_recurring.ALL,
    *wrong_naming.ALL,
    *wrong_ids.ALL,
    *wrong_moving.ALL,
    *wrong_spreading.ALL,
    *wrong_doubts.ALL,
)
