"""The memory that all partitions of a process together may spend on payload."""

import threading


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
