"""How much may be in one transaction, from how long the last ones took.

A transaction that the brokers cannot take in time is aborted, and all of it is written again: were the next one as
large, that would go on for ever while the logs grow by what is aborted. So the size follows what the brokers take:

* committed, full and quick: twice as much, or what the time that is aimed at is enough for;
* committed, but slow: what that time would have been enough for, and a quarter at least;
* abandoned: half of what was in it, one record in the end.

What is carried once a timeout at all therefore gets through, whatever the bandwidth is, and whether it is a quota, a
slow line or a broker that is busy. What was learned is forgotten after a while, since a quota may have been set since.
"""

from typing import Final

AIM_S: Final = 2.0
"""A transaction is planned to take this long at most. It is long enough for what one costs beside its records, some
20 ms, not to matter, and consumers see what is in it at its end only."""

AIM_SHARE: Final = 16
"""And this part of the transaction timeout, where that is short."""

BESIDE_SHARE: Final = 4
"""What goes along with records, such as segments, cannot be cut: it may take this part of the timeout."""

START_BYTES: Final = 8 * 1_048_576
"""With nothing known: a second on a slow line, and a few steps below the most."""

FORGET_AFTER_S: Final = 60.0
"""How long it is believed without another full transaction that the brokers take more than that."""

SHRINK: Final = 4
"""The time of a small transaction says little about a large one: no more than this is concluded from one of them."""


class TransactionSize:
    """Bytes that the next transaction may have; every time is an argument, of a steady clock in seconds.

    It lives longer than the ownership of a partition: a transaction that was abandoned is followed by a take-over.

    >>> size = TransactionSize(most_bytes=1_000_000, timeout_s=60.0)
    >>> size.abandoned(1_000_000)
    >>> size.limit_bytes(now_s=0.0)
    500000
    >>> size.committed(500_000, seconds=0.1, now_s=1.0)
    >>> size.limit_bytes(now_s=1.0)
    1000000
    """

    def __init__(self, most_bytes: int, timeout_s: float) -> None:
        self._most_bytes = most_bytes
        self._aim_s = min(AIM_S, timeout_s / AIM_SHARE)
        self._beside_s = timeout_s / BESIDE_SHARE
        self._limit_bytes = self._start_bytes = min(START_BYTES, most_bytes)
        self._full_s = 0.0

    def limit_bytes(self, now_s: float) -> int:
        """Most bytes of records to plan a transaction with; at least one record goes whatever its size."""
        if now_s - self._full_s > FORGET_AFTER_S:
            self._limit_bytes = min(self._limit_bytes, self._start_bytes)
        return self._limit_bytes

    def carries(self, beside_bytes: int, now_s: float) -> bool:
        """Whether so much that cannot be cut may go along with records."""
        return beside_bytes * self._aim_s <= self.limit_bytes(now_s) * self._beside_s

    def committed(self, size_bytes: int, seconds: float, now_s: float) -> None:
        """A transaction of so many bytes took so long."""
        limit = self._limit_bytes
        enough = int(size_bytes * self._aim_s / max(seconds, 1e-6))
        if seconds > self._aim_s:
            self._limit_bytes = max(1, min(limit, max(enough, limit // SHRINK)))
        elif 2 * size_bytes >= limit:
            self._limit_bytes = min(max(limit, min(2 * max(limit, size_bytes), enough)), self._most_bytes)
            self._full_s = now_s
        elif limit < self._start_bytes:
            # Too small to tell, but so is what is risked by trying.
            self._limit_bytes = min(2 * limit, self._start_bytes)

    def abandoned(self, size_bytes: int) -> None:
        """A transaction of so many bytes was not committed, or it is not known whether."""
        self._limit_bytes = max(1, min(self._limit_bytes, size_bytes) // 2)

    def check(self) -> None:
        """Assert what holds at any time."""
        assert 1 <= self._limit_bytes <= self._most_bytes
        assert 0 < self._aim_s < self._beside_s
