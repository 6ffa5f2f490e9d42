"""Due marks: the due times of every few entries of a segment, kept in the manifest.

An operator asks how much is due within the hour. The first and the last entry of a segment do not tell: a segment that
is nearly empty goes on over many time steps, and may hold six entries of the next hour and one of next week. So a
manifest keeps the due time of every entry of a small segment, and of every n-th entry of a large one, whose time step
is short::

    entries    0   1   2   3   4   5   6   7   8   9      every 4th: marks at 4 and 8
    known      ▲               ▲               ▲   ▲      the first and the last are known anyway

No release depends on marks. Where a manifest has no room for the marks of all segments, the segments with most marks
lose every second mark, as often as needed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from index.buckets.bucket import NO_MARKS, DueMarks, SegmentRef

SMALL: Final = 160
"""Most entries of a segment whose entries are all marked. A segment that goes on over time steps has no more, see
``NEARLY_EMPTY`` in :mod:`index.buckets.bucket_rules`."""

A_LARGE_ONE: Final = 8
"""Most marks of a larger segment: it covers one time step, or is nearly full."""

MOST_MARKS: Final = 16_384
"""Most marks of a whole manifest, which is one record: some 50 kB."""


def marks_of(dues_ms: Sequence[int]) -> DueMarks:
    """Choose the marks of a new segment from the due times of its entries in order."""
    every = 1
    if len(dues_ms) > SMALL:
        while (len(dues_ms) - 1) // every > A_LARGE_ONE:
            every *= 2
    return DueMarks(every, tuple(dues_ms[every::every]))


def due_by(segment: SegmentRef, until_ms: int) -> int:
    """Return how many entries of a segment are due by then; entries between two known ones count as evenly spread.

    A manifest written by 0.1.0 has no marks: only the first and the last entry of its segments are known.

    >>> from index.buckets.bucket import Placement
    >>> from index.pending.progress import Position
    >>> segment = SegmentRef(Position(1_000, 0), Position(2_000, 9), 11, 99, 0, Placement.INLINE)
    >>> due_by(segment, 1_499), due_by(segment, 1_500)
    (5, 6)
    >>> known = segment._replace(dues=marks_of([1_000, 1_400, *[2_000] * 9]))
    >>> due_by(known, 1_399), due_by(known, 1_500)
    (1, 2)
    """
    every, marks_ms = segment.dues
    known_ms = (segment.first.due_ms, *marks_ms, segment.last.due_ms)
    place = bisect_right(known_ms, until_ms)
    if not place:
        return 0
    if place == len(known_ms):
        return segment.entries
    last_known = (place - 1) * every
    next_known = place * every if place <= len(marks_ms) else segment.entries - 1
    from_ms, to_ms = known_ms[place - 1], known_ms[place]
    return last_known + 1 + (next_known - last_known) * (until_ms - from_ms) // (to_ms - from_ms)


def thinned(segments: Iterable[SegmentRef], most: int = MOST_MARKS) -> tuple[SegmentRef, ...]:
    """Return the segments with at most ``most`` marks in all."""
    kept = tuple(segments)
    sizes = [len(segment.dues.at_ms) for segment in kept]
    limit = max(sizes, default=0)
    while sum(sizes) > most:
        limit //= 2
        kept = tuple(_thinned_one(segment, limit) for segment in kept)
        sizes = [len(segment.dues.at_ms) for segment in kept]
    return kept


def _thinned_one(segment: SegmentRef, limit: int) -> SegmentRef:
    every, at_ms = segment.dues
    while len(at_ms) > limit:
        every, at_ms = 2 * every, at_ms[1::2]
    return segment if every == segment.dues.every else segment._replace(dues=DueMarks(every, at_ms))


def check_marks(segment: SegmentRef) -> str:
    """Describe a fault in the marks of a segment; return "" where they are possible."""
    every, at_ms = segment.dues
    if segment.dues == NO_MARKS:
        return ""
    if every < 1 or len(at_ms) != (segment.entries - 1) // every:
        return f"{len(at_ms)} due times for every {every} of {segment.entries} entries"
    known_ms = [segment.first.due_ms, *at_ms, segment.last.due_ms]
    if known_ms != sorted(known_ms):
        return f"due times that are not in order between {segment.first.due_ms} and {segment.last.due_ms}"
    return ""
