"""Places of records by id, for tests without buckets and held records."""

from collections.abc import Iterable, Mapping

from index.pending.progress import Position


class NothingStored:
    """Every record is in memory as it was indexed."""

    def are_known(self, _deliver_id: bytes, _following: Iterable[bytes]) -> bool:
        """Return True: there are no places to read."""
        return True

    def held(self, _deliver_id: bytes) -> Mapping[Position, int]:
        """Return no held records."""
        return {}
