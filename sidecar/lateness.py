"""Counts the lateness of released records: in ranges, over the last few minutes of a partition, and as quantiles."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENESS_BOUNDS_MS: Final = (1, 2, 3, 5, 8, 10, 20, 50, 100, 250, 500, 1_000, 5_000, 30_000, 300_000, 3_600_000)

RECENT_MS: Final = 300_000
"""Period of a count; quantiles cover the last five to ten minutes, since one from the start would hardly move later."""


def released_within(due_times_ms: Sequence[int], released_ms: int) -> list[int]:
    """Return the number of ascending due times that were released within each bound, and last the number of all.

    The cost is O(bounds x log records) instead of O(records).

    >>> released_within([100, 104, 105], released_ms=106)[:5]
    [1, 2, 2, 2, 3]
    """
    count = len(due_times_ms)
    return [*(count - bisect_left(due_times_ms, released_ms - bound) for bound in LATENESS_BOUNDS_MS), count]


def quantile_s(buckets: Sequence[tuple[float, float]], fraction: float) -> float | None:
    """Return a quantile in seconds from pairs (upper bound, cumulative count), interpolated as Prometheus does it.

    Return None if the counts are zero, and the last finite bound if the quantile lies beyond it.
    """
    total = buckets[-1][1] if buckets else 0
    if not total:
        return None
    rank = fraction * total
    lower, below = 0.0, 0.0
    for bound, count in buckets:
        if count >= rank:
            if math.isinf(bound) or count == below:
                return lower
            return lower + (bound - lower) * (rank - below) / (count - below)
        lower, below = bound, count
    return lower


def quantile_ms(counts: Sequence[int], fraction: float) -> float | None:
    """Return a quantile in ms from counts of ``released_within``, or from sums of them; None if they are zero."""
    bounds_s = [*(bound_ms / 1_000 for bound_ms in LATENESS_BOUNDS_MS), math.inf]
    seconds = quantile_s(list(zip(bounds_s, counts, strict=False)), fraction)
    return None if seconds is None else round(seconds * 1_000, 1)


class RecentLateness:
    """Counts of one partition over its last minutes; every time is an argument, in ms of a steady clock.

    >>> recent = RecentLateness()
    >>> recent.add(released_within([100], 106), now_ms=0)
    >>> sum(recent.counts(now_ms=2 * RECENT_MS - 1)), sum(recent.counts(now_ms=2 * RECENT_MS))
    (13, 0)
    """

    def __init__(self) -> None:
        self.ever = _NOTHING
        """The sum of the counts of all batches."""
        self._period = 0
        self._now = self._before = _NOTHING

    def add(self, counts: Sequence[int], now_ms: int) -> None:
        """Add the counts of a batch, in the form of ``released_within``."""
        self._begin(now_ms // RECENT_MS)
        self._now = tuple(map(sum, zip(self._now, counts, strict=True)))
        self.ever = tuple(map(sum, zip(self.ever, counts, strict=True)))

    def counts(self, now_ms: int) -> tuple[int, ...]:
        """Return the sum of the counts of all recent batches, in the form of ``released_within``."""
        self._begin(now_ms // RECENT_MS)
        return tuple(map(sum, zip(self._now, self._before, strict=True)))

    def _begin(self, period: int) -> None:
        if period != self._period:
            self._before = self._now if period == self._period + 1 else _NOTHING
            self._period, self._now = period, _NOTHING


_NOTHING: Final = (0,) * (len(LATENESS_BOUNDS_MS) + 1)
