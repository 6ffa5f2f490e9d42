"""Counts of pending entries by due time, against a count of every entry."""

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest

from index.buckets.bucket import Bucket, Manifest, Placement, SegmentRef
from index.buckets.bucket_rules import SealRules, cut
from index.buckets.due_marks import check_marks, marks_of, thinned
from index.buckets.target_counts import OTHERS
from index.partition import survey as surveying
from index.partition.pending_set import PendingSet
from index.partition.survey import BOUNDS_MS, SPREAD_BOUNDS_MS, Survey, survey
from index.pending.progress import BEFORE_ALL, Position
from tests.support.runs import SMALL_RUNS

NOW_MS = 1_800_000_000_000 >> 8 << 8


def counted(steps: Generator[None, None, Survey]) -> tuple[Survey, int]:
    """Return the result, and the number of steps it took."""
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as finished:
            result: Survey = finished.value
            return result, taken
        taken += 1


def exact(due_times_ms: list[int], bounds_ms: Sequence[int] = BOUNDS_MS) -> tuple[int, ...]:
    counts = [0] * (len(bounds_ms) + 1)
    for due_ms in due_times_ms:
        counts[bisect_left(bounds_ms, due_ms - NOW_MS)] += 1
    return tuple(counts)


def stored(bucket_id: int, *spans: tuple[int, int, int]) -> Bucket:
    """Make a bucket of segments, given as (first due, last due, entries), with nothing loaded."""
    segments = tuple(
        SegmentRef(
            Position(first, 2 * number), Position(last, 2 * number + 1), entries, 1_000, number, Placement.INLINE
        )
        for number, (first, last, entries) in enumerate(spans)
    )
    return Bucket(Manifest(bucket_id, bucket_id * 100, bucket_id * 100 + 100, None, segments), BEFORE_ALL)


@pytest.mark.parametrize("seed", range(10))
def test_entries_in_memory_to_a_chunk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(surveying, "CHUNKS_AT_ONCE", rng.choice([1, 7, 4_000]))
    parts: PendingSet[None] = PendingSet(0, SMALL_RUNS)
    # Due times lie whole chunks away from now, so that a chunk lies on one side of each bound; bounds are no multiples
    # of 256 ms.
    due = [NOW_MS + 256 * rng.choice([-5, -1, 0, 1, 2, 30, 300, 9_000, 90_000, 5_000_000]) for _ in range(500)]
    parts.mutable.add([(due_ms, offset, None) for offset, due_ms in enumerate(due)])
    frozen = parts.freeze(500)
    assert len(frozen) == 500
    parts.mutable.add([(NOW_MS + 256, 500, None)])
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS))
    # The chunk of now ends after now; entries in waiting runs are counted to the millisecond.
    waiting = [due_ms for run in parts.waiting_runs() for due_ms, _, _ in run]
    soon = Counter([*due, NOW_MS + 256]) - Counter(waiting)
    assert len(waiting) > 300
    late = [*waiting, *(due_ms + 255 for due_ms in soon.elements())]
    assert result.by_due == exact(late)
    assert sum(result.by_due) == 501


def test_segments_of_0_1_0_are_spread_evenly_and_none_is_lost() -> None:
    parts: PendingSet[None] = PendingSet(0)
    parts.buckets[1] = stored(
        1,
        (NOW_MS - 100, NOW_MS + 100, 201),  # half overdue
        (NOW_MS + 500, NOW_MS + 500, 7),
        (NOW_MS + 2_000, NOW_MS + 2_000_000, 1_000),
    )
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS))
    assert result.by_due[0] == 101
    assert result.by_due[1] == 100 + 7
    assert result.by_due[2] == 1 + 4  # the first entry, and 8 s of 33 minutes
    assert sum(result.by_due) == 1_208
    assert result.snapshot_bytes == 3_000


def sealed(bucket_id: int, dues_ms: list[int], rules: SealRules) -> Bucket:
    """Make a bucket of entries with these due times, as the router cuts it, with nothing loaded."""
    entries = [(due_ms, bucket_id * 10_000 + offset, 0) for offset, due_ms in enumerate(sorted(dues_ms))]
    segments = [
        SegmentRef(
            Position(*run[0][:2]),
            Position(*run[-1][:2]),
            len(run),
            1_000,
            0,
            Placement.INLINE,
            dues=marks_of([due_ms for due_ms, _, _ in run]),
        )
        for run in cut([entries], rules, lambda _: 1)
    ]
    manifest = Manifest(bucket_id, bucket_id * 10_000, (bucket_id + 1) * 10_000, None, tuple(segments))
    bucket = Bucket(manifest, BEFORE_ALL)
    bucket.check()
    return bucket


def due_times(rng: random.Random, count: int) -> list[int]:
    """Draw due times: some within the hour, some within a day, some far away, many at the same moment."""
    spans_ms = [1_000, 600_000, 3_600_000, 86_400_000, 30 * 86_400_000]
    moments_ms = [rng.randrange(spans_ms[3]) for _ in range(5)]
    some = [rng.choice(moments_ms) if rng.random() < 0.3 else rng.randrange(rng.choice(spans_ms)) for _ in range(count)]
    return [NOW_MS - 1_000 + each for each in some]


@pytest.mark.parametrize("seed", range(20))
def test_segments_are_counted_as_a_naive_model_counts_their_entries(seed: int) -> None:
    rng = random.Random(seed)
    small = seed < 10
    most = 160 if small else 1_500
    rules = SealRules(segment_entries=most, time_step_ms=rng.choice([1_000, 300_000, 86_400_000]))
    parts: PendingSet[int] = PendingSet(0)
    naive: list[int] = []
    off = 0
    for bucket_id in range(1, 4):
        dues_ms = due_times(rng, rng.choice([1, 7, 2_000]))
        bucket = sealed(bucket_id, dues_ms, rules)
        parts.buckets[bucket_id] = bucket
        whole = bucket.manifest.segments
        if seed % 3 == 0:
            few = thinned(whole, 100)
            assert sum(len(each.dues.at_ms) for each in few) <= 100
            parts.buckets[bucket_id] = Bucket(replace(bucket.manifest, segments=few), BEFORE_ALL)
        assert not any(map(check_marks, parts.buckets[bucket_id].manifest.segments))
        # Segments of a bucket do not overlap, so a bound lies in at most one of them.
        off += max(each.dues.every - 1 for each in parts.buckets[bucket_id].manifest.segments)
        naive += dues_ms
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS))
    if small and seed % 3:
        assert off == 0, "what is nearly empty is known entry by entry"
    for found, bounds_ms in ((result.by_due, BOUNDS_MS), (result.spread, SPREAD_BOUNDS_MS)):
        right = exact(naive, bounds_ms)
        assert sum(found) == len(naive)
        assert max(abs(one - two) for one, two in zip(accumulate(found), accumulate(right), strict=True)) <= off


def test_six_within_the_hour_and_one_next_week_are_told_apart() -> None:
    hour_ms, week_ms = 3_600_000, 6 * 86_400_000
    dues_ms = [*(NOW_MS + number * hour_ms // 7 for number in range(1, 7)), NOW_MS + week_ms]
    parts: PendingSet[int] = PendingSet(0)
    parts.buckets[1] = sealed(1, dues_ms, SealRules())
    assert len(parts.buckets[1].manifest.segments) == 1
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS))
    assert result.by_due == (0, 0, 0, 0, 1, 5, 0, 0, 1, 0)


def test_what_has_left_of_a_segment_is_not_counted() -> None:
    dues_ms = [NOW_MS - 3_000, NOW_MS - 2_000, NOW_MS - 1_000, NOW_MS + 500, NOW_MS + 500]
    bucket = sealed(1, dues_ms, SealRules())
    parts: PendingSet[int] = PendingSet(0)
    parts.buckets[1] = Bucket(bucket.manifest, Position(NOW_MS - 1_500, 0))
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS))
    assert result.by_due[:2] == (1, 2)
    assert sum(result.spread) == 3


def test_a_loaded_segment_is_counted_in_memory_only() -> None:
    parts: PendingSet[None] = PendingSet(0)
    parts.buckets[1] = stored(1, (NOW_MS + 500, NOW_MS + 500, 2), (NOW_MS + 30_000, NOW_MS + 30_001, 5))
    parts.load(1, 0, [(NOW_MS + 500, 0, None), (NOW_MS + 500, 1, None)], BEFORE_ALL)
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS))
    assert (result.by_due[1], result.by_due[3], sum(result.by_due)) == (2, 5, 7)
    assert result.snapshot_bytes == 2_000
    result, _ = counted(survey(parts, Position(NOW_MS + 600, 0), NOW_MS))
    assert result.snapshot_bytes == 1_000, "the first segment has left"


def test_it_goes_on_in_steps_while_entries_come_and_go() -> None:
    parts: PendingSet[None] = PendingSet(0)
    count = 3 * surveying.CHUNKS_AT_ONCE
    parts.mutable.add([(NOW_MS + 256 * number, number, None) for number in range(count)])
    parts.buckets[1] = stored(1, *((NOW_MS + n, NOW_MS + n, 1) for n in range(1, 2 * surveying.SEGMENTS_AT_ONCE + 1)))
    steps = survey(parts, BEFORE_ALL, NOW_MS)
    for _ in range(3):
        next(steps)
    assert parts.mutable.soon.take_due(NOW_MS + 256 * 10, 100)
    parts.mutable.add([(NOW_MS + 256 * (count + 1), count, None)])
    result, left = counted(steps)
    assert left == 2, "two more full ones; what was added behind them is part of the end"
    assert sum(result.by_due) == count + 1 + 2 * surveying.SEGMENTS_AT_ONCE


def test_nothing_pending() -> None:
    assert counted(survey(PendingSet[None](0), BEFORE_ALL, NOW_MS)) == (Survey(), 0)


Routed = tuple[str, ...]


def routes_of(entries: Iterable[tuple[int, int, Routed]]) -> list[Routed]:
    return [route for _, _, route in entries]


@pytest.mark.parametrize("seed", range(10))
def test_targets_are_counted_wherever_entries_lie(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(surveying, "ENTRIES_AT_ONCE", rng.choice([1, 7, 5_000]))
    monkeypatch.setattr(surveying, "CHUNKS_AT_ONCE", rng.choice([1, 7, 5_000]))
    parts: PendingSet[Routed] = PendingSet(0, SMALL_RUNS)
    naive: Counter[str] = Counter()

    def some(start: int, count: int) -> list[tuple[int, int, Routed]]:
        found = []
        for offset in range(start, start + count):
            route = rng.choice([("a",), ("b",), ("a", "b")])
            naive.update(route)
            found.append((NOW_MS + rng.choice([0, 256, 512]) + rng.randrange(256), offset, route))
        return found

    parts.mutable.add(some(200, 150))
    parts.freeze(350)
    parts.mutable.add(some(350, 30))
    held = [some(0, 20), [], some(50, 3)]
    parts.buckets[1] = stored(1, (NOW_MS + 500, NOW_MS + 501, 9), (NOW_MS + 600, NOW_MS + 601, 5))
    manifest = parts.buckets[1].manifest
    counted_segment = manifest.segments[0]._replace(targets=(("a", 8), (OTHERS, 1)))
    parts.buckets[1] = Bucket(replace(manifest, segments=(counted_segment, manifest.segments[1])), BEFORE_ALL)
    naive.update({"a": 8, OTHERS: 1 + 5})
    result, _ = counted(survey(parts, BEFORE_ALL, NOW_MS, routes_of, held))
    assert dict(result.by_target) == dict(naive)
    assert sum(result.by_due) == 180 + 23 + 14
    assert result.by_due[0] >= 23


def test_a_chunk_of_many_is_looked_at_in_steps() -> None:
    parts: PendingSet[Routed] = PendingSet(0)
    count = 3 * surveying.ENTRIES_AT_ONCE + 1
    parts.mutable.add([(NOW_MS, offset, ("a",)) for offset in range(count)])
    result, steps = counted(survey(parts, BEFORE_ALL, NOW_MS, routes_of))
    assert (result.by_target, steps) == ((("a", count),), 3)
