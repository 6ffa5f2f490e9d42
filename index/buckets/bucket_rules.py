"""Rules for buckets: when to seal the mutable one, how to cut it into segments, and which buckets to merge.

A segment ends where its time step ends, or where it is full by entries or by bytes: it is one record of the snapshots
topic and has to stay below the default limits of brokers. A segment that is nearly empty at the end of its step goes on
into the next one: 200,000 records scattered over ten years would make as many segments, too many for a manifest. A
bucket of n entries costs memory for its manifest (n / entries of a segment) and for the segment that is loaded. Both
together are smallest where a segment has about √n entries, so fewer than √n count as nearly empty. A record that would
not fit into a segment by itself is kept out (*absent*) and read again from the delay topic when it is due.

Placement (``auto``) compares the costs of reading at release. Inline costs decoding a segment. A pointer costs reading
the records again in offset order, seeking over large gaps and scanning through small ones. With a fixed delay, due
order is offset order, and a pointer costs no more than a scan; with scattered due times each record costs a seek, or a
scan of everything between. Pointers also save writing the payload a second time.

Merging takes four adjacent buckets, because the offsets of a bucket must not enclose another bucket's. The four have
to be about equally large, as in a size-tiered LSM tree: none may hold more than half of their entries. An entry is then
written again only when its bucket doubles at least, so about log4(pending entries / entries of a seal) times, for any
horizon. PIP-195 takes the four with the fewest entries, which adds each small bucket to the same large one: 122
rewrites at 417 records/s due within a week, where this rule has 5.9 (tests/unit/index/buckets/test_merge_rule.py). A
bucket whose last entry is due soon is left alone.

When retention is lowered, ``auto`` becomes ``inline``. Buckets that point into the delay topic are then written again,
one at a time, with their records inside.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from math import ceil, isqrt, log
from operator import sub
from typing import Literal, TypeAlias, TypeVar

from index.buckets.bucket import Bucket, Placement
from index.pending.pending import Entry
from index.pending.progress import BEFORE_ALL, Position
from index.pending.run import ListRun, Run, as_one

P = TypeVar("P")

PlacementRule: TypeAlias = Literal["inline", "pointer", "auto"]

SEEK_US = 600.0
"""Cost of one seek and the read of a record, measured on localhost; real round trips cost more."""

SCAN_US = 3.0
"""Cost of scanning through one record: 2.7 to 3.6 measured (``python -m tests.bench placement``)."""

POINTER_BELOW_US = 6.0
"""Pointers are chosen where reading a record again costs less. In due order it does; at every second offset it does
not."""


NEARLY_EMPTY = 32
"""A segment with less than this part of its most entries does not end with its time step, however small the bucket."""


MANY = 2
"""Entries are gathered up to so many times the most entries of a segment before any are cut off, because each cut moves
the remainder."""


MOST_AT_ONCE = 4
"""Most buckets that are merged into one."""

LARGEST_SHARE = 0.5
"""Buckets are about equally large where none holds more than this share of their entries. The model of merging has the
fewest rewrites with it.
"""

MOST_SEGMENTS = 15_000
"""Most segments that a merge may give one bucket: its manifest is one record."""


@dataclass(frozen=True, slots=True)
class SealRules:
    """Limits of the mutable bucket and of a segment.

    ``max_age_ms`` counts from the indexing of the first entry of the mutable bucket. ``max_span`` is in offsets, and
    bounds how much is read again after a restart. Entries due within ``soon_ms`` are no reason to seal, because they
    leave from memory.
    """

    max_entries: int = 200_000
    max_span: int = 500_000
    max_age_ms: int = 60_000
    time_step_ms: int = 300_000
    segment_entries: int = 5_000
    segment_bytes: int = 700_000
    placement: PlacementRule = "auto"
    soon_ms: int = 0

    def must_seal(self, entries: int, span: int, age_ms: int) -> bool:
        """Return whether to seal a mutable bucket of this age, with so many entries that are not due soon."""
        if not entries:
            return False
        return entries >= self.max_entries or span >= self.max_span or age_ms >= self.max_age_ms


def placement_of(offsets: Sequence[int], rule: PlacementRule) -> Placement:
    """Choose the placement of entries at these offsets that are loaded together; O(n log n)."""
    if rule != "auto":
        return Placement[rule.upper()]
    ascending = sorted(offsets)
    scanned = sum(map(min, map(sub, ascending[1:], ascending), repeat(SEEK_US / SCAN_US)))
    return Placement.POINTER if SEEK_US + SCAN_US * scanned < POINTER_BELOW_US * len(offsets) else Placement.INLINE


def cut(
    chunks: Iterable[Iterable[Entry[P]]], rules: SealRules, size_of: Callable[[P], int]
) -> Iterator[list[Entry[P]]]:
    """Cut entries of a bucket of unknown size, given in release order, into segments, as ``cut_runs`` does."""
    runs: Iterator[Run[P]] = (ListRun([*chunk]) for chunk in chunks)
    for segment in cut_runs(runs, rules, lambda run: [size_of(payload) for _, _, payload in run], 0):
        yield [*segment]


def cut_runs(
    runs: Iterable[Run[P]], rules: SealRules, sizes_of: Callable[[Run[P]], Sequence[int]], entries: int
) -> Iterator[Run[P]]:
    """Cut runs that follow each other into segments; lazily, so that sealing can be spread over many rounds.

    ``sizes_of`` returns the bytes of each entry of a run, and ``entries`` is the number of entries of the bucket.
    """
    least = _least(entries, rules)
    gathered: list[Run[P]] = []
    sizes: list[int] = []
    for run in runs:
        if len(run):
            gathered.append(run)
            sizes += sizes_of(run)
        if len(sizes) >= MANY * rules.segment_entries:
            gathered = yield from _cut_firsts(gathered, sizes, rules, least, MANY * rules.segment_entries)
    yield from _cut_firsts(gathered, sizes, rules, least, 1)


def _least(entries: int, rules: SealRules) -> int:
    """Return the entries below which a segment goes on behind its time step, in a bucket of so many entries."""
    return max(isqrt(entries), rules.segment_entries // NEARLY_EMPTY)


def count_segments(entries: int, span_ms: int, rules: SealRules, entry_bytes: int) -> int:
    """Estimate the segments that ``cut`` makes of entries of one size that are due evenly over a span; O(1)."""
    room = max(min(rules.segment_entries, rules.segment_bytes // entry_bytes), 1)
    in_step = max(entries * rules.time_step_ms // max(span_ms, rules.time_step_ms), _least(entries, rules))
    return ceil(entries / in_step) * ceil(min(in_step, entries) / room)


def _cut_firsts(
    gathered: list[Run[P]], sizes: list[int], rules: SealRules, least: int, enough: int
) -> Generator[Run[P], None, list[Run[P]]]:
    """Remove and yield the first segments while there are ``enough`` entries; return the remainder."""
    start = 0
    held = as_one(gathered) if gathered else None
    while held is not None and len(sizes) >= enough:
        count = _count_first(held, start, sizes, rules, least)
        yield held.slice(start, start + count)
        start += count
        del sizes[:count]
    return [held.slice(start, len(held))] if held is not None and sizes else []


def _count_first(held: Run[P], start: int, sizes: Sequence[int], rules: SealRules, least: int) -> int:
    """Count the entries, from ``start`` on, that make the first segment; with fewer than ``least`` it goes on behind
    its time step.
    """
    most = rules.segment_entries
    step_end_ms = (held.place(start)[0] // rules.time_step_ms + 1) * rules.time_step_ms
    in_step = max(held.count_before((step_end_ms, -1)) - start, least)
    room = rules.segment_bytes
    ends = accumulate(map(min, sizes[: min(most, in_step)], repeat(room)))
    # The first entry always goes, however big.
    return max(sum(map(room.__ge__, ends)), 1)


def to_merge(
    buckets: Iterable[Bucket], max_buckets: int, watermark: Position = BEFORE_ALL, soon_to_ms: int = 0
) -> list[Bucket]:
    """Choose neighbours to merge into one, in offset order; none while there are no more than ``max_buckets``.

    Of the groups that are about equally large, the group with the fewest entries is chosen. Where there is none, it is
    the group whose largest bucket has the smallest share. Buckets whose last entry is due before ``soon_to_ms``, and
    adopted buckets that are not mergeable yet, stay as they are, and apart.
    """
    ordered = sorted(buckets, key=lambda bucket: bucket.manifest.from_offset)
    if len(ordered) <= max_buckets:
        return []
    width = min(MOST_AT_ONCE, len(ordered))
    windows = [ordered[start : start + width] for start in range(len(ordered) - width + 1)]
    possible = [
        window
        for window in windows
        if sum(len(each.manifest.segments) for each in window) <= MOST_SEGMENTS
        and all(each.is_mergeable(watermark) and each.manifest.last.due_ms >= soon_to_ms for each in window)
    ]
    return min(possible, key=_cost, default=[])


def _cost(window: Sequence[Bucket]) -> tuple[float, int]:
    """Return the share of the largest bucket where it is more than half, then the entries to write again."""
    sizes = [bucket.stored for bucket in window]
    total = sum(sizes)
    return max(max(sizes) / max(total, 1), LARGEST_SHARE), total


def rewrites(seals: float, max_buckets: int) -> float:
    """Return about how often merges write an entry again, where so many seals fall into the longest delay.

    >>> rewrites(16, max_buckets=24), rewrites(64, max_buckets=24)
    (0.0, 3.0)
    """
    return log(seals, MOST_AT_ONCE) if seals > max_buckets else 0.0


def to_write_inline(buckets: Iterable[Bucket], rules: SealRules, watermark: Position = BEFORE_ALL) -> list[Bucket]:
    """Return the bucket whose pointers have to be replaced by their records first, or nothing; O(buckets).

    It is the bucket that points to the oldest record, which retention removes first. A bucket keeps its pointers if it
    has no room for the segments that one pointer segment may become.
    """
    if rules.placement != "inline":
        return []
    pointing = [
        bucket
        for bucket in buckets
        if bucket.is_mergeable(watermark)
        and len(bucket.manifest.segments) + rules.segment_entries <= MOST_SEGMENTS
        and bucket.holds_pointers(watermark)
    ]
    return sorted(pointing, key=lambda bucket: bucket.manifest.needs_from or 0)[:1]
