"""The mask of a delay partition: the offsets of cancelled records, kept as long as a record could still come back.

A cancelled record stays in its place: in the delay topic from S on, which is read again after a restart, and in the
segments of buckets, which never change. Each reader of entries asks the mask. The state topic holds it in *containers*
of 2^16 offsets, so half a million cancelled offsets are a handful of records, and a transaction writes only the
containers that it changes.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from pyroaring import BitMap64

from index.pending.pending import Entry

P = TypeVar("P")

CONTAINER_BITS = 16
"""The size of a container of a roaring bitmap: at most 8 KiB, however many of its offsets were cancelled."""


class Mask:
    """The cancelled offsets of one partition, and the numbers of the containers that the next transaction has to write.

    >>> mask = Mask()
    >>> mask.add([70_000, 70_001])
    >>> [(number, list(offsets)) for number, offsets in mask.changes()]
    [(1, [70000, 70001])]
    >>> mask.committed()
    >>> mask.forget([range(70_001, 80_000)], needed_from=90_000)
    >>> 70_000 in mask, 70_001 in mask
    (False, True)
    """

    def __init__(self, stored: Iterable[int] = ()) -> None:
        """Take the offsets that the state holds."""
        self._offsets = BitMap64(stored)
        self._stored = _numbers(self._offsets)
        self._changed: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)

    def __contains__(self, offset: int) -> bool:
        return offset in self._offsets

    def count(self, from_offset: int, to_offset: int) -> int:
        """Return how many offsets of [from_offset, to_offset) were cancelled."""
        span = BitMap64()
        span.add_range(from_offset, to_offset)
        return len(self._offsets & span)

    def add(self, offsets: Iterable[int]) -> None:
        """Note offsets that the next transaction cancels."""
        new = BitMap64(offsets) - self._offsets
        self._offsets |= new
        self._changed |= _numbers(new)

    def spare(self, offset: int) -> None:
        """Undo the cancellation of an offset by the next transaction."""
        self._offsets.discard(offset)
        self._changed.add(offset >> CONTAINER_BITS)

    def forget(self, ranges: Sequence[range], needed_from: int) -> None:
        """Drop offsets that cannot come back: they lie below ``needed_from`` and in front of all ``ranges`` of buckets.

        Offsets between two buckets stay, because the buckets may be merged: then a damaged segment is rebuilt from all
        records of the delay topic between the ends of the merged bucket.
        """
        first = min([needed_from, *(each.start for each in ranges)])
        if not self._offsets or self._offsets.min() >= first:
            return
        needed = BitMap64()
        needed.add_range(first, max(first, self._offsets.max() + 1))
        gone = self._offsets - needed
        self._offsets &= needed
        self._changed |= _numbers(gone)

    def without(self, run: Sequence[Entry[P]]) -> Sequence[Entry[P]]:
        """Return the entries of a run that were not cancelled."""
        if not self._offsets:
            return run
        masked = self._offsets & BitMap64([offset for _, offset, _ in run])
        return [entry for entry in run if entry[1] not in masked] if masked else run

    def changes(self) -> Iterator[tuple[int, BitMap64]]:
        """Yield each container that the next transaction has to write, with its offsets; no offsets mean removal."""
        for number in sorted(self._changed):
            within = self._within(number)
            if within or number in self._stored:
                yield number, within

    def committed(self) -> None:
        """Note that the containers of ``changes`` were written."""
        written = {number for number in self._changed if self._within(number)}
        self._stored -= self._changed
        self._stored |= written
        self._changed = set()

    def settled(self) -> BitMap64:
        """Return a copy of the offsets that committed transactions have cancelled."""
        assert not self._changed, "a transaction that changes it is under way"
        return BitMap64(self._offsets)

    @property
    def containers(self) -> int:
        """The number of records of the state topic that hold the mask, once everything is written."""
        return len(_numbers(self._offsets))

    def _within(self, number: int) -> BitMap64:
        """Return the offsets of one container."""
        span = BitMap64()
        span.add_range(number << CONTAINER_BITS, (number + 1) << CONTAINER_BITS)
        return self._offsets & span

    def check(self) -> None:
        """Assert every invariant."""
        there = _numbers(self._offsets)
        assert there - self._changed <= self._stored
        assert self._stored <= there | self._changed


def _numbers(offsets: BitMap64) -> set[int]:
    """Return the numbers of the containers with any of these offsets, in O(n log n) for n containers."""
    numbers, parts = set[int](), [offsets]
    while parts:
        part = parts.pop()
        if not part:
            continue
        first, last = part.min() >> CONTAINER_BITS, part.max() >> CONTAINER_BITS
        if first == last:
            numbers.add(first)
            continue
        lower_half = BitMap64()
        lower_half.add_range(first << CONTAINER_BITS, (first + last + 1) // 2 << CONTAINER_BITS)
        parts += [part & lower_half, part - lower_half]
    return numbers
