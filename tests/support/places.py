"""Places of records by id, for tests without buckets and held records."""

from collections.abc import Collection, Iterable, Mapping

from index.named.receipts import Matched
from index.pending.progress import Position
from index.protocol.where import CancelWhere
from sidecar.engine.buckets.queries import QueryEffect


class NothingStored:
    """Every record is in memory as it was indexed."""

    def are_known(self, _deliver_id: bytes, _following: Iterable[bytes]) -> bool:
        """Return True: there are no places to read."""
        return True

    def held(self, _deliver_id: bytes) -> Mapping[Position, int]:
        """Return no held records."""
        return {}

    def cancelled(self, _deliver_id: bytes, _held: Mapping[Position, int]) -> Collection[int]:
        """Return no schedules."""
        return ()

    def answer(self, _offset: int, _where: CancelWhere) -> QueryEffect | None:
        """Return an answer at once: nothing matches."""
        return QueryEffect((), Matched(0), 0)
