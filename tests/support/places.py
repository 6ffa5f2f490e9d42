"""Where records of an id wait, for tests without buckets and without anything that is held."""

from collections.abc import Iterable, Mapping

from index.progress import Position


class NothingStored:
    """All is in memory as it was indexed."""

    def are_known(self, _deliver_id: bytes, _following: Iterable[bytes]) -> bool:
        """There is nothing to be known."""
        return True

    def held(self, _deliver_id: bytes) -> Mapping[Position, int]:
        """Nothing."""
        return {}
