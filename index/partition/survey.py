"""The spread of pending entries over time and targets, and the size of their segments: counted in steps.

A count of everything at once would stall the release: a partition may hold a list for each of 200,000 due times and
thousands of segments. So the count is a generator, and each step looks at a few thousand of them; where there are
fewer, the whole is one step. Entries in memory are counted by chunk (256 ms), entries in segments by the due times in
their manifest (:mod:`index.buckets.due_marks`); an entry that is loaded or sealed between two steps may be counted in
both places. Targets of entries in memory are looked up one by one, targets of segments are in the manifests.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple, TypeVar

from index.buckets.bucket import SegmentRef, TargetCounts
from index.buckets.due_marks import due_by
from index.buckets.target_counts import Route, by_target, counts_of, largest
from index.partition.pending_set import PendingSet
from index.pending.pending import Entry, PendingIndex
from index.pending.progress import Position
from index.pending.run import Run

P = TypeVar("P")

BOUNDS_MS = (0, 1_000, 10_000, 60_000, 600_000, 3_600_000, 21_600_000, 86_400_000, 604_800_000)
"""Upper ends of the ranges, from now on; the first range is overdue, and one more range lies beyond the last end."""

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SPREAD_BOUNDS_MS = tuple(
    sorted({*BOUNDS_MS, *range(MINUTE_MS, HOUR_MS, MINUTE_MS), *range(HOUR_MS, BOUNDS_MS[-1], HOUR_MS)})
)
"""The same ends, and between them the next hour by minute and the next week by hour."""

_RANGE_OF = tuple(bisect_left(BOUNDS_MS, bound_ms) for bound_ms in (*SPREAD_BOUNDS_MS, BOUNDS_MS[-1] + 1))

CHUNKS_AT_ONCE = 1_000
SEGMENTS_AT_ONCE = 200
ENTRIES_AT_ONCE = 5_000


class Survey(NamedTuple):
    """Counts of pending entries: ``by_due`` in each range of due time; ``snapshot_bytes`` is the size of live segments.

    ``spread`` counts like ``by_due``, by the ranges of SPREAD_BOUNDS_MS.
    """

    by_due: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    snapshot_bytes: int = 0
    by_target: TargetCounts = ()
    spread: tuple[int, ...] = (0,) * (len(SPREAD_BOUNDS_MS) + 1)


def each_step(spread: Sequence[int], step_ms: int, steps: int) -> tuple[int, ...]:
    """Return the entries due in each minute, or hour, from now on, without the overdue ones.

    ``spread`` has their counts in the ranges of SPREAD_BOUNDS_MS.

    >>> two_in_the_first_minute_and_one_in_the_third = [5, 0, 1, 1, 0, 1]
    >>> each_step(two_in_the_first_minute_and_one_in_the_third, MINUTE_MS, 4)
    (2, 0, 1, 0)
    """
    counts = [0] * steps
    for bound_ms, entries in zip(SPREAD_BOUNDS_MS[1:], spread[1:], strict=False):
        place = (bound_ms - 1) // step_ms
        if place < steps:
            counts[place] += entries
    return tuple(counts)


class _Counts:
    """Entries counted so far in each range."""

    def __init__(self, now_ms: int, overdue: int) -> None:
        self._bounds_ms = [now_ms + bound_ms for bound_ms in SPREAD_BOUNDS_MS]
        self._spread = [overdue, *(0 for _ in SPREAD_BOUNDS_MS)]

    def add(self, due_ms: int, entries: int) -> None:
        """Count some entries that are due at one time."""
        self._spread[bisect_left(self._bounds_ms, due_ms)] += entries

    def add_segment(self, segment: SegmentRef, from_ms: int) -> None:
        """Count the entries of a segment that are due from ``from_ms`` on."""
        low, high = (bisect_left(self._bounds_ms, due_ms) for due_ms in (segment.first.due_ms, segment.last.due_ms))
        before = due_by(segment, from_ms - 1)
        below = [before, *(max(due_by(segment, self._bounds_ms[place]), before) for place in range(low, high))]
        for place, (one, two) in enumerate(pairwise([*below, segment.entries]), low):
            self._spread[place] += two - one

    def add_run(self, run: Run[P]) -> None:
        """Count the entries of a run."""
        upto = [run.count_before((bound_ms + 1, -1)) for bound_ms in self._bounds_ms]
        for place, (one, two) in enumerate(pairwise([0, *upto, len(run)])):
            self._spread[place] += two - one

    def survey(self, snapshot_bytes: int, by_target: TargetCounts) -> Survey:
        """Return the survey of all entries counted."""
        by_due = [0] * (len(BOUNDS_MS) + 1)
        for place, entries in zip(_RANGE_OF, self._spread, strict=True):
            by_due[place] += entries
        return Survey(tuple(by_due), snapshot_bytes, by_target, tuple(self._spread))


def survey(
    parts: PendingSet[P],
    watermark: Position,
    now_ms: int,
    routes_of: Callable[[Run[P] | Sequence[Entry[P]]], Sequence[Route]] | None = None,
    held: Sequence[Sequence[Entry[P]]] = (),
) -> Generator[None, None, Survey]:
    """Count in steps of about a millisecond; the result is the generator's return value.

    ``routes_of`` returns the targets of entries; without it nothing is counted by target. ``held`` entries count as
    overdue.
    """
    counts = _Counts(now_ms, overdue=sum(map(len, held)))
    targets: Counter[str] = Counter()
    indexes, waiting = parts.in_memory_indexes(), parts.waiting_runs()
    size_bytes = yield from _count_segments(counts, targets, parts, watermark)
    for index in indexes:
        yield from _count_chunks(counts, index)
    for run in waiting:
        counts.add_run(run)
        yield
    if routes_of is None:
        return counts.survey(size_bytes, ())
    routes: Counter[Route] = Counter()
    parts_of: Iterator[Run[P] | Sequence[Entry[P]]] = chain(
        *map(_runs, indexes), *map(_slices, held), *map(_pieces, waiting)
    )
    for some in parts_of:
        routes.update(routes_of(some))
        if len(some) >= ENTRIES_AT_ONCE:
            yield
    return counts.survey(size_bytes, largest(targets + by_target(routes)))


def _count_segments(
    counts: _Counts, targets: Counter[str], parts: PendingSet[P], watermark: Position
) -> Generator[None, None, int]:
    size_bytes = 0
    stored: list[tuple[SegmentRef, int]] = []
    for bucket in parts.buckets.values():
        segments = bucket.manifest.segments
        unloaded = segments[len(segments) if bucket.next_segment is None else bucket.next_segment :]
        # A part of the first segment may have left, or be in memory.
        stored += [(segment, bucket.loaded_to.due_ms) for segment in unloaded]
        size_bytes += sum(segment.size_bytes for segment in segments[bucket.passed(watermark) :])
    remaining = iter(stored)
    while some := list(islice(remaining, SEGMENTS_AT_ONCE)):
        for segment, loaded_to_ms in some:
            counts.add_segment(segment, loaded_to_ms)
            for target, count in counts_of(segment):
                targets[target] += count
        if len(some) == SEGMENTS_AT_ONCE:
            yield
    return size_bytes


def _slices(lane: Sequence[Entry[P]]) -> Iterator[Sequence[Entry[P]]]:
    return (lane[start : start + ENTRIES_AT_ONCE] for start in range(0, len(lane), ENTRIES_AT_ONCE))


def _pieces(run: Run[P]) -> Iterator[Run[P]]:
    """Yield the entries of a run, some at a time; entries that leave meanwhile may be missing, or come twice."""
    start = 0
    while start < len(run):
        yield run.slice(start, start + ENTRIES_AT_ONCE)
        start += ENTRIES_AT_ONCE


def _runs(index: PendingIndex[P]) -> Iterator[list[Entry[P]]]:
    """Yield the entries of an index, some at a time; entries added or taken meanwhile may be missing, or come twice."""
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


def _count_chunks(counts: _Counts, index: PendingIndex[P]) -> Generator[None, None, None]:
    chunk = 0
    while sizes := index.sizes(chunk, CHUNKS_AT_ONCE):
        for chunk, entries in sizes:
            # By the last millisecond of the chunk, so that no entry counts as overdue too early.
            counts.add(((chunk + 1) << index.chunk_bits) - 1, entries)
        chunk += 1
        if len(sizes) == CHUNKS_AT_ONCE:
            yield
