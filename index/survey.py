"""How what is pending is spread over time, and how large its segments are: counted in steps.

A count of everything at once would stall the release: a partition may hold a list for each of 200,000 due times and
thousands of segments. So it is a generator, and each step looks at a few thousand of them; where there are fewer, the
whole is one step. Entries in memory are counted by chunk (256 ms), those in segments are taken as evenly spread from
the first to the last; what is loaded or sealed between two steps may be counted in both places.
"""

from bisect import bisect_left
from collections.abc import Generator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, TypeVar

from index.bucket import SegmentRef
from index.pending import CHUNK_BITS, PendingIndex
from index.pending_set import PendingSet
from index.progress import Position

P = TypeVar("P")

BOUNDS_MS = (0, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
"""Upper ends of the ranges, from now on; the first range is what is overdue, and one more lies beyond the last."""

CHUNKS_AT_ONCE = 1_000
SEGMENTS_AT_ONCE = 200


class Survey(NamedTuple):
    """``by_due`` counts the entries in each range of due time, ``snapshot_bytes`` are those of live segments."""

    by_due: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    snapshot_bytes: int = 0


def survey(parts: PendingSet[P], watermark: Position, now_ms: int) -> Generator[None, None, Survey]:
    """Count in steps of about a millisecond; the result is the generator's return value."""
    counts = [0] * (len(BOUNDS_MS) + 1)
    size_bytes = 0
    indexes = parts.in_memory_indexes()
    stored: list[SegmentRef] = []
    for bucket in parts.buckets.values():
        segments = bucket.manifest.segments
        stored += segments[len(segments) if bucket.next_segment is None else bucket.next_segment :]
        size_bytes += sum(segment.size_bytes for segment in segments[bucket.passed(watermark) :])
    remaining = iter(stored)
    while some := list(islice(remaining, SEGMENTS_AT_ONCE)):
        for segment in some:
            _spread(counts, segment, now_ms)
        if len(some) == SEGMENTS_AT_ONCE:
            yield
    for index in indexes:
        yield from _count_chunks(counts, index, now_ms)
    return Survey(tuple(counts), size_bytes)


def _count_chunks(counts: list[int], index: PendingIndex[P], now_ms: int) -> Generator[None, None, None]:
    chunk = 0
    while sizes := index.sizes(chunk, CHUNKS_AT_ONCE):
        for chunk, entries in sizes:
            # By its last millisecond, so that nothing counts as overdue that is not.
            counts[bisect_left(BOUNDS_MS, ((chunk + 1) << CHUNK_BITS) - 1 - now_ms)] += entries
        chunk += 1
        if len(sizes) == CHUNKS_AT_ONCE:
            yield


def _spread(counts: list[int], segment: SegmentRef, now_ms: int) -> None:
    first_ms, last_ms = segment.first.due_ms - now_ms, segment.last.due_ms - now_ms
    low, high = bisect_left(BOUNDS_MS, first_ms), bisect_left(BOUNDS_MS, last_ms)
    for place, count in enumerate(_split(segment.entries, first_ms, last_ms, BOUNDS_MS[low:high]), low):
        counts[place] += count


def _split(entries: int, first_ms: int, last_ms: int, bounds_ms: Sequence[int]) -> list[int]:
    span_ms = last_ms - first_ms + 1
    below = [0, *(entries * (bound_ms - first_ms + 1) // span_ms for bound_ms in bounds_ms), entries]
    return [two - one for one, two in pairwise(below)]
