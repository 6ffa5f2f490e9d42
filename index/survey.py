"""How what is pending is spread over time and targets, and how large its segments are: counted in steps.

A count of everything at once would stall the release: a partition may hold a list for each of 200,000 due times and
thousands of segments. So it is a generator, and each step looks at a few thousand of them; where there are fewer, the
whole is one step. Entries in memory are counted by chunk (256 ms), those in segments are taken as evenly spread from
the first to the last; what is loaded or sealed between two steps may be counted in both places. Targets of entries in
memory are looked up one by one, those of segments are in the manifests.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple, TypeVar

from index.bucket import SegmentRef, TargetCounts
from index.pending import CHUNK_BITS, Entry, PendingIndex
from index.pending_set import PendingSet
from index.progress import Position
from index.target_counts import Route, by_target, counts_of, largest

P = TypeVar("P")

BOUNDS_MS = (0, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
"""Upper ends of the ranges, from now on; the first range is what is overdue, and one more lies beyond the last."""

CHUNKS_AT_ONCE = 1_000
SEGMENTS_AT_ONCE = 200
ENTRIES_AT_ONCE = 5_000


class Survey(NamedTuple):
    """``by_due`` counts the entries in each range of due time, ``snapshot_bytes`` are those of live segments."""

    by_due: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    snapshot_bytes: int = 0
    by_target: TargetCounts = ()


def survey(
    parts: PendingSet[P],
    watermark: Position,
    now_ms: int,
    routes_of: Callable[[Sequence[Entry[P]]], Sequence[Route]] | None = None,
    held: Sequence[Sequence[Entry[P]]] = (),
) -> Generator[None, None, Survey]:
    """Count in steps of about a millisecond; the result is the generator's return value.

    Without ``routes_of``, the targets of entries, nothing is counted by target. ``held`` are overdue all the same.
    """
    counts = [0] * (len(BOUNDS_MS) + 1)
    counts[0] = sum(map(len, held))
    targets: Counter[str] = Counter()
    indexes = parts.in_memory_indexes()
    size_bytes = yield from _count_segments(counts, targets, parts, watermark, now_ms)
    for index in indexes:
        yield from _count_chunks(counts, index, now_ms)
    if routes_of is None:
        return Survey(tuple(counts), size_bytes)
    routes: Counter[Route] = Counter()
    for run in chain(chain.from_iterable(map(_runs, indexes)), chain.from_iterable(map(_slices, held))):
        routes.update(routes_of(run))
        if len(run) >= ENTRIES_AT_ONCE:
            yield
    return Survey(tuple(counts), size_bytes, largest(targets + by_target(routes)))


def _count_segments(
    counts: list[int], targets: Counter[str], parts: PendingSet[P], watermark: Position, now_ms: int
) -> Generator[None, None, int]:
    size_bytes = 0
    stored: list[SegmentRef] = []
    for bucket in parts.buckets.values():
        segments = bucket.manifest.segments
        stored += segments[len(segments) if bucket.next_segment is None else bucket.next_segment :]
        size_bytes += sum(segment.size_bytes for segment in segments[bucket.passed(watermark) :])
    remaining = iter(stored)
    while some := list(islice(remaining, SEGMENTS_AT_ONCE)):
        for segment in some:
            _spread(counts, segment, now_ms)
            for target, count in counts_of(segment):
                targets[target] += count
        if len(some) == SEGMENTS_AT_ONCE:
            yield
    return size_bytes


def _slices(lane: Sequence[Entry[P]]) -> Iterator[Sequence[Entry[P]]]:
    return (lane[start : start + ENTRIES_AT_ONCE] for start in range(0, len(lane), ENTRIES_AT_ONCE))


def _runs(index: PendingIndex[P]) -> Iterator[list[Entry[P]]]:
    """What lies in an index, some at a time; what is added or leaves meanwhile may be missing, or there twice."""
    run: list[Entry[P]] = []
    chunk = 0
    while sizes := index.sizes(chunk, CHUNKS_AT_ONCE):
        for chunk, _ in sizes:
            start = 0
            while some := index.some(chunk, start, ENTRIES_AT_ONCE - len(run)):
                run += some
                start += len(some)
                if len(run) >= ENTRIES_AT_ONCE:
                    yield run
                    run = []
        chunk += 1
    yield run


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
