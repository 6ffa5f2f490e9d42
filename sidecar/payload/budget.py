"""The memory that all partitions of a process together may spend on payload."""

import threading
from typing import Final

RESERVED_SHARE: Final = 16
"""One part of so many is for what is under way already when memory counts as full: a fetch that has been read, segments
that have been asked for."""


class PayloadBudget:
    """A counter with a limit; partitions take from it in runs and give back what they released."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._used_bytes = 0
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """Bytes in use now."""
        return self._used_bytes

    @property
    def room_bytes(self) -> int:
        """What may still be taken; beyond it payload must stay in the delay topic."""
        return self._max_bytes - self._used_bytes

    @property
    def is_full(self) -> bool:
        """Whether nothing should be read that can wait, and all that can be sealed should be.

        This is before there is no room at all: a record that does not fit is read again by itself when it is due, a
        thousand times slower than with its segment, and the last bytes of room may be too few for any.
        """
        return self.room_bytes <= self._max_bytes // RESERVED_SHARE

    def take(self, size_bytes: int) -> None:
        """Count bytes as used; may pass the limit by what one intake holds."""
        with self._lock:
            self._used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes as free again."""
        with self._lock:
            self._used_bytes -= size_bytes
            assert self._used_bytes >= 0, "more payload given back than taken"


class BudgetShare:
    """What one partition has taken of a budget; given back as a whole at the end."""

    def __init__(self, budget: PayloadBudget) -> None:
        self._budget = budget
        self.used_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes as used."""
        self._budget.take(size_bytes)
        self.used_bytes += size_bytes

    def adopt(self, size_bytes: int) -> None:
        """Answer from here on for bytes that somebody else has counted as used."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes as free again; negative ones as used."""
        self.used_bytes -= size_bytes
        self._budget.give_back(size_bytes)

    def close(self) -> None:
        """Give back all that is left."""
        self.give_back(self.used_bytes)
