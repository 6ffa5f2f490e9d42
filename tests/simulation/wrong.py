"""Routers with one thing wrong each; every one of them is a mistake that looks reasonable while it is made.

Here those about cursor, watermark and transactions; in :mod:`.wrong_buckets` those about buckets, in
:mod:`.wrong_adopting` those about buckets that others have built, in :mod:`.wrong_owning` those about other owners,
about retention and about what is in a record.
"""

from dataclasses import replace

from index.adopting import Adoption
from index.batch import Batch, Installs
from index.partition import PartitionIndex
from index.pending import Entry
from index.progress import Position, Progress
from index.rule_history import RuleEpoch, RuleHistory
from index.rules import Rules
from index.schedule import Schedule
from sidecar.payload.records import Leaving, Payload, Refused
from sidecar.release.chores import Chores
from snapshots.held import HeldEntry
from snapshots.state import PartitionState
from tests.simulation import wrong_adopting, wrong_buckets, wrong_owning
from tests.simulation.router import Router, state_of_chores
from tests.simulation.world import AbortedError, Transaction, UnknownOutcomeError
from tests.simulation.wrong_buckets import Wrong


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

    ledger_type = _LateOneByOneHoldingCursor


class CursorPastLate(Wrong):
    """C passes a late record that has not been released."""

    ledger_type = _LateOneByOne


class NewRulesOnReplay(Wrong):
    """Decides [S, C) again by the rules of today."""

    def rules_at(self, offset: int) -> Rules:
        return self.rules


class ProgressFirst(Wrong):
    """Moves W before the records it speaks of are committed."""

    def write(self, batch: Leaving, chores: Chores, now_ms: int) -> list[int]:
        record_offsets = self.commit(self._without_records(batch, chores, now_ms))
        self.around.faults.point("progress")
        self.commit(Transaction(now_ms, self.leaving(batch), []))
        return record_offsets

    def _without_records(self, batch: Leaving, chores: Chores, now_ms: int) -> Transaction:
        state = self.state_with([*state_of_chores(chores), *self.state_of_gate()], batch.progress)
        return Transaction(now_ms, [], state, chores.segments)


class ProgressLast(ProgressFirst):
    """Moves W in a transaction after that of the records it speaks of."""

    def write(self, batch: Leaving, chores: Chores, now_ms: int) -> list[int]:
        self.commit(Transaction(now_ms, self.leaving(batch), []))
        self.around.faults.point("records")
        return self.commit(self._without_records(batch, chores, now_ms))


class _NeverReplaying(PartitionIndex[Payload, Refused]):
    @property
    def replaying(self) -> bool:
        return False

    def _cursor_at(self, now_ms: int) -> int:
        return max(super()._cursor_at(now_ms), self._replay_below)


class RulesWithoutEpoch(Wrong):
    """Decides by other rules at once, and leaves it to the next owner to write that down."""

    def chores(self, now_ms: int) -> Chores:
        return replace(super().chores(now_ms), history=None)

    def rules_at(self, offset: int) -> Rules:
        return self.rules if offset >= self.ledger.committed.cursor else super().rules_at(offset)


class EpochAtLastCommit(Wrong):
    """Lets an epoch begin at the C of the last transaction, though more has been indexed since."""

    def changed_history(self) -> RuleHistory:
        cursor = self.ledger.committed.cursor
        before = [epoch for epoch in super().changed_history().epochs if epoch.from_offset < cursor]
        return RuleHistory((*before, RuleEpoch(cursor, self.rules)))


class ReadAheadKept(Wrong):
    """Lets what was read ahead stay as it was decided, when an epoch begins before it."""

    ahead_to = 0
    ahead_by: Rules

    def enter(self, committed: RuleHistory) -> None:
        self.ahead_by, self.ahead_to = self.in_force, self.ledger.indexed_to + 2
        super().enter(committed)

    def rules_at(self, offset: int) -> Rules:
        return self.ahead_by if self.history.last.from_offset <= offset < self.ahead_to else super().rules_at(offset)


class EpochWithAdoption(Wrong):
    """Waits with an epoch for the adoption to come, and begins it before the range that was decided by old rules."""

    def chores(self, now_ms: int) -> Chores:
        chores = super().chores(now_ms)
        if self.rules == self.history.in_force:
            return chores
        waits = self.adopting.pauses and not isinstance(chores.installs, Adoption)
        return replace(chores, history=None if waits else self.changed_history())


class HeldForgotten(Wrong):
    """Does not look at what the last owner held back."""

    def held_by(self, stored: PartitionState | None) -> tuple[HeldEntry, ...]:
        return ()


class HeldInMemory(Wrong):
    """Does not write down what it holds back."""

    def state_of_gate(self) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value in super().state_of_gate() if value is None]


class HeldTakenForDue(Wrong):
    """Takes what was held for due, though the clock may have been set back since."""

    def clock_of_gate(self, now_ms: int) -> int:
        return max(now_ms, 1 << 62)


class HeldForEver(Wrong):
    """Does not remove what it has released at last."""

    def state_of_gate(self) -> list[tuple[bytes, bytes | None]]:
        return [(key, value) for key, value in super().state_of_gate() if value is not None]


class ReleasesDuringReplay(Wrong):
    """Does not wait until [S, C) is indexed again."""

    ledger_type = _NeverReplaying


class BatchReused(Wrong):
    """Writes a batch again when the outcome of its transaction is unknown."""

    def write(self, batch: Leaving, chores: Chores, now_ms: int) -> list[int]:
        try:
            return super().write(batch, chores, now_ms)
        except UnknownOutcomeError:
            self.epoch = self.around.store.fence()
            return super().write(batch, chores, now_ms)


class RoundedDown(Wrong):
    """Rounds due times down to a tick."""

    def due_ms(self, schedule: Schedule) -> int:
        return schedule.due_ms // 10 * 10


class _TrustsClock(PartitionIndex[Payload, Refused]):
    def _cursor_at(self, now_ms: int) -> int:
        return self._indexed_to


class ClockOnlyForward(Wrong):
    """Takes every due time at or before W for past, though the clock may have been set back since."""

    ledger_type = _TrustsClock


class _DueTimesOnly(PartitionIndex[Payload, Refused]):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        progress = super()._progress_after(due, cursor, installs)
        return progress._replace(watermark=Position(progress.watermark.due_ms, 2**62))


class WatermarkWithoutOffset(Wrong):
    """Compares due times alone, though a batch may end between records of the same one."""

    ledger_type = _DueTimesOnly


class _SealsPending(PartitionIndex[Payload, Refused]):
    def _progress_after(self, due: list[Entry[Payload]], cursor: int, installs: Installs | None) -> Progress:
        return super()._progress_after(due, cursor, installs)._replace(sealed_to=cursor)


class SealedPastPending(Wrong):
    """S passes records that are still pending and nowhere else."""

    ledger_type = _SealsPending


class AbortTakenForCommit(Wrong):
    """Goes on after a clean abort as if the transaction had been committed."""

    def commit(self, transaction: Transaction) -> list[int]:
        try:
            return super().commit(transaction)
        except AbortedError:
            end = self.around.store.snapshots_end
            return list(range(end, end + len(transaction.snapshots)))


class AnswerTrusted(Wrong):
    """Begins the next transaction as the same producer, though the last was ended by a request sent twice."""

    def require_connections(self) -> None:
        pass


class NotFenced(Wrong):
    """Commits whoever owns the partition."""

    def commit(self, transaction: Transaction) -> list[int]:
        self.require_connections()
        return self.around.store.commit(self.around.store.epoch, transaction)


ALL: tuple[type[Router], ...] = (
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
    AnswerTrusted,
    NotFenced,
    *wrong_buckets.ALL,
    *wrong_adopting.ALL,
    *wrong_owning.ALL,
)
