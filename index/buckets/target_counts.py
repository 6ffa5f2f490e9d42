"""Counts of entries by target: of a segment when it is made, of entries in memory when they are surveyed.

Producers choose targets within the allow-list, which may be a pattern, so there may be as many targets as records. Only
the largest are kept, and the others are counted together under :data:`OTHERS`, which is no topic name. A record may
have several targets.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from index.buckets.bucket import Manifest, SegmentRef, TargetCounts

Route = str | tuple[str, ...]
"""The targets of one record; a single target also as itself, because that is counted faster."""

MOST_TARGETS = 20
OTHERS = ""


def count_routes(routes: Sequence[Route]) -> TargetCounts:
    """Count entries by target, the largest first."""
    # As a rule there is one route, and then this costs a few nanoseconds each.
    kinds = set(routes)
    counts = dict.fromkeys(kinds, len(routes)) if len(kinds) == 1 else Counter(routes)
    return largest(by_target(counts))


def by_target(counts: Mapping[Route, int]) -> Counter[str]:
    """Sum the entries by target from entries by route; an entry without targets counts under OTHERS."""
    summed: Counter[str] = Counter()
    for route, count in counts.items():
        for target in (route,) if isinstance(route, str) else route or (OTHERS,):
            summed[target] += count
    return summed


def largest(counts: Mapping[str, int]) -> TargetCounts:
    """Return the largest targets, the largest first, and the sum of the others at the end."""
    ordered = sorted(counts.items(), key=lambda each: (each[0] == OTHERS, -each[1], each[0]))
    named = [each for each in ordered if each[0] != OTHERS]
    others = counts.get(OTHERS, 0) + sum(count for _, count in named[MOST_TARGETS:])
    return (*named[:MOST_TARGETS], (OTHERS, others)) if others else tuple(named[:MOST_TARGETS])


def counts_of(segment: SegmentRef) -> TargetCounts:
    """Return the known counts of a segment; without any, all its entries count under OTHERS."""
    return segment.targets or ((OTHERS, segment.entries),)


def in_proportion(ref: SegmentRef, sources: Iterable[Manifest]) -> TargetCounts:
    """Estimate the counts of a segment that was merged from these buckets, in the proportions of its sources.

    They are exact where the segments that it overlaps have one target. A merge reads no schedules, and of pointers not
    even headers: counting would mean to read and decide every record again.
    """
    summed: Counter[str] = Counter()
    entries = 0
    for manifest in sources:
        segments = manifest.segments
        start = bisect_left(segments, ref.first, key=lambda segment: segment.last)
        for segment in segments[start : bisect_right(segments, ref.last, key=lambda segment: segment.first)]:
            summed.update(dict(counts_of(segment)))
            entries += segment.entries
    if not entries:
        return ()
    scaled = {target: count * ref.entries // entries for target, count in summed.items()}
    most = max(summed, key=summed.__getitem__)
    scaled[most] += sum(summed.values()) * ref.entries // entries - sum(scaled.values())
    return largest({target: count for target, count in scaled.items() if count})
