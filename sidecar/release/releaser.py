"""From what is due to what is committed: plan, screen, write, commit, confirm, tell whoever asked.

1. *Plan*: what the index and the gate let leave now, and the requests that go with it.
2. *Screen* (:mod:`sidecar.release.screening`): no transaction is open yet.
3. *Write and commit*: through the port (:class:`sidecar.release.transaction.Transactions`), which gives an outcome.
4. What to do after an outcome is a table, ``AFTER``. When the brokers refuse something it is taken out, requests
   first, and the rest is committed; after an unknown outcome nothing is concluded, and the partition is taken over
   again.
5. *Confirm and tell*: index and gate hear that it was committed, then every owner hears what became of its request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NoReturn

from index.errors import RefusedError
from index.pending import Entry
from index.progress import Position
from sidecar.context import PartitionContext
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.records import Scheduled
from sidecar.release.gate import Gate
from sidecar.release.moving import Spared
from sidecar.release.plan import Attempt, Plan, Released, Screened
from sidecar.release.screening import TOLD_AT_ONCE, Screening
from sidecar.release.shortening import shortened, shortened_receipt, shortened_where
from sidecar.release.transaction import (
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
from snapshots.inventory import NOTHING_STORED, InventoryKeeper
from snapshots.mask import mask_records
from snapshots.transit import transit_key, transit_keys

MAX_REFUSAL_ROUNDS: Final = 16
"""Every other one may be a repetition, and the rejected topic may have limits of its own. A broker that refuses
something new in every round is not one we understand: take over again, and report."""

SEARCH_S: Final = 0.25
"""How long others wait while it is found out what a broker refuses; what is not decided by then is set aside."""

EVER_S: Final = float("inf")


@dataclass(slots=True)
class Releaser:
    """Turns what is due in one delay partition into committed transactions; used by its worker only.

    ``compresses`` is of what is written, ``read`` reads records of the delay partition again, ``decide`` decides one
    again by the rules it was indexed by. ``series`` tells what recurs, ``moving`` what is moved.
    """

    context: PartitionContext
    transactions: Transactions
    ledger: PartitionLedger
    gate: Gate
    inventory: InventoryKeeper
    screening: Screening
    timestamps: Timestamps = field(default_factory=Timestamps)

    def plan(
        self,
        now_ms: int,
        max_records: int,
        max_bytes: int,
        requests: Sequence[Request] = (),
        resumed: Sequence[Entry[Scheduled]] = (),
    ) -> Plan:
        """What leaves in the next transaction; it must be released, or the partition be taken over again."""
        installs = next((request.installs for request in requests if request.installs is not None), None)
        return Plan(self.ledger.plan(now_ms, max_records, max_bytes, installs), requests, resumed)

    def release(self, plan: Plan) -> Released:
        """Commit what was planned, and tell whoever asked; what it raises ends the ownership of the partition.

        What a target may not be given yet is held from now on. Requests are left out where the brokers refuse
        something: what is due must not suffer from housekeeping.
        """
        attempt = self.screening.screen(plan)
        for aborted in range(MAX_REFUSAL_ROUNDS):
            transaction = self._transaction(attempt)
            result = self.transactions.commit(transaction)
            if result.outcome is not Outcome.COMMITTED:
                # Before anything else can fail: a new owner of the partition asks the same directory.
                self.screening.directory.forget()
            if AFTER[result.outcome](self, attempt, transaction, result):
                skipped = attempt.recurring.skipped_before(transaction.appended)
                told = transaction.receipts
                return Released(attempt.screened, aborted, len(attempt.truncated), attempt.held, skipped, told)
        raise RefusedError(f"{attempt.why_blamed}: {len(plan.batch)} records were refused {MAX_REFUSAL_ROUNDS} times")

    def _transaction(self, attempt: Attempt) -> Transaction:
        screened, requests, progress = attempt.screened, attempt.requests, attempt.plan.batch.progress
        named = self.ledger.named
        leaving = [*(offset for _, offset, _ in screened.released), *(offset for offset, _ in screened.rejected)]
        read = [(transit_key(lot), None) for lot in named.transit.leaving]
        state = [*self.gate.state(), *mask_records(named.mask), *read, *state_of(requests)]
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
        )
        # Where it lies is only known when it is written.
        to_note = [(key, b"") for key in transit_keys(progress.number, len(written.noted))]
        return replace(written, inventory=self.inventory.after([*state, *to_note]))

    def confirm(self, attempt: Attempt, _: Transaction, result: Result) -> bool:
        """Tell index and gate that it was committed, then every owner what became of its request."""
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
        """Take out what is refused: requests first, since it takes no time to find out that it was one of them."""
        adoption = adoption_in(attempt.requests)
        if adoption is not None:
            # Progress speaks of it, so it cannot be left out: whoever takes over goes on without.
            adoption.owner.refused(adoption, result.why)
            result.give_up()
        suspects = [each for each in attempt.requests if each.may_be_refused and each.can_be_left_out]
        # If these were blamed before, it was a record: nothing is said against them.
        attempt.left_out += attempt.blamed
        attempt.blamed, attempt.why_blamed = suspects, result.why
        if suspects:
            attempt.requests = [each for each in attempt.requests if each not in suspects]
        else:
            self._take_out_records(attempt, transaction, result)
        return False

    def write_again(self, *_: object) -> bool:
        """Write the same again."""
        return False

    def give_up(self, _: Attempt, __: Transaction, result: Result) -> NoReturn:
        """Raise why it is not known what became of it, or why nothing more may be written."""
        result.give_up()

    def _take_out_records(self, attempt: Attempt, transaction: Transaction, result: Result) -> None:
        """Go on without what is refused, and without what is set aside because there was no time to find out."""
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
        """Leave a schedule where it was; where W passes it in this transaction, it is held until the next one."""
        due_ms, offset, _ = spared.entry
        self.ledger.named.spare(Position(due_ms, offset), spared.moves, spared.why)
        if offset in attempt.taken_out or any(entry[1] == offset for entry in attempt.plan.batch.cancelled):
            self.gate.set_aside([spared.entry], ())
            attempt.held.append(spared.entry)

    def _refusals(self, screened: Screened, transaction: Transaction) -> Refusals:
        refusals = self.transactions.find_refused(transaction, SEARCH_S)
        aside = _undecided(screened, refusals)
        topic = self.context.topic
        own = {topic.rejected, topic.receipts, topic.name}
        if own & refusals.doubted or not self.gate.has_room_for(aside):
            # What goes to those has to leave now, and so has what there is no room for.
            return self.transactions.find_refused(transaction, EVER_S)
        return refusals

    def _set_aside(self, attempt: Attempt, refusals: Refusals) -> None:
        """Hold what a target that has refused something may refuse, too; what is undecided of others is written."""
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
"""What is done after an outcome; whether the transaction is settled by that. Else it is written again."""

AFTER: Final[Mapping[Outcome, After]] = {
    Outcome.COMMITTED: Releaser.confirm,
    Outcome.REFUSED: Releaser.take_out_refused,
    Outcome.ABORTED: Releaser.write_again,
    Outcome.UNKNOWN: Releaser.give_up,
    Outcome.FENCED: Releaser.give_up,
}


def _undecided(screened: Screened, refusals: Refusals) -> list[Entry[Scheduled]]:
    return [entry for entry in screened.released if entry[1] in refusals.undecided]
