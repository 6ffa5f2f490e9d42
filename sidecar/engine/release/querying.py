"""Takes the records that queries have cancelled out of a transaction (:mod:`index.named.queries`).

A query is decided where a record leaves: then its schedule, its id and its headers are known together. A record that is
not in memory is decided by its schedule first, and again when it was read, if the query asks for a header.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from index.named.queries import Queries, Query, cancelling
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.release.gate import Gate
from sidecar.engine.release.plan import Attempt


@dataclass(frozen=True, slots=True)
class Querying:
    """The queries of one owned partition, as the stages of a transaction ask for them; used by its worker only."""

    ledger: PartitionLedger
    gate: Gate

    @property
    def queries(self) -> Queries:
        """The queries in force."""
        return self.ledger.named.queries

    def begin(self, attempt: Attempt) -> None:
        """Begin a transaction: let go of the held records that its queries cancel, then ``drop``."""
        in_force = self.queries.in_force
        attempt.taken_out |= self.gate.cancel(self._held(in_force))
        self.queries.begin(self.ledger.parts.ranges(), attempt.plan.batch.progress.sealed_to)
        self.drop(attempt)

    def drop(self, attempt: Attempt) -> None:
        """Drop the records that a query has cancelled, as far as their parts are at hand."""
        in_force, screened = self.queries.in_force, attempt.screened
        resumed = {offset for _, offset, _ in attempt.plan.resumed}
        kept = []
        for entry in screened.released:
            _, offset, (schedule, _, record) = entry
            query = cancelling(in_force, offset, schedule, record)
            if query is None:
                kept.append(entry)
                continue
            attempt.unwanted.add(offset)
            # A record that was held has left its place already.
            if offset not in resumed:
                self.queries.drop(query.offset)
        if len(kept) < len(screened.released):
            attempt.screened = replace(screened, released=kept)

    def _held(self, in_force: Sequence[Query]) -> frozenset[int]:
        """Return the offsets of held records that a query has cancelled: only one whose receipt is owed finds some."""
        if not self.queries.is_owed:
            return frozenset()
        held = (entry for lane in self.gate.waiting() for entry in lane)
        return frozenset(
            offset
            for _, offset, (schedule, _, record) in held
            if cancelling(in_force, offset, schedule, record) is not None
        )
