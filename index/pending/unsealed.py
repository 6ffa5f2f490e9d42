"""Entries that are in no bucket yet: the entries of the mutable bucket, and of one that is being sealed."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from pyroaring import BitMap64

from index.pending.pending import Entry, PendingIndex
from index.pending.run import ListRun, Place, Run, Runs, as_one, behind
from index.pending.waiting import Waiting

P = TypeVar("P")

PIECE_ENTRIES = 2_500
"""Entries taken in release order at once: about a segment, and a few milliseconds."""


class Unsealed(Generic[P]):
    """The entries of one ledger range that are in no bucket yet; the minimum of ``offsets`` is S.

    Entries that are due soon are in ``soon``, as they came, and entries that wait for long in ``waiting``.
    """

    def __init__(self, from_offset: int, runs: Runs[P]) -> None:
        self.from_offset = from_offset
        self.soon: PendingIndex[P] = PendingIndex(runs.chunk_bits)
        self.waiting: Waiting[P] = Waiting(runs)
        self.offsets = BitMap64()
        self._waiting_of = runs.waiting
        # Added in runs: one call for many is ten times cheaper than one each.
        self._fresh: list[int] = []

    def __len__(self) -> int:
        return len(self.soon) + len(self.waiting)

    def add(self, entries: Sequence[Entry[P]]) -> None:
        """Add entries in the order of their offsets; all of them are behind the entries that are here."""
        waiting, soon = self._waiting_of(entries)
        if waiting:
            self.waiting.add(waiting)
        if soon:
            self.soon.add(soon)
        self._fresh += [offset for _, offset, _ in entries]

    def put_back(self, entries: Sequence[Entry[P]]) -> None:
        """Put taken entries, in release order, back to where they were; ``pieces`` may still come to them."""
        waiting, soon = self._waiting_of(entries)
        self.waiting.put_back(waiting)
        self.soon.put_back(soon)

    def settle(self) -> BitMap64:
        """Return the offsets of all entries."""
        if self._fresh:
            self.offsets.update(self._fresh)
            self._fresh = []
        return self.offsets

    def discard(self, places: Collection[Place]) -> list[Entry[P]]:
        """Remove and return entries wherever they lie; they hold S back until they are taken out of ``offsets``."""
        found = [entry for place in places if (entry := self.soon.discard(*place)) is not None]
        return [*found, *self.waiting.discard(places)]

    def count_until(self, due_ms: int) -> int:
        """Count the entries due by then, to the end of that chunk."""
        return self.soon.count_until(due_ms) + self.waiting.count_until(due_ms)

    def pieces(self) -> Iterator[Run[P]]:
        """Yield all entries in release order, lazily: an entry that is removed meanwhile may be missing or not."""
        return _interleaved(self.waiting.pieces(PIECE_ENTRIES), _gathered(self.soon.chunks()))

    def take_over(self, newer: "Unsealed[P]") -> None:
        """Add all entries of another range, which follows on this one."""
        for chunk in newer.soon.chunks():
            self.soon.add(chunk)
        for run in newer.waiting.take_all():
            self.waiting.add_run(run)
        self.settle().update(newer.settle())

    def check(self) -> None:
        """Assert every invariant; O(n log n)."""
        self.soon.check()
        self.waiting.check()
        assert len(self.settle()) == len(self)
        assert not self.offsets or self.offsets.min() >= self.from_offset


def _gathered(chunks: Iterable[list[Entry[P]]]) -> Iterator[Run[P]]:
    """Join chunks that follow each other to runs of a worthwhile size."""
    gathered: list[Entry[P]] = []
    for chunk in chunks:
        gathered += chunk
        if len(gathered) >= PIECE_ENTRIES:
            yield ListRun(gathered)
            gathered = []
    if gathered:
        yield ListRun(gathered)


def _interleaved(one: Iterator[Run[P]], other: Iterator[Run[P]]) -> Iterator[Run[P]]:
    """Merge two sources that are in release order."""
    first, second = next(one, None), next(other, None)
    while first is not None and second is not None:
        end = behind(min(first.place(len(first) - 1), second.place(len(second) - 1)))
        yield as_one([run.slice(0, count) for run in (first, second) if (count := run.count_before(end))])
        first = _rest(first, end) or next(one, None)
        second = _rest(second, end) or next(other, None)
    if first is not None:
        yield first
        yield from one
    if second is not None:
        yield second
        yield from other


def _rest(run: Run[P], end: Place) -> Run[P] | None:
    """Return the entries at ``end`` and behind it; None when there are none."""
    count = run.count_before(end)
    return run.slice(count, len(run)) if count < len(run) else None
