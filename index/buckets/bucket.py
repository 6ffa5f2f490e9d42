"""Immutable buckets: the pending entries of one ledger range, sorted by due time and cut into segments (PIP-195).

A bucket is made once and never changes; only how much of it has been loaded does. Its *manifest* is small and stays in
memory, its segments are fetched shortly before they are due.

::

    ledger range [from, to)     segments, by (due, offset)
    ┌───────────────────────┐   ┌─────────┐┌─────────┐┌─────────┐┌─────────┐
    │ offsets 1000 ... 5999 │ = │ released││ loaded  ││ loading ││ stored  │
    └───────────────────────┘   └─────────┘└────▲────┘└─────────┘└─────────┘
                                          loaded_to: entries up to here are in memory or have left
"""

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import NamedTuple

from index.named.id_pages import IdPageRef
from index.pending.progress import BEFORE_ALL, Position
from index.protocol.schedule import AT_ONCE


class Placement(IntEnum):
    """The place of the payload of a segment's records."""

    INLINE = 1
    POINTER = 2


TargetCounts = tuple[tuple[str, int], ...]
"""Entries by target, the largest first; see :mod:`index.buckets.target_counts`."""


class DueMarks(NamedTuple):
    """Due times of the entries numbered ``every``, twice ``every``, and so on; see :mod:`index.buckets.due_marks`.

    ``every`` is 0 where no due times were noted.
    """

    every: int = 0
    at_ms: tuple[int, ...] = ()


NO_MARKS = DueMarks()


class SegmentRef(NamedTuple):
    """The reference to one segment in a manifest: its first and last entry, and the place of its record.

    ``record_offset`` is the offset of the segment's record in the snapshots topic; compaction keeps offsets, so reading
    a segment is one seek. ``targets`` is empty where the entries were not counted by target.
    """

    first: Position
    last: Position
    entries: int
    size_bytes: int
    record_offset: int
    placement: Placement
    targets: TargetCounts = ()
    dues: DueMarks = NO_MARKS


@dataclass(frozen=True, slots=True)
class Manifest:
    """A bucket as it is stored: the offsets that it covers, [from_offset, to_offset), and its segments in due order.

    ``needs_from`` is the lowest offset of the delay topic that its segments point into, None when they hold all
    payloads. ``built_from`` is set where the bucket was adopted (:mod:`index.partition.adopting`): its segments were
    made for offsets from there on, and their entries below ``from_offset`` are not part of this bucket. ``id_pages``
    refer to the ids of its records (:mod:`index.named.id_pages`): empty when no record has one, None where no pages
    were written, so that ids are read from the segments.
    """

    bucket_id: int
    from_offset: int
    to_offset: int
    needs_from: int | None
    segments: tuple[SegmentRef, ...]
    built_from: int | None = None
    id_pages: tuple[IdPageRef, ...] | None = None

    @property
    def offsets(self) -> range:
        """The offsets that the bucket covers."""
        return range(self.from_offset, self.to_offset)

    @property
    def record_offsets(self) -> list[int]:
        """The offsets of its segments and pages in the snapshots topic."""
        pages = self.id_pages or ()
        return [segment.record_offset for segment in self.segments] + [page.record_offset for page in pages]

    @property
    def segments_from(self) -> int:
        """The lowest offset that its segments may hold."""
        return self.from_offset if self.built_from is None else self.built_from

    @property
    def entries(self) -> int:
        """Entries in all segments."""
        return sum(segment.entries for segment in self.segments)

    @property
    def last(self) -> Position:
        """The entry that is due last."""
        return self.segments[-1].last


class Bucket:
    """A bucket and its progress of loading; the entries themselves lie in the index."""

    __slots__ = ("_last", "_last_pointer", "_next", "_passed", "behind", "loaded_to", "manifest", "stored")

    def __init__(self, manifest: Manifest, loaded_to: Position) -> None:
        self.manifest = manifest
        self.loaded_to = loaded_to
        # Watermark of its own, committed, while an adopted bucket is catching up; it replaces the watermark of the
        # partition.
        self.behind: Position | None = None
        # The entry that leaves last. The last entries of an adopted bucket may be masked, so there it is the last one
        # found.
        self._last = manifest.last if manifest.built_from is None else loaded_to
        self._last_pointer = _last_pointer(manifest)
        # Entries of segments that are not in memory; a segment counts as a whole, even where a part of it has left.
        self.stored = manifest.entries
        self._next = 0
        self._passed = 0
        self._skip_loaded()

    @property
    def next_segment(self) -> int | None:
        """Number of the first segment that is not wholly in memory, None when all are."""
        return self._next if self._next < len(self.manifest.segments) else None

    @property
    def barrier(self) -> Position | None:
        """The first position that may hold an entry which is not in memory; the watermark must not reach it."""
        if self.next_segment is None:
            return None
        first = self.manifest.segments[self._next].first
        return max(first, Position(self.loaded_to.due_ms, self.loaded_to.offset + 1))

    def loaded(self, number: int) -> None:
        """Note that segment ``number``, which must be the next one, is in memory now."""
        if number != self.next_segment:
            raise ValueError(f"segment {number} of bucket {self.manifest.bucket_id} loaded before {self.next_segment}")
        self.loaded_to = self.manifest.segments[number].last
        self.stored -= self.manifest.segments[number].entries
        self._next += 1

    def holds(self, offset: int) -> bool:
        """Return whether the bucket covers an offset."""
        return self.manifest.from_offset <= offset < self.manifest.to_offset

    def found(self, last: Position) -> None:
        """Note the last entry of a segment that belongs to the bucket and is not masked."""
        self._last = max(self._last, last)

    def is_done(self, watermark: Position) -> bool:
        """Return whether every entry of the bucket has left."""
        is_known = self.manifest.built_from is None or self.next_segment is None
        return self.behind is None and is_known and self._last <= watermark

    def is_mergeable(self, watermark: Position) -> bool:
        """Return whether the bucket may be merged: it is not catching up, and holds no record that must be rejected."""
        settled = self.manifest.built_from is None or max(watermark, self.manifest.segments[0].first).due_ms > AT_ONCE
        return self.behind is None and settled

    def holds_pointers(self, watermark: Position) -> bool:
        """Return whether a segment of pointers has not left entirely, as a new owner would see it; O(1)."""
        return self._last_pointer > (watermark if self.behind is None else self.behind)

    def passed(self, watermark: Position) -> int:
        """Return how many segments, from the first on, have left entirely, as a new owner would see it; amortised O(1).

        Masked entries count like any others, although this owner knows them: a new owner has to look at them.
        """
        segments = self.manifest.segments
        watermark = watermark if self.behind is None else self.behind
        while self._passed < len(segments) and segments[self._passed].last <= watermark:
            self._passed += 1
        return self._passed

    def check(self) -> None:
        """Assert every invariant."""
        segments = self.manifest.segments
        assert all(segment.first <= segment.last and segment.entries > 0 for segment in segments)
        assert all(one.last < two.first for one, two in pairwise(segments))
        assert all(segment.last <= self.loaded_to for segment in segments[: self._next])
        assert self.stored == sum(segment.entries for segment in segments[self._next :])
        assert self._next == len(segments) or segments[self._next].last > self.loaded_to
        assert self._last_pointer == _last_pointer(self.manifest)

    def _skip_loaded(self) -> None:
        segments = self.manifest.segments
        while self._next < len(segments) and segments[self._next].last <= self.loaded_to:
            self.stored -= segments[self._next].entries
            self._next += 1


def _last_pointer(manifest: Manifest) -> Position:
    pointers = (each.last for each in reversed(manifest.segments) if each.placement is Placement.POINTER)
    return next(pointers, BEFORE_ALL)
