"""The rules of index.buckets.bucket_rules: when to seal, how to cut into segments, and where to place their payload."""

import random
from collections.abc import Iterator

import pytest

from index.buckets.bucket import Placement
from index.buckets.bucket_rules import NEARLY_EMPTY, SealRules, count_segments, cut, cut_runs, placement_of
from index.pending.pending import Entry, PendingIndex
from index.pending.run import ListRun

RULES = SealRules(time_step_ms=100, segment_entries=4, segment_bytes=1_000)


def entries(*due_times_ms: int, size: int = 10) -> list[Entry[int]]:
    return [(due_ms, offset, size) for offset, due_ms in enumerate(due_times_ms)]


def cut_dues(held: list[Entry[int]], rules: SealRules = RULES) -> list[list[int]]:
    return [[due_ms for due_ms, _, _ in segment] for segment in cut([held], rules, lambda size: size)]


@pytest.mark.parametrize(
    ("entries", "span", "age_ms", "must"),
    [
        (0, 999, 999, False),
        (1, 19, 29, False),
        (9, 19, 29, False),
        (10, 0, 0, True),
        (11, 0, 0, True),
        (1, 20, 0, True),
        (1, 21, 0, True),
        (1, 0, 30, True),
        (1, 0, 31, True),
    ],
)
def test_a_bucket_is_sealed_by_entries_by_span_or_by_age(entries: int, span: int, age_ms: int, must: bool) -> None:
    assert SealRules(max_entries=10, max_span=20, max_age_ms=30).must_seal(entries, span, age_ms) is must


def test_a_segment_ends_with_its_time_step() -> None:
    assert cut_dues(entries(0, 99, 100, 199, 350)) == [[0, 99], [100, 199], [350]]


def test_time_steps_do_not_depend_on_the_first_entry() -> None:
    assert cut_dues(entries(98, 99, 101, 102)) == [[98, 99], [101, 102]]


def test_a_segment_is_full_by_entries() -> None:
    assert cut_dues(entries(*range(9))) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]


def test_a_segment_is_full_by_bytes() -> None:
    assert cut_dues(entries(1, 2, 3, 4, size=400)) == [[1, 2], [3, 4]]
    assert cut_dues(entries(1, 2, 3, size=500)) == [[1, 2], [3]]


def test_a_record_that_is_too_big_is_alone_and_no_reason_to_stop() -> None:
    held = [(1, 0, 10), (2, 1, 5_000), (3, 2, 10), (4, 3, 10)]
    assert cut_dues(held) == [[1], [2], [3, 4]]


def test_nearly_empty_segments_go_on_into_the_next_time_step() -> None:
    rules = SealRules(time_step_ms=100, segment_entries=2 * NEARLY_EMPTY, segment_bytes=10_000)
    assert cut_dues(entries(0, 1_000, 2_000, 3_000, 3_001), rules) == [[0, 1_000], [2_000, 3_000], [3_001]]
    scattered = entries(*range(0, 100_000, 100))
    assert len(cut_dues(scattered, rules)) == 500


def test_nothing_is_cut_into_nothing() -> None:
    assert cut_dues([]) == []
    assert list(cut([[], []], RULES, lambda size: size)) == []


def test_runs_may_be_cut_anywhere() -> None:
    held = entries(*range(10), 150, 151)
    whole = list(cut([held], RULES, lambda size: size))
    assert list(cut([[each] for each in held], RULES, lambda size: size)) == whole
    assert [each for segment in whole for each in segment] == held


@pytest.mark.parametrize("seed", range(30))
def test_segments_hold_everything_once_in_order_and_within_limits(seed: int) -> None:
    rng = random.Random(seed)
    rules = SealRules(
        time_step_ms=rng.choice([1, 50, 1_000]),
        segment_entries=rng.choice([1, 7, 200]),
        segment_bytes=rng.choice([10, 100, 10_000]),
    )
    held = sorted((rng.randint(0, 3_000), offset, rng.choice([0, 5, 50, 500])) for offset in range(400))
    segments = list(cut([held[:150], held[150:]], rules, lambda size: size))
    assert [each for segment in segments for each in segment] == held
    for segment in segments:
        assert 0 < len(segment) <= rules.segment_entries
        assert sum(min(size, rules.segment_bytes) for _, _, size in segment) <= rules.segment_bytes
        steps = {due_ms // rules.time_step_ms for due_ms, _, _ in segment[rules.segment_entries // NEARLY_EMPTY :]}
        assert len(steps) <= 1


@pytest.mark.parametrize("seed", range(20))
def test_cut_while_entries_leave_and_none_that_stays_is_missed(seed: int) -> None:
    rng = random.Random(seed)
    index: PendingIndex[int] = PendingIndex()
    dues = [rng.randint(0, 5_000) for _ in range(300)]
    index.add((due_ms, offset, 10) for offset, due_ms in enumerate(dues))
    left: list[tuple[int, int]] = []
    written: list[tuple[int, int]] = []
    now_ms = 0
    for segment in _lazily(index, SealRules(time_step_ms=200, segment_entries=8)):
        written += [entry[:2] for entry in segment]
        now_ms += rng.randint(0, 60)
        left += [entry[:2] for entry in index.take_due(now_ms, rng.randint(0, 10))]
    assert written == sorted(set(written))
    assert left == sorted(left)
    everything = {(due_ms, offset) for offset, due_ms in enumerate(dues)}
    assert everything - set(written) <= set(left)
    assert everything - set(left) == {entry[:2] for chunk in index.chunks() for entry in chunk}


def _lazily(index: PendingIndex[int], rules: SealRules) -> Iterator[list[Entry[int]]]:
    return cut(index.chunks(), rules, lambda size: size)


def test_with_a_fixed_delay_auto_points_into_the_delay_topic() -> None:
    held = [(1_000 + offset // 20, 5_000 + offset, None) for offset in range(2_000)]
    assert placement_of([offset for _, offset, _ in held], "auto") is Placement.POINTER


@pytest.mark.parametrize(
    ("one_in", "placement"), [(1, Placement.POINTER), (2, Placement.INLINE), (100, Placement.INLINE)]
)
def test_auto_counts_what_is_scanned_between(one_in: int, placement: Placement) -> None:
    assert placement_of([offset * one_in for offset in range(2_000)], "auto") is placement


def test_with_scattered_due_times_auto_keeps_the_payload_in_the_segment(rng: random.Random) -> None:
    offsets = rng.sample(range(10_000_000), 2_000)
    assert placement_of(offsets, "auto") is Placement.INLINE


def test_auto_keeps_a_few_records_where_a_seek_would_cost_more() -> None:
    assert placement_of([1], "auto") is Placement.INLINE


@pytest.mark.parametrize("offsets", [range(1_000), range(0, 1_000_000, 1_000)])
def test_a_placement_that_is_told_is_taken(offsets: range) -> None:
    held = [(1, offset, None) for offset in offsets]
    assert placement_of([offset for _, offset, _ in held], "inline") is Placement.INLINE
    assert placement_of([offset for _, offset, _ in held], "pointer") is Placement.POINTER


@pytest.mark.parametrize("count", [1, 50, 1_000, 30_000])
@pytest.mark.parametrize("span_ms", [60_000, 3_600_000, 7 * 86_400_000])
@pytest.mark.parametrize("size_bytes", [200, 5_000])
def test_segments_are_counted_about_as_they_are_cut(count: int, span_ms: int, size_bytes: int) -> None:
    rules = SealRules(segment_entries=2_000, segment_bytes=512 << 10)
    held = [(number * span_ms // count, number, size_bytes) for number in range(count)]
    segments = len([*cut_runs([ListRun(held)], rules, lambda run: [size_bytes] * len(run), count)])
    assert count_segments(count, span_ms, rules, size_bytes) == pytest.approx(segments, rel=0.3, abs=1)
