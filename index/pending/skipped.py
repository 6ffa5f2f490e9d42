"""Ranges of a delay partition that were rejected as one, because they could not be read.

Another client may well read them, or this one with other settings; by then the rejection has left. So the progress
holds such a range until S has passed it, and a replay accepts no record of it.
"""

from bisect import bisect_right
from collections.abc import Iterable

from index.pending.progress import Skipped


class SkippedRanges:
    """The skipped ranges in offset order; ranges that touch become one."""

    def __init__(self, ranges: Iterable[Skipped]) -> None:
        self._ranges = list(ranges)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, from_offset: int, to_offset: int) -> None:
        """Add [from_offset, to_offset), which lies behind all others."""
        if self.covers(from_offset - 1):
            from_offset = self._ranges.pop().from_offset
        self._ranges.append(Skipped(from_offset, to_offset))

    def covers(self, offset: int) -> bool:
        """Return whether an offset lies in one of the ranges."""
        at = bisect_right(self._ranges, offset, key=_from_offset) - 1
        return at >= 0 and offset < self._ranges[at].to_offset

    def between(self, sealed_to: int, cursor: int) -> tuple[Skipped, ...]:
        """Return the ranges that the progress must hold: indexed before C, and read again from S on."""
        return tuple(each for each in self._ranges if each.from_offset < cursor and each.to_offset > sealed_to)

    def forget(self, sealed_to: int) -> None:
        """Drop ranges below S: they are never read again."""
        if self._ranges:
            self._ranges = [each for each in self._ranges if each.to_offset > sealed_to]


def _from_offset(skipped: Skipped) -> int:
    return skipped.from_offset
