"""Plans of transactions, transactions that are being made, and the result of a committed one."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from index.named.receipts import Receipt
from index.partition.batch import Batch
from index.pending.pending import Entry
from index.protocol.schedule import Attempted, Rejection
from sidecar.engine.payload.records import Payload, Refused, Scheduled, size_of, transaction_bytes
from sidecar.engine.release.moving import Moves
from sidecar.engine.release.occurring import Recurring
from sidecar.engine.release.transaction import Request


@dataclass(frozen=True, slots=True)
class Plan:
    """The batch and the requests of the next transaction; ``resumed`` records were held until now, and leave first."""

    batch: Batch[Payload, Refused]
    requests: Sequence[Request]
    resumed: Sequence[Entry[Scheduled]]

    @property
    def size_bytes(self) -> int:
        """The approximate bytes that the transaction writes."""
        late_bytes, resumed_bytes = transaction_bytes(self.batch.late), transaction_bytes(self.resumed)
        rejected_bytes = sum(size_of(refused.record) for _, refused in self.batch.rejected)
        requested_bytes = sum(request.size_bytes for request in self.requests)
        receipt_bytes = sum(size_of(receipt.record) for receipt in self.batch.receipts)
        owed_bytes = late_bytes + rejected_bytes + receipt_bytes
        return resumed_bytes + owed_bytes + self.batch.due_bytes + requested_bytes


@dataclass(frozen=True, slots=True)
class Screened:
    """The records of a transaction: to be released, to be rejected, and lost from the delay topic."""

    released: list[Entry[Scheduled]]
    rejected: list[tuple[int, Refused]]
    lost: list[int]

    def holding(self, held: Sequence[Entry[Scheduled]]) -> "Screened":
        """Return the screened records without the held ones, which wait for their target."""
        offsets = {offset for _, offset, _ in held}
        rejected = [each for each in self.rejected if each[0] not in offsets]
        return Screened([entry for entry in self.released if entry[1] not in offsets], rejected, self.lost)

    def beginning(self, offsets: Collection[int]) -> "Screened":
        """Return the screened records without the records that begin a series, which are not released themselves."""
        if not offsets:
            return self
        return Screened([entry for entry in self.released if entry[1] not in offsets], self.rejected, self.lost)

    def without(self, refusals: Mapping[int, Rejection]) -> "Screened":
        """Return the screened records with the records at these offsets rejected instead of released."""
        if not refusals:
            return self
        rejected = [
            (offset, Refused(refusals[offset], record))
            for _, offset, (_, _, record) in self.released
            if offset in refusals and record is not None
        ]
        released = [entry for entry in self.released if entry[1] not in refusals]
        return Screened(released, self.rejected + rejected, self.lost)


@dataclass(slots=True)
class Attempt:
    """A transaction that is being made: the records that are in it, and the records that were taken out of it.

    * ``planned``: the records that it was planned with.
    * ``held``: the records that wait for their target instead.
    * ``taken_out``: the offsets of held records that its receipts cancel.
    * ``unwanted``: the offsets of records that leave in silence, because a query has cancelled them.
    * ``blamed``: the requests that were left out last; if the brokers refuse the rest too, they were not the cause.
    """

    plan: Plan
    planned: Sequence[Entry[Scheduled]]
    screened: Screened
    requests: list[Request]
    receipts: list[Receipt]
    held: list[Entry[Scheduled]] = field(default_factory=list)
    taken_out: frozenset[int] = frozenset()
    unwanted: set[int] = field(default_factory=set)
    truncated: set[int] = field(default_factory=set)
    blamed: list[Request] = field(default_factory=list)
    why_blamed: str = ""
    left_out: list[Request] = field(default_factory=list)
    recurring: Recurring = field(default_factory=Recurring)
    moves: Moves = field(default_factory=Moves)

    def hold(self, entries: Sequence[Entry[Scheduled]]) -> None:
        """Take out records that the gate holds from now on."""
        if entries:
            self.screened = self.screened.holding(entries)
            self.held.extend(entries)


@dataclass(frozen=True, slots=True)
class Released:
    """The work of one committed transaction; ``aborted`` is the number of attempts that were aborted before.

    ``skipped`` is the number of missed occurrences for which no record was released. ``unwanted`` are the offsets of
    records that a query has cancelled.
    """

    screened: Screened
    aborted: int
    truncated: int
    held: list[Entry[Scheduled]]
    skipped: int = 0
    receipts: Sequence[Receipt] = ()
    unwanted: Collection[int] = ()

    def by_target(self) -> Counter[str]:
        """Count released records by target topic."""
        routes = Counter([payload[0][1] for _, _, payload in self.screened.released])
        counts: Counter[str] = Counter()
        for targets, count in routes.items():
            for target in targets:
                counts[target] += count
        return counts

    def attempts(self) -> list[tuple[int, Attempted]]:
        """Return the attempts of released records with their offsets, where attempts are counted."""
        return [
            (offset, attempt) for _, offset, payload in self.screened.released if (attempt := payload[0][8]) is not None
        ]

    def by_outcome(self) -> Counter[str]:
        """Count receipts by outcome."""
        return Counter(receipt.outcome.value for receipt in self.receipts)

    def by_reason(self) -> Counter[str]:
        """Count rejected records by the code of the reason."""
        return Counter(refused.rejection.reason.value for _, refused in self.screened.rejected)
