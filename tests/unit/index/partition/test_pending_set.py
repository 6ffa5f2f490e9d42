"""PendingSet, one rule at a time; test_buckets_model.py has the random operations."""

from itertools import islice

import pytest

from index.buckets.bucket import Manifest
from index.partition.pending_set import PendingSet
from index.pending.progress import BEFORE_ALL, Position
from tests.support.manifests import Place, bucket, entries, manifest, places

FAR = 1_000


def taken(parts: PendingSet[str], now_ms: int = FAR, most: int = 100) -> list[Place]:
    found = parts.take_due(now_ms, most)
    parts.leave(found)
    parts.check()
    return places(found)


def indexed(*held: Place) -> PendingSet[str]:
    parts: PendingSet[str] = PendingSet(min((offset for _, offset in held), default=0))
    parts.mutable.add(entries(*held))
    parts.check()
    return parts


def frozen(*held: Place, newer: tuple[Place, ...] = ()) -> PendingSet[str]:
    parts = indexed(*held)
    parts.freeze(max(offset for _, offset in held) + 1)
    parts.mutable.add(entries(*newer))
    parts.check()
    return parts


def load(parts: PendingSet[str], number: int, *held: Place, watermark: Place = BEFORE_ALL) -> list[Place]:
    dropped = parts.load(7, number, entries(*held), Position(*watermark))
    parts.check()
    return places(dropped)


def test_release_order_goes_across_loaded_frozen_and_mutable() -> None:
    parts = frozen((30, 10), (10, 11), newer=((20, 12), (5, 13), (30, 14)))
    parts.buckets[7] = bucket(7, [(7, 2), (30, 3)])
    load(parts, 0, (7, 2), (30, 3))
    assert (parts.in_memory, parts.stored, parts.next_due_ms(), parts.furthest_due_ms()) == (7, 0, 5, 30)
    assert taken(parts, most=3) == [(5, 13), (7, 2), (10, 11)]
    assert taken(parts) == [(20, 12), (30, 3), (30, 10), (30, 14)]
    assert (parts.in_memory, parts.next_due_ms(), parts.furthest_due_ms()) == (0, None, None)


def test_untaken_entries_go_back_to_where_they_were() -> None:
    parts = frozen((10, 10), (10, 11), newer=((10, 12),))
    parts.buckets[7] = bucket(7, [(10, 2), (10, 3)])
    load(parts, 0, (10, 2), (10, 3))
    found = parts.take_due(FAR, 100)
    parts.untake(found[1:])
    parts.leave(found[:1])
    parts.check()
    assert parts.frozen is not None
    counts = len(parts.frozen), len(parts.mutable), parts.in_memory
    assert counts == (2, 1, 4)
    assert taken(parts) == [(10, 3), (10, 10), (10, 11), (10, 12)]


def test_nothing_is_released_at_or_beyond_the_first_entry_that_is_not_in_memory() -> None:
    parts = indexed((10, 20), (15, 21), (15, 23), (40, 22))
    parts.buckets[7] = bucket(7, [(15, 5), (20, 3)], [(30, 4)])
    assert (parts.barrier(), parts.next_due_ms(), parts.next_releasable_ms()) == ((15, 5), 10, 10)
    assert taken(parts) == [(10, 20)]
    assert (parts.next_due_ms(), parts.next_releasable_ms()) == (15, None)
    assert load(parts, 0, (15, 5), (20, 3)) == []
    assert taken(parts) == [(15, 5), (15, 21), (15, 23), (20, 3)]
    assert (parts.barrier(), parts.next_releasable_ms(), parts.furthest_due_ms(), parts.stored) == (
        (30, 4),
        None,
        40,
        1,
    )
    load(parts, 1, (30, 4))
    assert (parts.barrier(), parts.next_releasable_ms()) == (None, 30)
    assert taken(parts) == [(30, 4), (40, 22)]


def test_the_lowest_of_several_barriers_holds() -> None:
    parts = indexed((50, 30))
    parts.buckets = {7: bucket(7, [(20, 5)]), 8: bucket(8, [(10, 15)])}
    assert (parts.barrier(), parts.next_due_ms(), parts.furthest_due_ms()) == ((10, 15), 10, 50)


def test_what_has_left_or_is_held_is_dropped_when_it_is_loaded() -> None:
    parts = indexed()
    parts.buckets[7] = bucket(7, [(10, 1), (20, 2), (30, 3)], [(30, 4), (40, 5)], loaded_to=(20, 2))
    assert load(parts, 0, (10, 1), (20, 2), (30, 3), watermark=(20, 2)) == [(10, 1), (20, 2)]
    parts.buckets[7] = bucket(7, [(10, 1), (20, 2), (30, 3)], [(30, 4), (40, 5)], loaded_to=(20, 2))
    assert load(parts, 0, (10, 1), (20, 2), (30, 3), watermark=(20, 2)) == [(10, 1), (20, 2), (30, 3)]
    assert load(parts, 1, (30, 4), (40, 5), watermark=(20, 2)) == []
    assert taken(parts) == [(30, 3), (30, 4), (40, 5)]


def test_s_is_the_lowest_offset_that_is_in_no_bucket() -> None:
    parts = frozen((30, 10), (20, 11), newer=((10, 12), (10, 13)))
    assert (parts.lowest_unsealed(), parts.lowest_unsealed(without_frozen=True)) == (10, 12)
    taken(parts, now_ms=10, most=1)
    assert (parts.lowest_unsealed(), parts.lowest_unsealed(without_frozen=True)) == (10, 13)
    taken(parts)
    assert parts.lowest_unsealed() is None
    assert indexed().lowest_unsealed() is None


def test_one_bucket_is_sealed_at_a_time() -> None:
    parts = frozen((10, 1))
    with pytest.raises(ValueError, match="a bucket is being sealed already"):
        parts.freeze(5)


def test_a_seal_that_failed_leaves_everything_as_it_was() -> None:
    parts = frozen((10, 10), (30, 11), newer=((20, 12), (5, 13)))
    assert taken(parts, now_ms=10) == [(5, 13), (10, 10)]
    parts.thaw()
    parts.check()
    assert parts.frozen is None
    assert (parts.lowest_unsealed(), parts.mutable.from_offset, parts.in_memory) == (11, 10, 2)
    parts.freeze(14)
    assert taken(parts) == [(20, 12), (30, 11)]


SEALED = manifest(7, [(1_000, 1), (2_000, 2)], [(3_000, 3), (4_000, 4)], [(5_000, 5)])


@pytest.mark.parametrize(
    ("keep_to", "watermark", "in_memory", "barrier"),
    [
        ((999, 0), (-1, -1), 0, (1_000, 1)),
        ((1_000, 1), (-1, -1), 2, (3_000, 3)),
        ((2_999, 0), (-1, -1), 2, (3_000, 3)),
        ((3_000, 3), (-1, -1), 4, (5_000, 5)),
        ((9_999, 0), (-1, -1), 5, None),
        ((999, 0), (2_000, 2), 0, (3_000, 3)),
        ((999, 0), (3_000, 3), 0, (3_000, 4)),
        ((3_500, 0), (3_000, 3), 1, (5_000, 5)),
    ],
)
def test_of_a_sealed_bucket_whole_segments_that_are_due_soon_stay_in_memory(
    keep_to: Place, watermark: Place, in_memory: int, barrier: Place | None
) -> None:
    parts = frozen((1_000, 1), (2_000, 2), (3_000, 3), (4_000, 4), (5_000, 5), newer=((4_500, 6),))
    gone = taken(parts, now_ms=watermark[0])
    assert len(gone) == sum(place <= watermark for place in [(1_000, 1), (2_000, 2), (3_000, 3)])
    parts.install_sealed(SEALED, Position(*watermark), Position(*keep_to))
    parts.check()
    assert parts.frozen is None
    assert (parts.in_memory, parts.barrier()) == (in_memory + 1, barrier)
    assert parts.lowest_unsealed() == 6


def test_what_stays_in_memory_beyond_a_segment_is_known_when_the_next_one_is_loaded() -> None:
    parts = frozen((10, 1), (20, 2), (30, 3), (5_000, 4))
    sealed = manifest(7, [(10, 1), (20, 2)], [(30, 3), (5_000, 4)])
    parts.install_sealed(sealed, BEFORE_ALL, Position(10, 1))
    parts.check()
    assert (parts.in_memory, parts.barrier()) == (3, (30, 3))
    assert taken(parts) == [(10, 1), (20, 2)]
    assert load(parts, 1, (30, 3), (5_000, 4), watermark=(20, 2)) == [(30, 3)]
    assert taken(parts, now_ms=9_999) == [(30, 3), (5_000, 4)]


def test_what_a_bucket_holds_now_is_let_go_of_a_few_at_a_time() -> None:
    parts = indexed(*((due_ms, due_ms) for due_ms in range(0, 3_000, 300)))
    parts.freeze(3_000)
    held = manifest(7, [(due_ms, due_ms) for due_ms in range(0, 3_000, 300)])
    parts.install_sealed(held, BEFORE_ALL, BEFORE_ALL)
    assert (parts.in_memory, parts.stored) == (0, 10)
    first = [*islice(parts.dropping(), 3)]
    assert len(first) == 3
    assert parts.is_dropping
    parts.mutable.add(entries((10, 3_000)))
    parts.freeze(3_001)
    parts.install_sealed(manifest(8, [(10, 3_000)]), BEFORE_ALL, BEFORE_ALL)
    parts.check()
    rest = [*parts.dropping()]
    assert sorted(offset for run in first + rest for offset in run.offsets) == [*range(0, 3_000, 300), 3_000]
    assert not parts.is_dropping


def test_a_bucket_of_which_nothing_is_left_is_not_made() -> None:
    parts = frozen((10, 1))
    with pytest.raises(AssertionError):
        parts.discard_frozen()
    taken(parts)
    parts.discard_frozen()
    parts.check()
    assert parts.frozen is None


A, B = manifest(1, [(10, 1), (20, 2)], [(60, 3)]), manifest(2, [(30, 11)], [(40, 12), (70, 13)])
MERGED = manifest(7, [(10, 1), (20, 2), (30, 11)], [(40, 12), (60, 3), (70, 13)])


def two_buckets(loaded: dict[int, int]) -> PendingSet[str]:
    parts = indexed()
    held = {1: [((10, 1), (20, 2)), ((60, 3),)], 2: [((30, 11),), ((40, 12), (70, 13))]}
    for source in (A, B):
        parts.buckets[source.bucket_id] = bucket(source.bucket_id, *held[source.bucket_id])
        for number in range(loaded[source.bucket_id]):
            parts.load(source.bucket_id, number, entries(*held[source.bucket_id][number]), BEFORE_ALL)
    parts.check()
    return parts


@pytest.mark.parametrize(
    ("loaded", "barrier"),
    [
        ({1: 0, 2: 0}, (10, 1)),
        ({1: 1, 2: 0}, (30, 11)),
        ({1: 0, 2: 2}, (10, 1)),
        ({1: 1, 2: 1}, (40, 12)),
        ({1: 1, 2: 2}, (60, 3)),
        ({1: 2, 2: 0}, (30, 11)),
        ({1: 2, 2: 1}, (40, 12)),
        ({1: 2, 2: 2}, None),
    ],
)
def test_a_merged_bucket_is_loaded_as_far_as_all_its_sources_were(
    loaded: dict[int, int], barrier: Place | None
) -> None:
    parts = two_buckets(loaded)
    parts.install_merged(MERGED, [1, 2], BEFORE_ALL)
    parts.check()
    assert list(parts.buckets) == [7]
    assert parts.barrier() == barrier
    for number, held in enumerate([[(10, 1), (20, 2), (30, 11)], [(40, 12), (60, 3), (70, 13)]]):
        if parts.buckets[7].next_segment == number:
            load(parts, number, *held)
    assert taken(parts) == [(10, 1), (20, 2), (30, 11), (40, 12), (60, 3), (70, 13)]


def test_a_merge_that_raced_releases_brings_nothing_back() -> None:
    parts = two_buckets({1: 1, 2: 0})
    assert taken(parts, now_ms=20) == [(10, 1), (20, 2)]
    watermark = Position(20, 2)
    parts.install_merged(MERGED, [1, 2], watermark)
    parts.check()
    assert parts.barrier() == (30, 11)
    assert load(parts, 0, (10, 1), (20, 2), (30, 11), watermark=watermark) == [(10, 1), (20, 2)]
    assert load(parts, 1, (40, 12), (60, 3), (70, 13), watermark=watermark) == []
    assert taken(parts) == [(30, 11), (40, 12), (60, 3), (70, 13)]


def test_a_merge_holds_nothing_up_that_is_in_memory() -> None:
    """One source of the merge has no entry to load for a long while, so it was never read."""
    parts = indexed()
    near = [[(10, 1), (20, 2)], [(30, 3)]]
    parts.buckets[1] = bucket(1, *near)
    for number, held in enumerate(near):
        parts.load(1, number, entries(*held), BEFORE_ALL)
    parts.buckets[2] = bucket(2, [(3_600_000, 11)])
    merged = manifest(7, [(10, 1), (20, 2)], [(30, 3), (3_600_000, 11)])
    parts.install_merged(merged, [1, 2], BEFORE_ALL)
    parts.check()
    assert parts.next_releasable_ms() == 10
    assert taken(parts, now_ms=30) == [(10, 1), (20, 2), (30, 3)]


@pytest.mark.parametrize("overlapping", [manifest(2, [(5, 2)]), manifest(2, [(5, 3)], offsets=(0, 9))])
def test_check_finds_buckets_that_overlap(overlapping: Manifest) -> None:
    parts = indexed()
    parts.buckets = {1: bucket(1, [(5, 1), (6, 3)]), 2: bucket(2, [(5, 2)])}
    parts.buckets[2].manifest = overlapping
    with pytest.raises(AssertionError):
        parts.check()
