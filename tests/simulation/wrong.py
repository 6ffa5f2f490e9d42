"""Routers with one thing wrong each; every one of them is a mistake that looks reasonable while it is made."""

from index.partition import Batch, PartitionIndex
from index.pending import Entry
from index.progress import Position, Progress
from index.rules import Rules
from index.schedule import Rejection, Schedule
from tests.simulation.router import Leaving, Router
from tests.simulation.world import Transaction, UnknownOutcomeError


class _Wrong(Router):
    checks_itself = False


class _LateOneByOne(PartitionIndex[Schedule, Rejection]):
    """Lets one late record leave in a batch, as if late ones were subject to a limit like the others."""

    holds_cursor = False

    def plan(self, now_ms: int, max_entries: int, max_bytes: int) -> Leaving:
        kept, self._late = self._late[1:], self._late[:1]
        batch = super().plan(now_ms, max_entries, max_bytes)
        self._late += kept
        progress = batch.progress
        if kept:
            cursor = kept[0][1] if self.holds_cursor else progress.cursor
            progress = progress._replace(cursor=cursor, sealed_to=min(progress.sealed_to, cursor))
        self._in_flight = Batch(batch.late, batch.due, batch.rejected, progress)
        return self._in_flight


class _LateOneByOneHoldingCursor(_LateOneByOne):
    holds_cursor = True


class CursorHeldBack(_Wrong):
    """C waits in front of a late record while records beyond it are released."""

    ledger_type = _LateOneByOneHoldingCursor


class CursorPastLate(_Wrong):
    """C passes a late record that has not been released."""

    ledger_type = _LateOneByOne


class NewRulesOnReplay(_Wrong):
    """Decides [S, C) again by the rules of today."""

    def rules_at(self, offset: int) -> Rules:
        return self.rules


class ProgressFirst(_Wrong):
    """Moves W before the records it speaks of are committed."""

    def write(self, batch: Leaving, now_ms: int) -> None:
        self.commit(Transaction(now_ms, [], self.state_of(batch.progress)))
        self.around.faults.point("progress")
        self.commit(Transaction(now_ms, self.leaving(batch), []))


class ProgressLast(_Wrong):
    """Moves W in a transaction after that of the records it speaks of."""

    def write(self, batch: Leaving, now_ms: int) -> None:
        self.commit(Transaction(now_ms, self.leaving(batch), []))
        self.around.faults.point("records")
        self.commit(Transaction(now_ms, [], self.state_of(batch.progress)))


class _NeverReplaying(PartitionIndex[Schedule, Rejection]):
    @property
    def replaying(self) -> bool:
        return False

    def _cursor_at(self, now_ms: int) -> int:
        return max(super()._cursor_at(now_ms), self._replay_below)


class ReleasesDuringReplay(_Wrong):
    """Does not wait until [S, C) is indexed again."""

    ledger_type = _NeverReplaying


class BatchReused(_Wrong):
    """Writes a batch again when the outcome of its transaction is unknown."""

    def write(self, batch: Leaving, now_ms: int) -> None:
        try:
            super().write(batch, now_ms)
        except UnknownOutcomeError:
            self.epoch = self.around.store.fence()
            super().write(batch, now_ms)


class RoundedDown(_Wrong):
    """Rounds due times down to a tick."""

    def due_ms(self, schedule: Schedule) -> int:
        return schedule.due_ms // 10 * 10


class _TrustsClock(PartitionIndex[Schedule, Rejection]):
    def _cursor_at(self, now_ms: int) -> int:
        return self._indexed_to


class ClockOnlyForward(_Wrong):
    """Takes every due time at or before W for past, though the clock may have been set back since."""

    ledger_type = _TrustsClock


class _DueTimesOnly(PartitionIndex[Schedule, Rejection]):
    def _progress_after(self, due: list[Entry[Schedule]], cursor: int) -> Progress:
        progress = super()._progress_after(due, cursor)
        return progress._replace(watermark=Position(progress.watermark.due_ms, 2**62))


class WatermarkWithoutOffset(_Wrong):
    """Compares due times alone, though a batch may end between records of the same one."""

    ledger_type = _DueTimesOnly


class _SealsPending(PartitionIndex[Schedule, Rejection]):
    def _progress_after(self, due: list[Entry[Schedule]], cursor: int) -> Progress:
        return super()._progress_after(due, cursor)._replace(sealed_to=cursor)


class SealedPastPending(_Wrong):
    """S passes records that are still pending and nowhere else."""

    ledger_type = _SealsPending


class AbortTakenForCommit(_Wrong):
    """Goes on after a clean abort as if the batch had left."""

    def put_back(self) -> None:
        self.ledger.confirm()


class NotFenced(_Wrong):
    """Commits whoever owns the partition."""

    def commit(self, transaction: Transaction) -> None:
        self.around.store.commit(self.around.store.epoch, transaction)


ALL: tuple[type[Router], ...] = (
    CursorHeldBack,
    CursorPastLate,
    NewRulesOnReplay,
    ProgressFirst,
    ProgressLast,
    ReleasesDuringReplay,
    BatchReused,
    RoundedDown,
    ClockOnlyForward,
    WatermarkWithoutOffset,
    SealedPastPending,
    AbortTakenForCommit,
    NotFenced,
)
