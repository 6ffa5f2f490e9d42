"""What a partition is to release in one transaction, and what it has released once that is committed."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from index.batch import Batch
from index.pending import Entry
from index.receipts import Receipt
from sidecar.payload.records import Payload, Refused, Scheduled, size_of, transaction_bytes
from sidecar.release.moving import Moves
from sidecar.release.screening import Screened
from sidecar.release.transaction import Request
from sidecar.series.occurring import Recurring


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to leave in the next transaction; ``resumed`` was held until now, and leaves first."""

    batch: Batch[Payload, Refused]
    requests: Sequence[Request]
    resumed: Sequence[Entry[Scheduled]]

    @property
    def size_bytes(self) -> int:
        """About what it costs the brokers."""
        late_bytes, resumed_bytes = transaction_bytes(self.batch.late), transaction_bytes(self.resumed)
        rejected_bytes = sum(size_of(refused.record) for _, refused in self.batch.rejected)
        requested_bytes = sum(request.size_bytes for request in self.requests)
        receipt_bytes = sum(size_of(receipt.record) for receipt in self.batch.receipts)
        owed_bytes = late_bytes + rejected_bytes + receipt_bytes
        return resumed_bytes + owed_bytes + self.batch.due_bytes + requested_bytes


@dataclass(slots=True)
class Attempt:
    """A transaction while it is being tried: what is in it still, and what was taken out of it.

    ``blamed`` are requests that were taken out last: should the rest be refused as well, it was not their fault.
    ``taken_out`` are offsets of records that were held, and are cancelled by its receipts.
    """

    plan: Plan
    screened: Screened
    requests: list[Request]
    held: list[Entry[Scheduled]]
    receipts: list[Receipt]
    taken_out: frozenset[int]
    truncated: set[int] = field(default_factory=set)
    blamed: list[Request] = field(default_factory=list)
    why_blamed: str = ""
    left_out: list[Request] = field(default_factory=list)
    recurring: Recurring = field(default_factory=Recurring)
    moves: Moves = field(default_factory=Moves)


@dataclass(frozen=True, slots=True)
class Released:
    """What one committed transaction did; ``aborted`` counts how often it was written in vain before.

    ``skipped`` are occurrences that were missed, and that nothing stands for.
    """

    screened: Screened
    aborted: int
    truncated: int
    held: list[Entry[Scheduled]]
    skipped: int = 0
    receipts: Sequence[Receipt] = ()

    def by_target(self) -> Counter[str]:
        """Released records by target topic."""
        routes = Counter([payload[0][1] for _, _, payload in self.screened.released])
        counts: Counter[str] = Counter()
        for targets, count in routes.items():
            for target in targets:
                counts[target] += count
        return counts

    def by_outcome(self) -> Counter[str]:
        """Receipts by outcome."""
        return Counter(receipt.outcome.value for receipt in self.receipts)

    def by_reason(self) -> Counter[str]:
        """Rejected records by code."""
        return Counter(refused.rejection.reason.value for _, refused in self.screened.rejected)
