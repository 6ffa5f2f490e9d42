"""Limits the requests of each caller with a token bucket."""

import time
from collections.abc import Callable
from typing import Final, NamedTuple


class Rate(NamedTuple):
    """A limit of ``burst`` requests at once, then ``per_s`` a second."""

    per_s: float
    burst: float


KNOWN: Final = Rate(200.0, 400.0)
UNKNOWN: Final = Rate(10.0, 50.0)
"""Rate of all callers together that show no known token: enough for a mistake, too little to fill a log."""

ANYBODY: Final = Rate(50.0, 200.0)
"""Rate of each client that asks for metrics, without a token; scrapers ask every few seconds."""

MAX_BUCKETS: Final = 2_000
"""Most buckets. Rotated tokens leave a bucket behind; beyond this number all buckets begin anew."""


class _PaceBucket:
    def __init__(self, left: float, filled_s: float) -> None:
        self.left = left
        self.filled_s = filled_s


class Pace:
    """The buckets of all callers; used by the event loop only."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._buckets: dict[str, _PaceBucket] = {}

    def wait_s(self, caller: str, rate: Rate) -> float:
        """Take one request from the bucket of a caller; return 0, or the wait in seconds when the bucket is empty."""
        now_s = self._now_s()
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.clear()
        bucket = self._buckets.setdefault(caller, _PaceBucket(rate.burst, now_s))
        bucket.left = min(rate.burst, bucket.left + (now_s - bucket.filled_s) * rate.per_s)
        bucket.filled_s = now_s
        if bucket.left < 1:
            return (1 - bucket.left) / rate.per_s
        bucket.left -= 1
        return 0.0
