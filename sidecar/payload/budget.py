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
