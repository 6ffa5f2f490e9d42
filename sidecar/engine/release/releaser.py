"""Releases due records in committed transactions: plan, screen, write, commit, confirm, and tell the owners.

1. *Plan*: take the records that the index and the gate let leave now, and the requests that go with them.
2. *Screen* (:mod:`sidecar.engine.release.screening`): no transaction is open yet.
3. *Write and commit*: the port (:class:`sidecar.engine.release.transaction.Transactions`) returns an outcome.
4. *Act on the outcome*: the table ``AFTER`` has the step for each outcome. If the brokers refuse a part, it is taken
   out, requests first, and the rest is committed. After an unknown outcome nothing is concluded, and the partition is
   taken over again.
5. *Confirm and tell*: index and gate hear of the commit, and then every owner hears the fate of its request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from index.errors import RefusedError
from index.pending.pending import Entry
from index.pending.progress import Position
from sidecar.engine.context import PartitionContext
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.moving import Spared
from sidecar.engine.release.plan import Attempt, Plan, Released, Screened
from sidecar.engine.release.screening import TOLD_AT_ONCE, Screening
from sidecar.engine.release.shortening import shortened, shortened_receipt, shortened_where
from sidecar.engine.release.transaction import (
    Outcome,
    Refusals,
    Request,
    Result,
    Timestamps,
    Transaction,
    Transactions,
    adoption_in,
    state_of,
)
from snapshots.state.inventory import NOTHING_STORED, InventoryKeeper
from snapshots.state.lane import LaneName
from snapshots.state.mask import mask_records
from snapshots.state.queries import query_records
from snapshots.state.transit import transit_key, transit_keys

MAX_REFUSAL_ROUNDS: Final = 16
"""The most rounds for one transaction. Every second round may be a repetition, and the rejected topic may have limits
of its own. If a broker refuses another part in every round, the router gives up, and the partition is taken over again.
"""

SEARCH_S: Final = 0.25
"""The time of a search for refused records, while other records wait; undecided records are then set aside."""

EVER_S: Final = float("inf")


@dataclass(slots=True)
class Releaser:
    """Releases the due records of one delay partition in committed transactions; used by its worker only."""

    context: PartitionContext
    transactions: Transactions
    ledger: PartitionLedger
    gate: Gate
    inventory: InventoryKeeper
    screening: Screening
    timestamps: Timestamps = field(default_factory=Timestamps)
    lane: LaneName | None = None

    def plan(
        self,
        now_ms: int,
        max_records: int,
        max_bytes: int,
        requests: Sequence[Request] = (),
        resumed: Sequence[Entry[Scheduled]] = (),
    ) -> Plan:
        """Return the plan of the next transaction; it must be released, or the partition must be taken over again."""
        installs = next((request.installs for request in requests if request.installs is not None), None)
        return Plan(self.ledger.plan(now_ms, max_records, max_bytes, installs), requests, resumed)

    def release(self, plan: Plan) -> Released:
        """Commit a plan, and tell the owners of its requests; every error ends the ownership of the partition.

        Records that their target may not be given yet are held from now on. Requests are left out if the brokers refuse
        a part of the transaction: due records must not suffer from housekeeping.
        """
        attempt = self.screening.screen(plan)
        for aborted in range(MAX_REFUSAL_ROUNDS):
            transaction = self._transaction(attempt)
            result = self.transactions.commit(transaction)
            if result.outcome is not Outcome.COMMITTED:
                # Before another step can fail: a new owner of the partition asks the same directory.
                self.screening.directory.forget()
            if AFTER[result.outcome](self, attempt, transaction, result):
                skipped = attempt.recurring.skipped_before(transaction.appended)
                told = transaction.receipts
                truncated = len(attempt.truncated)
                return Released(attempt.screened, aborted, truncated, attempt.held, skipped, told, attempt.unwanted)
        raise RefusedError(f"{attempt.why_blamed}: {len(plan.batch)} records were refused {MAX_REFUSAL_ROUNDS} times")

    def _transaction(self, attempt: Attempt) -> Transaction:
        screened, requests, progress = attempt.screened, attempt.requests, attempt.plan.batch.progress
        named = self.ledger.named
        leaving = [*(offset for _, offset, _ in screened.released), *(offset for offset, _ in screened.rejected)]
        read = [(transit_key(lot), None) for lot in named.transit.leaving]
        cancelled = [*mask_records(named.mask), *query_records(named.queries)]
        state = [*self.gate.state(), *cancelled, *read, *state_of(requests)]
        written = Transaction(
            screened.released,
            self.gate.aside.rejected(screened.rejected),
            progress,
            NOTHING_STORED,
            state,
            requests,
            self.timestamps,
            [*attempt.recurring.appended(leaving), *attempt.moves.appended.values()],
            attempt.recurring.occurrences,
            attempt.receipts,
            self.lane,
        )
        # The place of an appended record is only known after it is written, so only the keys are counted here.
        to_note = [(key, b"") for key in transit_keys(progress.number, len(written.appended))]
        return replace(written, inventory=self.inventory.after([*state, *to_note]))

    def give_back(self) -> None:
        """Commit that the lane writes the state no more, so that the next owner need not fence it."""
        result = self.transactions.commit(Transaction((), (), self.ledger.committed, self.inventory.after(())))
        if result.outcome is not Outcome.COMMITTED:
            result.give_up()

    def confirm(self, attempt: Attempt, _: Transaction, result: Result) -> bool:
        """Tell index and gate of the commit, and then every owner the fate of its request."""
        self.gate.committed()
        self.ledger.confirm()
        self.ledger.named.transit.add(self.ledger.committed.number, result.notes)
        self.inventory.committed()
        for request in attempt.blamed:
            request.owner.refused(request, attempt.why_blamed)
        for request in attempt.left_out:
            request.owner.left_out(request)
        for request, offsets in zip(attempt.requests, result.offsets, strict=True):
            request.owner.committed(request, offsets)
        return True

    def take_out_refused(self, attempt: Attempt, transaction: Transaction, result: Result) -> bool:
        """Take out the refused part: requests first, since they need no search; then records."""
        adoption = adoption_in(attempt.requests)
        if adoption is not None:
            # The progress names it, so it cannot be left out: the next owner goes on without it.
            adoption.owner.refused(adoption, result.why)
            result.give_up()
        suspects = [each for each in attempt.requests if each.may_be_refused and each.can_be_left_out]
        # Requests that were blamed before are not the cause: the brokers refuse the rest without them, too.
        attempt.left_out += attempt.blamed
        attempt.blamed, attempt.why_blamed = suspects, result.why
        if suspects:
            attempt.requests = [each for each in attempt.requests if each not in suspects]
        else:
            self._take_out_records(attempt, transaction, result)
        return False

    def write_again(self, *_: object) -> bool:
        """Let the same transaction be written again."""
        return False

    def give_up(self, _: Attempt, __: Transaction, result: Result) -> NoReturn:
        """Raise the error of an unknown outcome, or of a fenced producer."""
        result.give_up()

    def _take_out_records(self, attempt: Attempt, transaction: Transaction, result: Result) -> None:
        """Take out the refused records, and set aside the records that the search had no time to decide."""
        screened = attempt.screened
        by_target = self.screening.refused_by_target(screened)
        if by_target:
            attempt.screened = screened.without(by_target)
            return
        self.gate.refused()
        refusals = self._refusals(screened, transaction)
        receipts = [(receipt.offset, receipt) for receipt in attempt.receipts]
        shorter = shortened_where(screened.rejected, refusals.refused, shortened)
        briefer = shortened_where(receipts, refusals.unanswered, shortened_receipt)
        if shorter is None or briefer is None:
            result.give_up()
        attempt.truncated |= shorter.keys() | briefer.keys()
        rejected = [(offset, shorter.get(offset, refused)) for offset, refused in screened.rejected]
        rejected += attempt.recurring.ended(refusals.unfollowed)
        for spared in attempt.moves.spare(refusals.unfollowed):
            self._spare(attempt, spared)
        attempt.receipts = attempt.moves.told([briefer.get(offset, receipt) for offset, receipt in receipts])
        attempt.screened = replace(screened, rejected=rejected).without({**refusals.unfollowed, **refusals.refused})
        if refusals.unfollowed:
            why = str(next(iter(refusals.unfollowed.values())).message)
            self.context.log.error("not_written_again", offsets=[*refusals.unfollowed][:TOLD_AT_ONCE], why=why)
        self._set_aside(attempt, refusals)

    def _spare(self, attempt: Attempt, spared: Spared) -> None:
        """Leave a schedule where it was; if W passes it in this transaction, hold it until the next one."""
        due_ms, offset, _ = spared.entry
        batch = self.ledger.spare(Position(due_ms, offset), spared.moves, spared.why)
        attempt.plan = replace(attempt.plan, batch=batch)
        if offset in attempt.taken_out or any(entry[1] == offset for entry in attempt.plan.batch.cancelled):
            self.gate.set_aside([spared.entry], ())
            attempt.held.append(spared.entry)

    def _refusals(self, screened: Screened, transaction: Transaction) -> Refusals:
        refusals = self.transactions.find_refused(transaction, SEARCH_S)
        aside = _undecided(screened, refusals)
        topic = self.context.topic
        own = {topic.rejected, topic.receipts, topic.name}
        if own & refusals.doubted or not self.gate.has_room_for(aside):
            # Records for the router's own topics have to leave now, and so have records that the gate has no room for.
            return self.transactions.find_refused(transaction, EVER_S)
        return refusals

    def _set_aside(self, attempt: Attempt, refusals: Refusals) -> None:
        """Hold the undecided records for topics that have refused a batch."""
        aside = _undecided(attempt.screened, refusals)
        if not aside:
            return
        self.gate.set_aside(aside, refusals.doubted)
        self.context.log.warning(
            "records_set_aside",
            targets=sorted(refusals.doubted),
            count=len(aside),
            why="a broker refuses some of them, and does not tell which: they are tried a few at a time",
        )
        attempt.screened = attempt.screened.holding(aside)
        attempt.held += aside


After = Callable[[Releaser, Attempt, Transaction, Result], bool]
"""A step after an outcome; returns whether it settles the transaction, which is written again otherwise."""

AFTER: Final[Mapping[Outcome, After]] = {
    Outcome.COMMITTED: Releaser.confirm,
    Outcome.REFUSED: Releaser.take_out_refused,
    Outcome.ABORTED: Releaser.write_again,
    Outcome.UNKNOWN: Releaser.give_up,
    Outcome.FENCED: Releaser.give_up,
}


def _undecided(screened: Screened, refusals: Refusals) -> list[Entry[Scheduled]]:
    return [entry for entry in screened.released if entry[1] in refusals.undecided]
