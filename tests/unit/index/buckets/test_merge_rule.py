"""How often the merge rule writes an entry again: index.buckets.bucket_rules.to_merge over days of simulated intake."""

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from index.buckets.bucket import Bucket
from index.buckets.bucket_rules import rewrites as estimated
from index.buckets.bucket_rules import to_merge
from index.pending.progress import Position

DAY_S = 86_400
SEAL_S = 60
MAX_BUCKETS = 24


class ModelBucket:
    """A bucket of entries that were taken in over some time, each due at any moment of the horizon behind it."""

    def __init__(self, from_s: int, to_s: int, entries: float, horizon_s: int) -> None:
        self._middle_s = (from_s + to_s) / 2
        self._horizon_s = horizon_s
        self.to_s = to_s
        self.entries = entries
        self.stored = 0
        last = Position((to_s + horizon_s) * 1_000, 0)
        self.manifest = SimpleNamespace(from_offset=from_s, segments=(), last=last)

    def pass_to(self, now_s: int) -> None:
        """Let the entries leave that are due."""
        self.stored = max(int(self.entries * (1 - (now_s - self._middle_s) / self._horizon_s)), 0)

    def is_mergeable(self, _watermark: Position) -> bool:
        return True


def rewrites(intake: Callable[[int], float], horizon_s: int, days: float, max_buckets: int = MAX_BUCKETS) -> float:
    """Return how often a merge wrote an entry, for each entry taken in; ``intake`` returns the entries of a seal."""
    buckets: list[ModelBucket] = []
    taken, merged = 0.0, 0
    for number in range(int(days * DAY_S / SEAL_S)):
        now_s = (number + 1) * SEAL_S
        entries = intake(number)
        taken += entries
        buckets.append(ModelBucket(now_s - SEAL_S, now_s, entries, horizon_s))
        for bucket in buckets:
            bucket.pass_to(now_s)
        buckets = [bucket for bucket in buckets if bucket.to_s + horizon_s > now_s]
        while sources := to_merge(cast("list[Bucket]", buckets), max_buckets, soon_to_ms=now_s * 1_000):
            merged += sum(source.stored for source in sources)
            first = buckets.index(cast("ModelBucket", sources[0]))
            parts = buckets[first : first + len(sources)]
            whole = sum(part.entries for part in parts)
            one = ModelBucket(parts[0].manifest.from_offset, parts[-1].to_s, whole, horizon_s)
            one.pass_to(now_s)
            buckets[first : first + len(sources)] = [one]
        assert len(buckets) <= max_buckets
    return merged / taken


@pytest.mark.parametrize(
    ("per_s", "horizon_s", "days", "most"),
    [
        pytest.param(2_800, 3_600, 0.2, 1.2, id="an hour"),
        pytest.param(1_000, DAY_S, 3, 4, id="a day"),
        pytest.param(417, 7 * DAY_S, 14, 6.5, id="a week"),
        pytest.param(6, 30 * DAY_S, 45, 8, id="a month"),
    ],
)
def test_rewrites_follow_the_logarithm_of_the_seals_that_are_pending(
    per_s: int, horizon_s: int, days: float, most: float
) -> None:
    measured = rewrites(lambda _: per_s * SEAL_S, horizon_s, days)
    assert measured <= most
    assert measured <= estimated(horizon_s / SEAL_S, MAX_BUCKETS) <= measured + 2.5


UNEVEN: dict[str, Callable[[int, random.Random], float]] = {
    "night and day": lambda number, _rng: 5_000 if number % 1_440 < 720 else 100,
    "large and small in turn": lambda number, _rng: 10_000 if number % 2 else 10,
    "a burst, then a trickle": lambda number, _rng: 1_000_000 if number < 100 else 5,
    "of any size": lambda _number, rng: rng.lognormvariate(6, 2),
    "four times as large each minute": lambda number, _rng: 4 ** (number % 8),
}


@pytest.mark.parametrize("shape", UNEVEN)
def test_an_uneven_intake_is_written_again_at_most_twelve_times(shape: str) -> None:
    rng = random.Random(1)
    assert rewrites(lambda number: UNEVEN[shape](number, rng), 7 * DAY_S, 14) <= 12


def test_few_buckets_cost_more_and_stay_few() -> None:
    assert rewrites(lambda _: 100 * SEAL_S, 7 * DAY_S, 7, max_buckets=5) <= 20
