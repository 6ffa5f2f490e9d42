"""The size of the next transaction, from the time that the last ones took.

A transaction that the brokers cannot take in time is aborted, and all of it is written again. If the next one were as
large, this would go on for ever while the logs grow by aborted records. So the size follows the speed of the brokers:

* committed, full and quick: twice as much, or the size for which the time aimed at is enough;
* committed, but slow: the size for which that time would have been enough, a quarter and ``LEAST_BYTES`` at least;
* abandoned: half of its size, one record in the end.

So every record that the brokers can take within a timeout gets through, at any bandwidth, no matter if a quota, a slow
line or a busy broker limits it. The learned size is forgotten after a while, because a quota may be new.

A quota is one of the client, so the brokers hold back the writes of all partitions for the bytes of one. While they do
so, transactions are planned to take a part of the usual time (``UNDER_QUOTA``). So the records of other partitions wait
for a fraction of a second each time, and not for seconds.
"""

from typing import Final

AIM_S: Final = 2.0
"""The time in s that a transaction is planned to take at most. Its fixed cost, some 20 ms, does not matter then, and
consumers see its records only at its end."""

UNDER_QUOTA: Final = 8
"""The divisor of this time while brokers report that a quota is used up. The fixed cost then is a tenth of the time."""

AIM_SHARE: Final = 16
"""The part of the transaction timeout to aim at, where the timeout is short."""

BESIDE_SHARE: Final = 4
"""The part of the timeout that data beside the records may take, such as segments, which cannot be cut."""

START_BYTES: Final = 8 * 1_048_576
"""The first size: a second on a slow line, and a few steps below the largest."""

FORGET_AFTER_S: Final = 60.0
"""Time in s that a size is trusted without another full transaction, and that a quota is expected to last."""

LEAST_BYTES: Final = 65_536
"""The size below which only abandoned transactions lower it. The time of a smaller one is the time that it waits, also
for the bytes of other partitions. Where each of them lowered the size, a partition with few bytes would release one
record in each transaction, and its backlog would grow."""

SHRINK: Final = 4
"""The time of a small transaction says little about a large one: one of them lowers the size no further than by
this."""


class TransactionSize:
    """The bytes that the next transaction may have; every time is an argument, of a steady clock in seconds.

    It lives longer than the ownership of a partition, because a take-over follows on an abandoned transaction.

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
        self._quota_until_s = float("-inf")

    def limit_bytes(self, now_s: float) -> int:
        """Return the most bytes of records for the next transaction; at least one record goes, of any size."""
        usual_bytes = self.usual_bytes(now_s)
        return max(usual_bytes // self._divisor(now_s), min(usual_bytes, LEAST_BYTES))

    def usual_bytes(self, now_s: float) -> int:
        """Return the most bytes of records for a transaction that no quota limits."""
        if now_s - self._full_s > FORGET_AFTER_S:
            self._limit_bytes = min(self._limit_bytes, self._start_bytes)
        return self._limit_bytes

    def carries(self, beside_bytes: int, now_s: float) -> bool:
        """Return whether data of this size, which cannot be cut, may go along with records."""
        return beside_bytes * self._aim_s <= self.usual_bytes(now_s) * self._beside_s

    def throttled(self, now_s: float) -> None:
        """Note that a broker holds back the writes of the client; any thread may call it."""
        self._quota_until_s = now_s + FORGET_AFTER_S

    def committed(self, size_bytes: int, seconds: float, now_s: float) -> None:
        """Adjust the size to a transaction of ``size_bytes`` that was committed in ``seconds``."""
        # The size stands for the usual time also while transactions are planned for a part of it.
        divisor = self._divisor(now_s)
        size_bytes, seconds, limit = size_bytes * divisor, seconds * divisor, self._limit_bytes
        enough = int(size_bytes * self._aim_s / max(seconds, 1e-6))
        if seconds > self._aim_s:
            self._limit_bytes = min(limit, max(enough, limit // SHRINK, LEAST_BYTES))
        elif 2 * size_bytes >= limit:
            self._limit_bytes = min(max(limit, min(2 * max(limit, size_bytes), enough)), self._most_bytes)
            self._full_s = now_s
        elif limit < self._start_bytes:
            # It was too small to tell, but trying a little more risks as little.
            self._limit_bytes = min(2 * limit, self._start_bytes)

    def abandoned(self, size_bytes: int) -> None:
        """Adjust the size to a transaction that was not committed, or whose outcome is unknown."""
        self._limit_bytes = max(1, min(self._limit_bytes, size_bytes) // 2)

    def _divisor(self, now_s: float) -> int:
        return UNDER_QUOTA if now_s < self._quota_until_s else 1

    def check(self) -> None:
        """Assert every invariant."""
        assert 1 <= self._limit_bytes <= self._most_bytes
        assert 0 < self._aim_s < self._beside_s
