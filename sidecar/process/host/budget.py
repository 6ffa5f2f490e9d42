"""Counts the memory that all partitions of a process together may spend on payload."""

import threading
from typing import Final

RESERVED_SHARE: Final = 16
"""The share 1/16 of the memory that is left, when memory counts as full, for work under way: a fetch that has been
read, segments that have been requested."""


PREFETCHED_BYTES: Final = 64 * 1_048_576
MOST_PREFETCHED_BYTES: Final = 16 * 1_048_576
LEAST_PREFETCHED_BYTES: Final = 524_288
"""Bytes that clients prefetch for all partitions together, and at most and at least for each, beside the payload that
is counted. Small records take several times as much in memory, since librdkafka keeps some hundred bytes for each."""


class PayloadBudget:
    """A counter with a limit; partitions take bytes from it in runs and give back the bytes they released."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.partitions = 1
        """Number of partitions that draw on it; the starter of the partitions sets it."""
        self.given_back_bytes = 0
        """Sum of all bytes given back; while it grows, a thread that waits for room will get some."""
        self._used_bytes = 0
        self._changes = threading.Condition(threading.Lock())

    @property
    def used_bytes(self) -> int:
        """Bytes in use now."""
        return self._used_bytes

    @property
    def room_bytes(self) -> int:
        """Bytes that may still be taken; payload beyond them must stay in the delay topic."""
        return self._max_bytes - self._used_bytes

    @property
    def prefetched_bytes(self) -> int:
        """Bytes that the client of each partition may have prefetched."""
        return min(max(PREFETCHED_BYTES // self.partitions, LEAST_PREFETCHED_BYTES), MOST_PREFETCHED_BYTES)

    @property
    def is_full(self) -> bool:
        """True while reading that can wait should wait, and all that can be sealed should be sealed.

        Memory counts as full before its room is used up. A record that does not fit is read again by itself when it is
        due, a thousand times slower than with its segment; and the last bytes of room may be too few for any record.
        """
        return self.room_bytes <= self._max_bytes // RESERVED_SHARE

    def take(self, size_bytes: int) -> None:
        """Count bytes as used; the sum may pass the limit by the bytes that one intake holds."""
        with self._changes:
            self._used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        """Count bytes as free again."""
        with self._changes:
            was_full = self.is_full
            self._used_bytes -= size_bytes
            self.given_back_bytes += max(size_bytes, 0)
            assert self._used_bytes >= 0, "more payload given back than taken"
            if was_full and not self.is_full:
                self._changes.notify_all()

    def wait_until_not_full(self, wait_s: float) -> None:
        """Return as soon as memory is not full, when ``look_again`` is called, or after ``wait_s``."""
        with self._changes:
            if self.is_full:
                self._changes.wait(wait_s)

    def look_again(self) -> None:
        """Wake every thread that waits for memory, so that a thread that has to end can end."""
        with self._changes:
            self._changes.notify_all()
