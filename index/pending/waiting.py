"""Entries that wait for long, in runs: indexed by the million, and looked at again when they are sealed or due.

New entries go into the *newest* run, a list of a few entries. The list becomes a *young* run of columns
(:class:`index.pending.run.Runs`), and young runs become one when they have enough entries together. So a process with
hundreds of partitions has few entries as tuples, whose memory Python does not give back. There are some dozens of runs,
each in release order, so the next entries of all lie at their beginnings, and a piece is a slice of each. No piece is
larger than asked for: neither releasing nor sealing may delay the entries that are due behind it.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from index.pending.pending import NO_LIMIT, Entry
from index.pending.run import ListRun, Place, Run, Runs, as_one, behind, in_order

P = TypeVar("P")

_BEFORE_ALL: Place = (-1, -1)


class _Window(NamedTuple, Generic[P]):
    """The entries of a run from ``start`` up to ``stop``."""

    run: Run[P]
    start: int
    stop: int

    @property
    def first(self) -> Place:
        """The place of the first entry."""
        return self.run.place(self.start)

    def __bool__(self) -> bool:
        return self.start < self.stop


class Waiting(Generic[P]):
    """Entries that are added in the order of their offsets, and taken in release order.

    >>> waiting = Waiting(Runs(lambda run: (run, []), ListRun))
    >>> waiting.add([(2_000, 1, "b"), (1_000, 2, "a"), (2_000, 3, "c")])
    >>> waiting.take_due(now_ms=2_000, max_entries=2)
    [(1000, 2, 'a'), (2000, 1, 'b')]
    >>> waiting.first()
    (2000, 3)
    """

    def __init__(self, runs: Runs[P]) -> None:
        self._made, self._few, self._enough = runs.made, runs.few, runs.enough
        self._older: list[Run[P]] = []
        self._young: list[Run[P]] = []
        self._newest: ListRun[P] = ListRun([])
        self._count = 0
        self._first: Place | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, entries: Sequence[Entry[P]]) -> None:
        """Add entries, in the order of their offsets; all of them are behind the entries that are here."""
        self._newest.add(entries)
        self._count += len(entries)
        if len(self._newest) >= self._few:
            self._close_newest()
        self._look()

    def add_run(self, run: Run[P]) -> None:
        """Add a run; entries that are added after it have higher offsets."""
        self._close_newest()
        if len(run):
            self._older.append(run)
        self._count += len(run)
        self._look()

    def put_back(self, entries: Sequence[Entry[P]]) -> None:
        """Put back entries that were taken, in release order; ``pieces`` that still come to them yield them."""
        if entries:
            self._older.append(ListRun([*entries]))
            self._count += len(entries)
            self._look()

    def first(self) -> Place | None:
        """Return the (due_ms, offset) of the first entry, or None when nothing waits."""
        return self._first

    def next_due_ms(self) -> int | None:
        """Return the due time of the first entry, or None when nothing waits."""
        return None if self._first is None else self._first[0]

    def furthest_due_ms(self) -> int | None:
        """Return the due time of the last entry, or None when nothing waits."""
        return max((run.place(len(run) - 1)[0] for run in self.runs()), default=None)

    def runs(self) -> list[Run[P]]:
        """Return all runs that are not empty; read-only."""
        runs = [*self._older, *self._young]
        return [*runs, self._newest] if len(self._newest) else runs

    def count_until(self, due_ms: int) -> int:
        """Count the entries due by then."""
        if self._first is None or self._first[0] > due_ms:
            return 0
        return sum([run.count_before((due_ms + 1, 0)) for run in self.runs()])

    def take_due(self, now_ms: int, max_entries: int, before: Place = NO_LIMIT) -> list[Entry[P]]:
        """Remove and return the first entries due at or before ``now_ms``, in release order.

        ``before`` is a (due, offset) that is not passed.
        """
        end = min(before, (now_ms + 1, 0))
        taken: list[Entry[P]] = []
        while self._first is not None and self._first < end and len(taken) < max_entries:
            due = [window for run in self.runs() if (window := _Window(run, 0, run.count_before(end)))]
            upto = min(end, _end_of_piece(due, max_entries - len(taken)))
            taken += in_order([run.take(run.count_before(upto)) for run, _, _ in due])
            self._look()
        self._count -= len(taken)
        return taken

    def discard(self, places: Collection[Place]) -> list[Entry[P]]:
        """Remove and return the entries at these (due_ms, offset) that are here."""
        found: list[Entry[P]] = []
        left = {*places}
        for run in self.runs():
            if not left:
                break
            gone = run.discard(left)
            left.difference_update([(due_ms, offset) for due_ms, offset, _ in gone])
            found += gone
        self._count -= len(found)
        self._look()
        return found

    def pieces(self, max_entries: int) -> Iterator[Run[P]]:
        """Yield all entries in release order, in runs of at most ``max_entries``.

        It is lazy: an entry that is removed meanwhile may be missing or not.
        """
        self._close_newest()
        after = _BEFORE_ALL
        while rest := [window for run in self.runs() if (window := _Window(run, run.count_before(after), len(run)))]:
            after = _end_of_piece(rest, max_entries)
            yield as_one(
                [run.slice(start, stop) for run, start, _ in rest if (stop := run.count_before(after)) > start]
            )

    def take_before(self, end: Place) -> Run[P] | None:
        """Remove the entries before a (due_ms, offset), and return them as one run; None when there are none."""
        taken: list[Run[P]] = []
        for run in self.runs():
            if count := run.count_before(end):
                taken.append(run.slice(0, count))
                run.take(count)
        if not taken:
            return None
        self._count -= sum(map(len, taken))
        self._look()
        return as_one(taken)

    def take_all(self) -> list[Run[P]]:
        """Remove and return all entries, in runs of any order."""
        runs = self.runs()
        self._older, self._young, self._newest, self._count, self._first = [], [], ListRun([]), 0, None
        return runs

    def check(self) -> None:
        """Assert every invariant; O(n log n)."""
        assert self._count == sum(map(len, self.runs()))
        for run in self.runs():
            run.check()
            assert len(run)
            assert sorted(run.offsets) == sorted({offset for _, offset, _ in run})
        assert self._first == min((run.place(0) for run in self.runs()), default=None)

    def _close_newest(self) -> None:
        if len(self._newest):
            self._young.append(self._made(self._newest.entries))
            self._newest = ListRun([])
            if sum(map(len, self._young)) >= self._enough:
                self._older.append(as_one(self._young))
                self._young = []

    def _look(self) -> None:
        self._older = [run for run in self._older if len(run)]
        self._young = [run for run in self._young if len(run)]
        self._first = min([run.place(0) for run in self.runs()], default=None)


def _end_of_piece(windows: Sequence[_Window[P]], most: int) -> Place:
    """Return a (due_ms, offset) before which these windows have at least one entry, and no more than ``most``.

    Each window that reaches so far gives its share, and the piece ends where the first share ends.
    """
    lowest = min(windows, key=lambda window: window.first)
    # A window that begins behind the whole share of the lowest one is no part of this piece, and gets no share of it.
    end = behind(lowest.run.place(min(lowest.stop, lowest.start + most) - 1))
    reaching = [window for window in windows if window.first < end]
    count = sum([window.stop - window.start for window in reaching])
    if count > most:
        for run, start, stop in reaching:
            end = min(end, run.place(start + most * (stop - start) // count))
    return max(end, behind(lowest.first))
