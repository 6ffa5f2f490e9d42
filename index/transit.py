"""What the router has written to its own delay partition and has not read yet: next occurrences that have an id.

A control holds for what lies in front of it, and for what follows from that. An occurrence that leaves is followed by
the next one, which is written behind whatever has been written meanwhile::

    log   ──── P ──────── X ─── N ────►        P an occurrence, N the next one, X cancels their id
                    C ▲        ▲ written by the transaction that released P, before X was read

When X is evaluated, P has left and N has not been read: it is pending all the same. So the transaction that writes N
notes its place in the state. Since a note says where N lies, cancelling it is what it is of any other record: its
offset is masked, and it is dropped when it is read. What it follows lies in front of every control that is still to be
read, for C has passed it.

Rejected: noting a tag that N carries, and to drop N by that. The receipt could not say where N lies, and whatever looks
alike would have to be told from N before it is known who has written it. Rejected: a control that waits until all that
is in transit has been read, for what is behind it could not be released meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from index.progress import Position

MOST_IN_LOT: Final = 5_000
"""Notes that are stored together: a value of the state takes 15,000 of them."""

Lot: TypeAlias = tuple[int, int]
"""Number of the transaction that has written them, and of the lot in it."""


class InTransit(NamedTuple):
    """A record with an id that a transaction has appended, and where it lies."""

    place: Position
    id_hash: bytes


def lots_of(number: int, notes: Sequence[InTransit]) -> dict[Lot, tuple[InTransit, ...]]:
    """What one transaction has appended, in lots that are stored together."""
    starts = range(0, len(notes), MOST_IN_LOT)
    return {lot: tuple(notes[at : at + MOST_IN_LOT]) for lot, at in zip(named_lots(number, len(notes)), starts)}  # noqa: B905


def named_lots(number: int, count: int) -> list[Lot]:
    """The lots in which so many notes of a transaction are stored."""
    return [(number, part) for part in range(-(-count // MOST_IN_LOT))]


def relocated(lots: Mapping[Lot, Sequence[InTransit]], moved: Mapping[int, int]) -> dict[Lot, tuple[InTransit, ...]]:
    """The lots that say where something lay, as they are once it lies elsewhere; ``moved`` maps old to new offsets.

    >>> notes = [InTransit(Position(5_000, 40), b"id"), InTransit(Position(5_000, 41), b"other")]
    >>> relocated({(7, 0): notes, (8, 0): notes[:0]}, {41: 93})[7, 0][1].place
    Position(due_ms=5000, offset=93)
    """
    return {
        lot: tuple(
            note._replace(place=note.place._replace(offset=moved.get(note.place.offset, note.place.offset)))
            for note in notes
        )
        for lot, notes in lots.items()
        if any(note.place.offset in moved for note in notes)
    }


class Transit:
    """Of one partition, from transaction to transaction: ``add`` what one has appended, ``leave`` what C has passed.

    >>> transit = Transit()
    >>> transit.add(7, [InTransit(Position(5_000, 40), b"id")])
    >>> transit.find(b"id", 35), transit.find(b"id", 41)
    ([Position(due_ms=5000, offset=40)], [])
    >>> transit.leave(41)
    >>> transit.leaving
    ((7, 0),)
    """

    def __init__(self, stored: Mapping[Lot, Sequence[InTransit]] | None = None) -> None:
        """Take what the state holds."""
        self._lots = {lot: tuple(notes) for lot, notes in (stored or {}).items()}
        self._by_id: dict[bytes, list[InTransit]] = {}
        for notes in self._lots.values():
            self._enter(notes)
        self.leaving: tuple[Lot, ...] = ()
        """Lots that the next transaction removes from the state."""

    def __len__(self) -> int:
        return sum(map(len, self._lots.values()))

    @property
    def reaches(self) -> int:
        """The first offset behind all of it; 0 where there is nothing."""
        return max((notes[-1].place.offset + 1 for notes in self._lots.values()), default=0)

    def find(self, id_hash: bytes, offset: int) -> list[Position]:
        """What of this id is still to be read when an offset is."""
        return [each.place for each in self._by_id.get(id_hash, ()) if each.place.offset > offset]

    def add(self, number: int, notes: Sequence[InTransit]) -> None:
        """The transaction of this number has appended these, in the order of the log."""
        self._lots |= lots_of(number, notes)
        self._enter(notes)

    def leave(self, cursor: int) -> None:
        """The next transaction moves C there: all lots below need no note any more."""
        gone = (lot for lot, notes in self._lots.items() if notes[-1].place.offset < cursor)
        self.leaving = tuple(gone) if self._lots else ()

    def confirm(self) -> None:
        """The transaction was committed."""
        for lot in self.leaving:
            for note in self._lots.pop(lot):
                known = self._by_id[note.id_hash]
                known.remove(note)
                if not known:
                    del self._by_id[note.id_hash]
        self.leaving = ()

    def check(self) -> None:
        """Assert every invariant."""
        notes = [note for lot in self._lots.values() for note in lot]
        assert sorted(notes) == sorted(note for known in self._by_id.values() for note in known)
        assert all(list(lot) == sorted(lot, key=lambda note: note.place.offset) for lot in self._lots.values())
        assert set(self.leaving) <= self._lots.keys()

    def _enter(self, notes: Iterable[InTransit]) -> None:
        for note in notes:
            self._by_id.setdefault(note.id_hash, []).append(note)
