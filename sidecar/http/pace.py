"""How many requests a caller may make: one token bucket each."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple


class Rate(NamedTuple):
    """``burst`` requests at once, then ``per_s`` a second."""

    per_s: float
    burst: float


KNOWN: Final = Rate(200.0, 400.0)
UNKNOWN: Final = Rate(10.0, 50.0)
"""For all callers together that show no known token: enough for a mistake, too little to fill a log."""

ANYBODY: Final = Rate(50.0, 200.0)
"""For each client that asks for metrics, without a token; scrapers ask once in seconds."""

MAX_BUCKETS: Final = 2_000
"""Rotated tokens leave a bucket behind; beyond so many all begin anew."""


class _Bucket:
    def __init__(self, left: float, filled_s: float) -> None:
        self.left = left
        self.filled_s = filled_s


class Pace:
    """The buckets of all callers; used by the event loop only."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._buckets: dict[str, _Bucket] = {}

    def wait_s(self, caller: str, rate: Rate) -> float:
        """Take one request of a caller's; 0, or how long it must wait for the next one."""
        now_s = self._now_s()
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(caller, _Bucket(rate.burst, now_s))
        bucket.left = min(rate.burst, bucket.left + (now_s - bucket.filled_s) * rate.per_s)
        bucket.filled_s = now_s
        if bucket.left < 1:
            return (1 - bucket.left) / rate.per_s
        bucket.left -= 1
        return 0.0
