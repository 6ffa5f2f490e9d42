"""The offsets of the delay topic and of the snapshots topic that must be kept, from manifests and progress."""

import random
from dataclasses import replace

import pytest

from index.buckets.bucket import Bucket, Manifest, Placement, SegmentRef
from index.buckets.retention import (
    Kept,
    delay_topic_needed_from,
    kept_for_backfills,
    snapshots_known_to,
    snapshots_needed_from,
)
from index.named.id_pages import IdPageRef
from index.named.places import HASH_BYTES
from index.pending.progress import BEFORE_ALL, Position, Progress


def bucket(
    bucket_id: int, *records: tuple[int, int], needs_from: int | None = None, loaded_to: Position = BEFORE_ALL
) -> Bucket:
    """Make a bucket of one-entry segments, given as (due time, offset of the segment's record)."""
    start = bucket_id * 100
    segments = tuple(
        SegmentRef(Position(due_ms, start + number), Position(due_ms, start + number), 1, 10, at, Placement.INLINE)
        for number, (due_ms, at) in enumerate(records)
    )
    return Bucket(Manifest(bucket_id, start, start + 100, needs_from, segments), loaded_to)


def progress(due_ms: int, sealed_to: int = 1_000) -> Progress:
    return Progress(cursor=2_000, watermark=Position(due_ms, 1 << 40), sealed_to=sealed_to)


def test_without_pointers_the_delay_topic_is_needed_from_s() -> None:
    assert delay_topic_needed_from(progress(0), []) == 1_000
    assert delay_topic_needed_from(progress(0), [bucket(1, (5, 7))]) == 1_000


def test_pointers_hold_the_delay_topic_until_their_whole_bucket_has_left() -> None:
    buckets = [bucket(3, (5, 7), (9, 8), needs_from=350), bucket(4, (6, 9), needs_from=410)]
    assert delay_topic_needed_from(progress(0), buckets) == 350
    assert delay_topic_needed_from(progress(6), buckets) == 350
    assert delay_topic_needed_from(progress(9), buckets) == 1_000
    assert delay_topic_needed_from(progress(9, sealed_to=100), buckets) == 100


def test_the_first_live_segment_of_any_bucket_holds_the_snapshots_topic() -> None:
    buckets = [bucket(1, (5, 70), (50, 71)), bucket(2, (1, 80), (60, 81))]
    assert snapshots_needed_from(Position(0, 0), buckets) == 70
    assert snapshots_needed_from(Position(5, 1 << 40), buckets) == 71
    assert snapshots_needed_from(Position(50, 1 << 40), buckets) == 81
    assert snapshots_needed_from(Position(60, 1 << 40), buckets) is None
    assert snapshots_known_to(buckets) == 82
    assert snapshots_known_to([]) == 0


def test_a_merge_still_reads_what_has_been_released_since_it_began() -> None:
    buckets = [bucket(1, (5, 70), (50, 71)), bucket(2, (1, 80), (60, 81))]
    assert snapshots_needed_from(Position(60, 1 << 40), buckets, being_read=(2,)) == 80
    assert snapshots_needed_from(Position(60, 1 << 40), buckets, being_read=(1, 2)) == 70


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_is_trimmed_is_ever_needed_again(seed: int) -> None:
    """Seals, merges and releases happen at random: the lowest offset needed never goes back."""
    rng = random.Random(seed)
    buckets: dict[int, Bucket] = {}
    due_ms = end = trimmed_to = next_id = known_to = 0
    for _ in range(200):
        what = rng.choice(["seal", "merge", "release", "trim"])
        if what == "seal":
            due = sorted(rng.sample(range(due_ms + 1, due_ms + 100), rng.randint(1, 5)))
            buckets[next_id] = bucket(next_id, *((each, end + number) for number, each in enumerate(due)))
            end += len(due) + 1
            next_id += 1
        elif what == "merge" and len(buckets) > 1:
            first, second = sorted(buckets)[:2]
            refs = [*buckets.pop(first).manifest.segments, *buckets.pop(second).manifest.segments]
            due = sorted({ref.last.due_ms for ref in refs if ref.last.due_ms > due_ms})
            if due:
                buckets[next_id] = bucket(next_id, *((each, end + number) for number, each in enumerate(due)))
                end += len(due) + 1
                next_id += 1
        elif what == "release":
            due_ms += rng.randint(1, 40)
        watermark = Position(due_ms, 1 << 40)
        known_to = max(known_to, snapshots_known_to(buckets.values()))
        needed_from = snapshots_needed_from(watermark, buckets.values())
        needed_from = known_to if needed_from is None else needed_from
        assert needed_from >= trimmed_to, f"seed {seed}: trimmed to {trimmed_to}, and {needed_from} is needed"
        if what == "trim":
            trimmed_to = needed_from


def test_a_bucket_that_is_catching_up_is_needed_by_its_own_watermark() -> None:
    adopted = bucket(3, (5, 7), (9, 8), needs_from=350)
    adopted.behind = BEFORE_ALL
    assert delay_topic_needed_from(progress(9), [adopted]) == 350
    assert snapshots_needed_from(progress(9).watermark, [adopted]) == 7
    adopted.behind = Position(5, 300)
    assert delay_topic_needed_from(progress(9), [adopted]) == 350
    assert snapshots_needed_from(progress(9).watermark, [adopted]) == 8
    adopted.behind = None
    assert delay_topic_needed_from(progress(9), [adopted]) == 1_000
    assert snapshots_needed_from(progress(9).watermark, [adopted]) is None


def with_pages(given: Bucket, *record_offsets: int) -> Bucket:
    pages = tuple(IdPageRef(b"a" * HASH_BYTES, 1, 9, offset) for offset in record_offsets)
    return Bucket(replace(given.manifest, id_pages=pages), given.loaded_to)


def test_pages_of_ids_are_needed_for_as_long_as_their_bucket_has_a_live_segment() -> None:
    """Pages of an adopted bucket may lie in front of all its segments."""
    named = with_pages(bucket(3, (5, 7), (9, 8)), 4, 12)
    assert snapshots_needed_from(Position(5, 1 << 40), [named]) == 4
    assert snapshots_needed_from(Position(9, 1 << 40), [named]) is None
    assert snapshots_needed_from(Position(9, 1 << 40), [named], being_read=[3]) == 4
    assert snapshots_known_to([named]) == 13
    assert kept_for_backfills([named.manifest], []).snapshots_from == 4


def test_what_backfills_need() -> None:
    assert kept_for_backfills([], []) == Kept(None, None)
    assert kept_for_backfills([], [17, 9]) == Kept(None, 9)
    staged = [bucket(3, (5, 7), (9, 4)).manifest, bucket(2, (5, 30)).manifest, Manifest(0, 150, 160, None, ())]
    assert kept_for_backfills(staged, []) == Kept(150, 4)
    assert kept_for_backfills(staged, [3]) == Kept(150, 3)
