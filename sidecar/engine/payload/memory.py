"""Tracks the memory that one partition, or one load, has taken of the budget of its process."""

from typing import Final

from sidecar.engine.ports import Budget

LEAST_LOADED_BYTES: Final = 4 * 1_048_576
"""Bytes of re-read records that a load keeps even where memory is full: an inline segment takes as much, and is loaded
as a whole."""

LARGE_BYTES: Final = 65_536
"""Bytes whose reading takes as long as a seek: a larger record may as well be read by itself."""


class LoadMemory:
    """Memory for the records that one load reads again in the delay topic; it counts as used from the read on.

    The thread that loads uses it until the load is done, and the worker afterwards. A large record that is due after
    ``soon_ms`` is not kept: reading it once more when it is due takes hardly longer than copying it.
    """

    def __init__(self, budget: Budget, soon_ms: int) -> None:
        self._budget = budget
        self._soon_ms = soon_ms
        self.taken_bytes = 0

    def keeps(self, due_ms: int, size_bytes: int) -> bool:
        """Say whether a record may be kept; count its bytes as used if so."""
        if size_bytes > LARGE_BYTES and due_ms > self._soon_ms:
            return False
        if self._budget.is_full and self.taken_bytes + size_bytes > LEAST_LOADED_BYTES:
            return False
        self._budget.take(size_bytes)
        self.taken_bytes += size_bytes
        return True

    def hand_over(self) -> int:
        """Return the bytes that are counted as used; from here on the caller has to give them back."""
        taken_bytes, self.taken_bytes = self.taken_bytes, 0
        return taken_bytes

    def close(self) -> None:
        """Give back the bytes that were not handed over."""
        self._budget.give_back(self.hand_over())


class BudgetShare:
    """The part of a budget that one partition has taken; ``close`` gives all of it back."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self.used_bytes = 0

    def take(self, size_bytes: int) -> None:
        """Count bytes as used."""
        self._budget.take(size_bytes)
        self.used_bytes += size_bytes

    def adopt(self, size_bytes: int) -> None:
        """Take over bytes that another part has counted as used."""
        self.used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes as free again; a negative number counts bytes as used."""
        self.used_bytes -= size_bytes
        self._budget.give_back(size_bytes)

    def close(self) -> None:
        """Give back the bytes that are still in use."""
        self.give_back(self.used_bytes)
