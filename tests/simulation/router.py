"""The loop of a router over the modelled log and store, with the real rules, index and state encoding."""

from dataclasses import dataclass

from index.partition import Batch, PartitionIndex
from index.pending import Entry
from index.progress import Progress, start_of
from index.rules import Rules
from index.schedule import Rejection, Schedule
from snapshots.state import (
    PROGRESS_KEY,
    RULES_KEY,
    RuleEpoch,
    encode_epochs,
    encode_progress,
    fold_state,
    next_epochs,
)
from tests.simulation.world import (
    FIRST_OFFSET,
    REJECTED,
    AbortedError,
    Clock,
    DelayLog,
    Faults,
    Left,
    Store,
    Transaction,
)

TOPIC_ID = "topic-id"
RECORD_BYTES = 10

Ledger = PartitionIndex[Schedule, Rejection]
Leaving = Batch[Schedule, Rejection]


@dataclass(frozen=True)
class Surroundings:
    """What all routers of a run share."""

    clock: Clock
    log: DelayLog
    store: Store
    faults: Faults


class Router:
    """One owner of the partition; wrong ones override a method each."""

    ledger_type: type[Ledger] = PartitionIndex
    checks_itself = True

    def __init__(self, around: Surroundings, rules: Rules) -> None:
        self.around = around
        self.rules = rules
        self.epoch = 0
        self.epochs: tuple[RuleEpoch, ...] = ()

    def take_over(self) -> None:
        """Fence the last owner, read where it stood, and write what is new about that."""
        self.epoch = self.around.store.fence()
        self.around.faults.point("fence")
        stored = fold_state(self.around.store.state)
        progress = stored.progress if stored else start_of(FIRST_OFFSET)
        self.epochs = next_epochs(stored.epochs if stored else (), progress, self.rules)
        if stored is None or stored.epochs != self.epochs:
            state = [(RULES_KEY, encode_epochs(self.epochs)), (PROGRESS_KEY, encode_progress(progress, TOPIC_ID))]
            self.commit(Transaction(self.around.clock.now_ms, [], state))
            self.around.faults.point("first transaction")
        self.ledger: Ledger = self.ledger_type(progress, lambda _: RECORD_BYTES)

    def index(self, most: int) -> None:
        """Read on in the log."""
        records, end = self.around.log.read(self.ledger.indexed_to, most)
        for record in records:
            decision = self.rules_at(record.offset).decide(record.headers, record.timestamp_ms)
            if isinstance(decision, Rejection):
                self.ledger.reject(record.offset, decision)
            else:
                self.ledger.add([(self.due_ms(decision), record.offset, decision)])
        if end is not None:
            self.ledger.advance(end)
        self.check()
        self.around.faults.point("index")

    def release(self, max_entries: int, max_bytes: int) -> None:
        """Let the next batch leave, unless the replay is still going on."""
        if self.ledger.replaying:
            return
        now_ms = self.around.clock.now_ms
        batch = self.ledger.plan(now_ms, max_entries, max_bytes)
        self.check()
        self.around.faults.point("plan")
        try:
            self.write(batch, now_ms)
        except AbortedError:
            self.put_back()
        else:
            self.around.faults.point("commit")
            self.ledger.confirm()
        self.check()

    def write(self, batch: Leaving, now_ms: int) -> None:
        """One transaction: everything that leaves, and the progress that says so."""
        self.commit(Transaction(now_ms, self.leaving(batch), self.state_of(batch.progress)))

    def commit(self, transaction: Transaction) -> None:
        """Commit as the owner this router believes to be."""
        self.around.store.commit(self.epoch, transaction)

    def put_back(self) -> None:
        """The transaction was aborted."""
        self.ledger.restore()

    def rules_at(self, offset: int) -> Rules:
        """The rules that decide a record: of the epoch it lies in."""
        return next(epoch.rules for epoch in reversed(self.epochs) if epoch.from_offset <= offset)

    def due_ms(self, schedule: Schedule) -> int:
        """When an accepted record is due."""
        return schedule.due_ms

    def leaving(self, batch: Leaving) -> list[Left]:
        """What becomes visible, in the order it is written; whether a target is allowed is asked again here."""
        released = [left for entry in batch.late + batch.due for left in self._released(entry)]
        return released + [Left(offset, REJECTED) for offset, _ in batch.rejected]

    def state_of(self, progress: Progress) -> list[tuple[bytes, bytes]]:
        """State records of a transaction."""
        return [(PROGRESS_KEY, encode_progress(progress, TOPIC_ID))]

    def check(self) -> None:
        """Let the index assert its invariants; wrong routers must be caught from outside."""
        if self.checks_itself:
            self.ledger.check()

    def _released(self, entry: Entry[Schedule]) -> list[Left]:
        _, offset, schedule = entry
        if all(self.rules.allowed(target) for target in schedule.targets):
            return [Left(offset, target) for target in schedule.targets]
        return [Left(offset, REJECTED)]
