"""Wrong routers: each has one mistake, of a kind that looks reasonable to the author who makes it.

Each wrong router replaces a class of the shipped code by an override. The routers are grouped by the subject of the
mistake:

* here: cursor, watermark and transactions
* :mod:`.wrong_buckets`: the router's own buckets
* :mod:`.wrong_adopting`: buckets that were adopted
* :mod:`.wrong_lanes`: producers that several partitions share
* :mod:`.wrong_groups`: two groups of routers on one topic
* :mod:`.wrong_owning`: take-overs, other owners, retention, and the content of a record
* :mod:`.wrong_recurring`: recurring schedules
* :mod:`.wrong_naming`: cancelled and replaced schedules
* :mod:`.wrong_ids`: pages of ids
* :mod:`.wrong_moving`: moved schedules
* :mod:`.wrong_querying`: schedules that are cancelled by query
* :mod:`.wrong_spreading`: spread bursts
* :mod:`.wrong_retrying`: attempts
* :mod:`.wrong_doubts`: places in doubt
* :mod:`.wrong_refusing`: records that brokers refuse, and batches that nobody can read
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from index.partition.batch import Batch, Installs
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from index.rules.rule_history import RuleHistory
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.limits import Limits
from sidecar.engine.ownership.owned_partition import OwnedPartition
from sidecar.engine.ownership.rule_changes import RuleChanges
from sidecar.engine.ownership.tail import PartitionTail
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Payload, Refused, Scheduled
from sidecar.engine.release.aside import Aside
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.rates import RateLimits
from sidecar.engine.release.releaser import AFTER, Releaser
from sidecar.engine.release.transaction import Outcome, Request, adoption_in
from snapshots.state.held import HeldEntry
from tests.simulation import (
    world,
    wrong_adopting,
    wrong_buckets,
    wrong_doubts,
    wrong_groups,
    wrong_ids,
    wrong_lanes,
    wrong_moving,
    wrong_naming,
    wrong_owning,
    wrong_querying,
    wrong_recurring,
    wrong_refusing,
    wrong_retrying,
    wrong_spreading,
)
from tests.simulation.host import SimulatedTransactions
from tests.simulation.replacing import OWNED, Wrong


class _LateOneByOne(PartitionIndex[Payload, Refused]):
    """Lets one late record leave in a batch, as if the limit of a batch counted late records."""

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
    """Holds C back in front of a late record, and releases the records beyond it."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LateOneByOneHoldingCursor}


class CursorPastLate(Wrong):
    """Moves C past a late record that has not been released."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _LateOneByOne}


class _DecidesByLast(Deciding):
    def __init__(self, history: RuleHistory, *given: Any, **more: Any) -> None:
        super().__init__(RuleHistory.beginning(0, history.in_force), *given, **more)


class NewRulesOnReplay(Wrong):
    """Decides [S, C) again by the current rules."""

    replaces: ClassVar = {"tests.simulation.host.Deciding": _DecidesByLast}


class _Unwritten(RuleChanges):
    def request(self, ledger: PartitionLedger, held: Iterable[int]) -> Request | None:
        request = super().request(ledger, held)
        if request is not None:
            self.committed(request, ())
        return None


class RulesWithoutEpoch(Wrong):
    """Decides by the new rules at once, and leaves the note about it to the next owner."""

    replaces: ClassVar = {OWNED + "RuleChanges": _Unwritten}


class _FromLastCommit(RuleChanges):
    def request(self, ledger: PartitionLedger, held: Iterable[int]) -> Request | None:
        request = super().request(ledger, held)
        if request is None or request.history is None:
            return request
        history = request.history.with_epoch(ledger.committed.cursor, self.settings.rules)
        before = tuple(epoch for epoch in history.epochs if epoch.from_offset < ledger.committed.cursor)
        began = RuleHistory(before).with_epoch(ledger.committed.cursor, self.settings.rules) if before else history
        return replace(request, history=began)


class EpochAtLastCommit(Wrong):
    """Begins an epoch at the C of the last transaction, though more records have been indexed since."""

    replaces: ClassVar = {OWNED + "RuleChanges": _FromLastCommit}


class _ReadsOn(PartitionTail):
    def enter(self, history: RuleHistory) -> None:
        self._history = history
        ahead: Any = self._intake
        deciding = ahead._ahead._deciding
        deciding._history, deciding._rules_end = history, 0


class ReadAheadKept(Wrong):
    """Keeps the decisions for records that were read ahead, when an epoch begins before them."""

    replaces: ClassVar = {OWNED + "PartitionTail": _ReadsOn}


class _WaitsForAdoption(OwnedPartition):
    def requests(self, now_ms: int) -> list[Request]:
        requests = [each for each in super().requests(now_ms) if each.history is None]
        adopts = adoption_in(requests) is not None
        change = self._changes.request(self.ledger, self.gate.offsets)
        return [*requests, change] if change and (adopts or not self._adopting.pauses) else requests


class EpochWithAdoption(Wrong):
    """Delays an epoch until the adoption commits, and begins it before the range that the old rules decided."""

    replaces: ClassVar = {OWNED + "OwnedPartition": _WaitsForAdoption}


class _HoldsNothing(Gate):
    def __init__(
        self, rates: RateLimits, limits: Limits, _: Iterable[HeldEntry] = (), aside: Aside | None = None
    ) -> None:
        super().__init__(rates, limits, (), aside)


class HeldForgotten(Wrong):
    """Ignores the records that the last owner held back."""

    replaces: ClassVar = {OWNED + "Gate": _HoldsNothing}


class _WritesNothing(Gate):
    def state(self) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value in super().state() if value is None]


class HeldInMemory(Wrong):
    """Keeps the records that it holds back in memory only."""

    replaces: ClassVar = {OWNED + "Gate": _WritesNothing}


class _AllIsDue(Gate):
    def resumed(self, most: int, now_ms: int, most_bytes: int = 1 << 62, doomed: Any = ()) -> list[Entry[Scheduled]]:
        return super().resumed(most, max(now_ms, 1 << 62), most_bytes, doomed)


class HeldTakenForDue(Wrong):
    """Treats every held record as due, though the clock may have been set back since."""

    replaces: ClassVar = {OWNED + "Gate": _AllIsDue}


class _RemovesNothing(Gate):
    def state(self) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value in super().state() if value is not None]


class HeldForEver(Wrong):
    """Keeps a held record in the state after its release."""

    replaces: ClassVar = {OWNED + "Gate": _RemovesNothing}


class _ProgressFirst(SimulatedTransactions):
    def apply(self, written: world.Transaction) -> list[int]:
        offsets = super().apply(replace(written, left=[]))
        self._around.faults.point("progress")
        super().apply(replace(written, state=[], snapshots=(), withdrawn=()))
        return offsets


class ProgressFirst(Wrong):
    """Moves W before the records up to W are committed."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _ProgressFirst}


class _ProgressLast(SimulatedTransactions):
    def apply(self, written: world.Transaction) -> list[int]:
        super().apply(replace(written, state=[], snapshots=(), withdrawn=()))
        self._around.faults.point("records")
        return super().apply(replace(written, left=[]))


class ProgressLast(Wrong):
    """Moves W in the transaction after the one that holds the records up to W."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _ProgressLast}


class _NeverReplaying(PartitionIndex[Payload, Refused]):
    @property
    def replaying(self) -> bool:
        return False

    def _cursor_at(self, now_ms: int) -> int:
        return max(super()._cursor_at(now_ms), self._replay_below)


class ReleasesDuringReplay(Wrong):
    """Releases before [S, C) is indexed again."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _NeverReplaying}


def _written_again(releaser: Releaser, attempt: Any, transaction: Any, result: Any) -> bool:
    if isinstance(result.error, world.UnknownOutcomeError):
        return releaser.write_again(attempt, transaction, result)
    return releaser.give_up(attempt, transaction, result)


class BatchReused(Wrong):
    """Writes a batch again when the outcome of its transaction is unknown."""

    replaces: ClassVar = {"sidecar.engine.release.releaser.AFTER": {**AFTER, Outcome.UNKNOWN: _written_again}}


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
    """Treats every due time at or before W as past, though the clock may have been set back since."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _TrustsClock}


class _DueTimesOnly(PartitionIndex[Payload, Refused]):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        progress = super()._progress_after(due, cursor, installs)
        return progress._replace(watermark=Position(progress.watermark.due_ms, 2**62))


class WatermarkWithoutOffset(Wrong):
    """Compares due times alone, though a batch may end between two records with the same due time."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _DueTimesOnly}


class _SealsPending(PartitionIndex[Payload, Refused]):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        return super()._progress_after(due, cursor, installs)._replace(sealed_to=cursor)


class SealedPastPending(Wrong):
    """Moves S past records that are pending and stored nowhere else."""

    replaces: ClassVar = {OWNED + "PartitionIndex": _SealsPending}


def _taken_for_committed(releaser: Releaser, attempt: Any, transaction: Any, result: Any) -> bool:
    offsets = [list(range(len(request.segments))) for request in attempt.requests]
    return releaser.confirm(attempt, transaction, replace(result, offsets=offsets))


class AbortTakenForCommit(Wrong):
    """Treats a clean abort as a commit, and goes on."""

    replaces: ClassVar = {"sidecar.engine.release.releaser.AFTER": {**AFTER, Outcome.ABORTED: _taken_for_committed}}


class _Trusting(SimulatedTransactions):
    def has_lost_connection(self) -> bool:
        return False


class AnswerTrusted(Wrong):
    """Begins the next transaction with the same producer, though a request that ended the last one was sent twice."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _Trusting}


class _Unfenced(SimulatedTransactions):
    def apply(self, written: world.Transaction) -> list[int]:
        return self._around.store.commit(self._around.store.present(self._held.transactional_id), written)


class NotFenced(Wrong):
    """Commits although another owner has the partition."""

    replaces: ClassVar = {"tests.simulation.host.SimulatedTransactions": _Unfenced}


def _told_that_all_went_through(releaser: Releaser, attempt: Any, transaction: Any, result: Any) -> bool:
    for request in (*attempt.blamed, *attempt.left_out):
        request.owner.committed(request, list(range(len(request.segments))))
    attempt.blamed, attempt.left_out = [], []
    return releaser.confirm(attempt, transaction, result)


class LeftOutTakenForCommitted(Wrong):
    """Reports a request as committed to an owner though the transaction left that request out."""

    replaces: ClassVar = {
        "sidecar.engine.release.releaser.AFTER": {**AFTER, Outcome.COMMITTED: _told_that_all_went_through}
    }


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
    *wrong_lanes.ALL,
    *wrong_groups.ALL,
    *wrong_recurring.ALL,
    *wrong_naming.ALL,
    *wrong_ids.ALL,
    *wrong_moving.ALL,
    *wrong_querying.ALL,
    *wrong_spreading.ALL,
    *wrong_retrying.ALL,
    *wrong_doubts.ALL,
    *wrong_refusing.ALL,
)
