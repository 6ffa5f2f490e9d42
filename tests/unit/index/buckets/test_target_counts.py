"""Counts by target, against a count of every entry."""

from collections import Counter
from random import Random

import pytest

from index.buckets.bucket import Manifest, Placement, SegmentRef, TargetCounts
from index.buckets.target_counts import MOST_TARGETS, OTHERS, by_target, count_routes, counts_of, in_proportion, largest
from index.pending.progress import Position


@pytest.mark.parametrize("seed", range(8))
def test_routes_are_counted_as_by_a_loop(seed: int) -> None:
    rng = Random(seed)
    pool = [tuple(f"t{number}" for number in sorted(rng.sample(range(6), rng.randint(0, 3)))) for _ in range(5)]
    routes = [rng.choice(pool[: 1 + seed % 5]) for _ in range(300)]
    naive: Counter[str] = Counter()
    for route in routes:
        naive.update(route or [OTHERS])
    # A route with a single target may also be given as that target.
    counted = count_routes([route[0] if len(route) == 1 and rng.random() < 0.5 else route for route in routes])
    assert dict(counted) == dict(naive)
    named = [count for target, count in counted if target != OTHERS]
    assert named == sorted(named, reverse=True)


def test_only_the_largest_are_named() -> None:
    counts = {f"t{number:02}": 100 - number for number in range(MOST_TARGETS + 5)}
    kept = largest({**counts, OTHERS: 7})
    assert [target for target, _ in kept] == [*sorted(counts)[:MOST_TARGETS], OTHERS]
    assert kept[-1] == (OTHERS, 7 + sum(100 - number for number in range(MOST_TARGETS, MOST_TARGETS + 5)))
    assert sum(dict(kept).values()) == sum(counts.values()) + 7


def test_nothing_is_nothing() -> None:
    assert count_routes([]) == largest({}) == ()
    assert by_target({(): 3}) == {OTHERS: 3}


def segment(first_ms: int, last_ms: int, entries: int, targets: TargetCounts = ()) -> SegmentRef:
    return SegmentRef(Position(first_ms, 1), Position(last_ms, 2), entries, 10, 0, Placement.INLINE, targets)


def manifest(*segments: SegmentRef) -> Manifest:
    return Manifest(1, 0, 100, None, segments)


def test_what_nobody_has_counted_is_of_others() -> None:
    assert counts_of(segment(0, 9, 5)) == ((OTHERS, 5),)
    assert counts_of(segment(0, 9, 5, (("a", 5),))) == (("a", 5),)


def test_a_merged_segment_is_estimated_from_those_it_overlaps() -> None:
    one = manifest(segment(0, 100, 60, (("a", 60),)), segment(200, 300, 40, (("b", 30), ("a", 10))))
    two = manifest(segment(150, 180, 20), segment(250, 260, 10, (("b", 10),)))
    assert in_proportion(segment(10, 90, 50), [one, two]) == (("a", 50),)
    assert in_proportion(segment(210, 270, 50), [one, two]) == (("b", 40), ("a", 10))
    assert in_proportion(segment(0, 160, 40), [one, two]) == (("a", 30), (OTHERS, 10))
    assert in_proportion(segment(400, 500, 40), [one, two]) == ()


def test_no_entry_is_lost_to_rounding() -> None:
    source = manifest(segment(0, 100, 99, (("a", 33), ("b", 33), ("c", 33))))
    for entries in range(1, 100):
        assert sum(dict(in_proportion(segment(1, 99, entries), [source])).values()) == entries
