"""Runs: entries in release order, held together, so that they can be kept as columns instead of a tuple each.

An entry is (due, offset, payload). Entries that come in or leave now are lists of such tuples: each is touched once
more and gone. An entry that waits for long is not touched until it is sealed or due. As a tuple it costs an object for
each number and each payload, scattered over memory that Python does not give back. So such entries are kept in *runs*,
which only have to look like entries::

    due       │ 5000 │ 5000 │ 7001 │ ...         a run of columns: a caller that knows the type of a payload keeps
    offset    │   12 │   17 │   11 │ ...         three numbers and some bytes for each
    payload   │ ..   │ ...  │ .    │ ...

:class:`ListRun` is the definition: any other run has to behave like it. It is used where there is no better run.

Measured with 100,000 records of 200 bytes, scattered over an hour, in us of CPU a record (``python -m
tests.bench.waiting``, 2026-11-24, 2 cores that did other things too; columns put in order by the router's kernel):

===========================================  ======  =======
step                                         tuples  columns
===========================================  ======  =======
index them, as they are handed over            0.30     0.54
take them in release order, cut, and join      1.44     0.86
let go of them                                 0.30     0.00
MiB for four buckets, one after the other        75       48
MiB when all are sealed and gone                 73       18
===========================================  ======  =======

Rejected: columns for entries that are due soon, or loaded from a segment to be released within seconds (they become
tuples anyway when they leave, and making columns first is one pass more); one column for all waiting entries, sorted
when it is sealed (70 ms in one piece, while nothing is released); a run for each chunk of due time, like the chunks of
entries that are due soon (a run of one record, when due times are scattered over weeks).
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import Any, Generic, Protocol, TypeVar

from index.pending.pending import CHUNK_BITS, Entry

P = TypeVar("P")

Place = tuple[int, int]
"""(due_ms, offset), by which entries are ordered."""

_due_of = itemgetter(0)


class Run(Protocol[P]):
    """Some entries in release order; no two of them have the same offset."""

    def __len__(self) -> int:
        """Return the number of entries."""

    def __iter__(self) -> Iterator[Entry[P]]:
        """Iterate over the entries as tuples."""

    def place(self, number: int) -> Place:
        """Return the (due_ms, offset) of an entry."""

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets of the entries."""

    def count_before(self, place: Place) -> int:
        """Return how many entries lie before a (due_ms, offset), whether there is one at it or not."""

    def slice(self, start: int, stop: int) -> "Run[P]":
        """Return some of the entries, as a run that shares nothing with this one."""

    def take(self, count: int) -> list[Entry[P]]:
        """Remove and return the first entries."""

    def discard(self, places: Collection[Place]) -> list[Entry[P]]:
        """Remove and return the entries at these (due_ms, offset) that are there; O(entries), for any number."""

    def merged_with(self, others: Sequence["Run[P]"]) -> "Run[P]":
        """Return all entries of this run and the others as one run."""

    def check(self) -> None:
        """Assert every invariant; O(n)."""


@dataclass(frozen=True, slots=True)
class Runs(Generic[P]):
    """The form in which entries that wait for long are kept.

    ``waiting`` divides entries into entries that wait for long and the others, both in their old order. ``made`` makes
    a run of entries in release order; it is called for the newest entries when there are ``few`` of them. These runs
    become one when they have ``enough`` entries together. Entries that do not wait for long are kept in chunks of
    2**``chunk_bits`` ms.
    """

    waiting: Callable[[Sequence[Entry[P]]], tuple[Sequence[Entry[P]], Sequence[Entry[P]]]]
    made: Callable[[list[Entry[P]]], Run[P]]
    few: int = 256
    enough: int = 2_500
    chunk_bits: int = CHUNK_BITS


class ListRun(Generic[P]):
    """A run that is the list of its entries.

    >>> run = ListRun([(1_000, 9, "a"), (2_000, 5, "b"), (2_000, 7, "c")])
    >>> run.count_before((2_000, 6)), run.place(2)
    (2, (2000, 7))
    >>> run.take(1), list(run.merged_with([ListRun([(1_500, 8, "d")])]))
    ([(1000, 9, 'a')], [(1500, 8, 'd'), (2000, 5, 'b'), (2000, 7, 'c')])
    """

    __slots__ = ("entries",)

    def __init__(self, entries: list[Entry[P]]) -> None:
        self.entries = entries

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry[P]]:
        return iter(self.entries)

    def place(self, number: int) -> Place:
        """Return the (due_ms, offset) of an entry."""
        due_ms, offset, _ = self.entries[number]
        return due_ms, offset

    @property
    def offsets(self) -> Sequence[int]:
        """The offsets of the entries."""
        return [offset for _, offset, _ in self.entries]

    def count_before(self, place: Place) -> int:
        """Return how many entries lie before a (due_ms, offset)."""
        # A pair is less than a triple that begins with it, so payloads are never compared.
        return bisect_left(self.entries, place)

    def slice(self, start: int, stop: int) -> "ListRun[P]":
        """Return some of the entries."""
        return ListRun(self.entries[start:stop])

    def take(self, count: int) -> list[Entry[P]]:
        """Remove and return the first entries."""
        taken = self.entries[:count]
        del self.entries[:count]
        return taken

    def discard(self, places: Collection[Place]) -> list[Entry[P]]:
        """Remove and return the entries at these (due_ms, offset) that are there."""
        found = [self.entries[at] for at in numbers_of(self, places)]
        gone = {offset for _, offset, _ in found}
        if gone:
            self.entries = [entry for entry in self.entries if entry[1] not in gone]
        return found

    def merged_with(self, others: Sequence[Run[P]]) -> "ListRun[P]":
        """Return all entries as one run."""
        return ListRun(in_order([self, *others]))

    def add(self, entries: Iterable[Entry[P]]) -> None:
        """Add entries whose offsets are behind all others."""
        self.entries += entries
        # Equally due entries keep their order, which is by offset: numbers sort faster than tuples.
        self.entries.sort(key=_due_of)

    def check(self) -> None:
        """Assert every invariant; O(n)."""
        assert all(one[:2] < two[:2] for one, two in pairwise(self.entries))


NOTHING_WAITS: Runs[Any] = Runs(lambda entries: ((), entries), ListRun)
"""The choice of callers without a better form than lists: all entries stay as they came."""


def behind(place: Place) -> Place:
    """Return the (due_ms, offset) that follows on a place."""
    due_ms, offset = place
    return due_ms, offset + 1


def in_order(runs: Iterable[Iterable[Entry[P]]]) -> list[Entry[P]]:
    """Return all entries of some runs, in release order."""
    # Timsort merges sorted runs; no two offsets are equal.
    return sorted([entry for run in runs for entry in run])


def as_one(runs: Sequence[Run[P]]) -> Run[P]:
    """Return all entries of some runs, at least one, as one run."""
    first, *others = runs
    return first.merged_with(others) if others else first


class _SourceHead(Generic[P]):
    """The state of a source in a merge: one of its runs, and the part of it that is left."""

    def __init__(self, runs: Iterable[Run[P]]) -> None:
        self._runs = iter(runs)
        self._run: Run[P] = ListRun([])
        self._start = 0

    def is_there(self) -> bool:
        """Return whether the source has entries left; take up its next run when the last one is used up."""
        while self._start == len(self._run):
            following = next(self._runs, None)
            if following is None:
                return False
            self._run, self._start = following, 0
        return True

    @property
    def last(self) -> Place:
        return self._run.place(len(self._run) - 1)

    def take_to(self, place: Place) -> Run[P]:
        """Take the entries that are left of the run, up to and including a place."""
        start, self._start = self._start, self._run.count_before(behind(place))
        return self._run.slice(start, self._start)


def merged(sources: Iterable[Iterable[Run[P]]]) -> Iterator[Run[P]]:
    """Merge sources, each of runs that follow each other, into such runs; one run of each source is held at a time.

    >>> one, other = [ListRun([(1, 1, "a"), (5, 2, "b")])], [ListRun([(2, 8, "c")]), ListRun([(9, 9, "d")])]
    >>> [list(run) for run in merged([one, other])]
    [[(1, 1, 'a'), (2, 8, 'c')], [(5, 2, 'b')], [(9, 9, 'd')]]
    """
    heads = [_SourceHead(source) for source in sources]
    while heads := [head for head in heads if head.is_there()]:
        # Behind the first of the runs that ends, its source may go on before the others do.
        known_to = min(head.last for head in heads)
        yield as_one([piece for head in heads if len(piece := head.take_to(known_to))])


def numbers_of(run: Run[P], places: Iterable[Place]) -> list[int]:
    """Return the numbers of the entries of a run at these (due_ms, offset), ascending."""
    numbers = ((run.count_before(place), place) for place in places)
    return sorted(at for at, place in numbers if at < len(run) and run.place(at) == place)
