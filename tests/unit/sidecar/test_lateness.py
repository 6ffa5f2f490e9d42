"""Quantiles of lateness, and the counts of the last minutes, against a count of every record."""

import random

import pytest

from sidecar.lateness import LATENESS_BOUNDS_MS, RECENT_MS, RecentLateness, quantile_ms, quantile_s, released_within


@pytest.mark.parametrize(
    ("buckets", "fraction", "expected"),
    [
        ([], 0.5, None),
        ([(1.0, 0.0), (float("inf"), 0.0)], 0.5, None),
        ([(1.0, 10.0), (float("inf"), 10.0)], 0.5, 0.5),
        ([(1.0, 5.0), (3.0, 10.0), (float("inf"), 10.0)], 0.75, 2.0),
        ([(1.0, 0.0), (float("inf"), 10.0)], 0.99, 1.0),
    ],
)
def test_quantiles(buckets: list[tuple[float, float]], fraction: float, expected: float | None) -> None:
    assert quantile_s(buckets, fraction) == expected


@pytest.mark.parametrize("seed", range(10))
def test_the_last_minutes_are_counted_and_nothing_before(seed: int) -> None:
    rng = random.Random(seed)
    recent = RecentLateness()
    batches: list[tuple[int, list[int]]] = []
    now_ms = 10**9
    for _ in range(30):
        now_ms += rng.choice([0, 1_000, RECENT_MS // 3, 3 * RECENT_MS])
        late = [rng.choice([0, 3, 40, 10**8]) for _ in range(rng.randint(1, 5))]
        recent.add(released_within(sorted(-late_ms for late_ms in late), 0), now_ms)
        batches.append((now_ms // RECENT_MS, late))
        known = [each for period, found in batches for each in found if period >= now_ms // RECENT_MS - 1]
        within = [sum(each <= bound_ms for each in known) for bound_ms in LATENESS_BOUNDS_MS]
        assert recent.counts(now_ms) == (*within, len(known))
        assert recent.ever[-1] == sum(len(found) for _, found in batches)
    assert set(recent.counts(now_ms + 2 * RECENT_MS)) == {0}


def test_quantiles_in_ms() -> None:
    # Two records within 1 ms, and two from 5 to 8 ms.
    counts = released_within([93, 94, 100, 100], 100)
    assert quantile_ms(counts, 0.25) == 0.5
    assert quantile_ms(counts, 0.75) == 6.5
    assert quantile_ms([], 0.5) is None
    assert quantile_ms([0] * (len(LATENESS_BOUNDS_MS) + 1), 0.99) is None
