"""The memory that all partitions of a process together may spend on payload."""

import threading
from typing import Final

RESERVED_SHARE: Final = 16
"""One part of so many is for what is under way already when memory counts as full: a fetch that has been read, segments
that have been asked for."""


PREFETCHED_BYTES: Final = 64 * 1_048_576
MOST_PREFETCHED_BYTES: Final = 16 * 1_048_576
LEAST_PREFETCHED_BYTES: Final = 524_288
"""What clients prefetch for all partitions together, and for each at most and at least, beside the payload that is
counted. In memory it is several times as much for small records, of which librdkafka keeps some hundred bytes each."""


class PayloadBudget:
    """A counter with a limit; partitions take from it in runs and give back what they released."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.partitions = 1
        """How many draw on it; told by whoever starts them."""
        self.given_back_bytes = 0
        """In all; while it grows, whoever waits for room will have some."""
        self._used_bytes = 0
        self._changes = threading.Condition(threading.Lock())

    @property
    def used_bytes(self) -> int:
        """Bytes in use now."""
        return self._used_bytes

    @property
    def room_bytes(self) -> int:
        """What may still be taken; beyond it payload must stay in the delay topic."""
        return self._max_bytes - self._used_bytes

    @property
    def prefetched_bytes(self) -> int:
        """What the client of each partition may have prefetched."""
        return min(max(PREFETCHED_BYTES // self.partitions, LEAST_PREFETCHED_BYTES), MOST_PREFETCHED_BYTES)

    @property
    def is_full(self) -> bool:
        """Whether nothing should be read that can wait, and all that can be sealed should be.

        This is before there is no room at all: a record that does not fit is read again by itself when it is due, a
        thousand times slower than with its segment, and the last bytes of room may be too few for any.
        """
        return self.room_bytes <= self._max_bytes // RESERVED_SHARE

    def take(self, size_bytes: int) -> None:
        """Count bytes as used; may pass the limit by what one intake holds."""
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
        """Return as soon as memory is not full, when all are told to look again, or after ``wait_s``."""
        with self._changes:
            if self.is_full:
                self._changes.wait(wait_s)

    def look_again(self) -> None:
        """Have all who wait look again, as those do that are to end."""
        with self._changes:
            self._changes.notify_all()
