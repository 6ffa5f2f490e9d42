"""Records that the router has appended to its own delay partition and not read yet: next occurrences, moved schedules.

A control applies to the schedules in front of it, and to their successors. An occurrence that leaves is followed by the
next one, which is written behind all records that were written meanwhile::

    log   ──── P ──────── X ─── N ────►        P an occurrence, N the next one, X cancels their id
                    C ▲        ▲ written by the transaction that released P, before X was read

When X is evaluated, P has left and N has not been read: N is pending all the same. So the transaction that writes N
notes its place in the state. The note gives the offset of N, so N is cancelled like any other record: its offset is
masked, and it is dropped when it is read. Its predecessor lies in front of every control that is still to be read,
because C has passed it.

Rejected: noting a tag that N carries, and dropping N by the tag. The receipt could not name the place of N, and records
with the same tag would have to be told from N before their writer is known. Rejected: a control that waits until all
records in transit have been read, because the records behind it could not be released meanwhile.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from index.named.places import HASH_BYTES
from index.pending.progress import Position

MOST_IN_LOT: Final = 5_000
"""Most notes that are stored together: a value of the state takes 15,000 of them."""

NO_ID: Final = bytes(HASH_BYTES)
"""In place of the hash of an id: no id has it. A query cancels records without an id, too."""

Lot: TypeAlias = tuple[int, int]
"""Number of the transaction that has written the notes, and of the lot in it."""


class InTransit(NamedTuple):
    """A record that a transaction has appended, its place, and the hash of its id, ``NO_ID`` where it has none."""

    place: Position
    id_hash: bytes


def lots_of(number: int, notes: Sequence[InTransit]) -> dict[Lot, tuple[InTransit, ...]]:
    """Divide the notes of one transaction into lots that are stored together."""
    starts = range(0, len(notes), MOST_IN_LOT)
    return {lot: tuple(notes[at : at + MOST_IN_LOT]) for lot, at in zip(named_lots(number, len(notes)), starts)}  # noqa: B905


def named_lots(number: int, count: int) -> list[Lot]:
    """Name the lots in which so many notes of a transaction are stored."""
    return [(number, part) for part in range(-(-count // MOST_IN_LOT))]


def relocated(lots: Mapping[Lot, Sequence[InTransit]], moved: Mapping[int, int]) -> dict[Lot, tuple[InTransit, ...]]:
    """Return the lots with records that have moved, with their new places; ``moved`` maps old to new offsets.

    >>> notes = [InTransit(Position(5_000, 40), b"id"), InTransit(Position(5_000, 41), b"other")]
    >>> relocated({(7, 0): notes, (8, 0): notes[:0]}, {41: 93})[7, 0][1].place
    Position(due_ms=5000, offset=93)
    """
    return {
        lot: tuple(sorted((_relocated(note, moved) for note in notes), key=_offset_of))
        for lot, notes in lots.items()
        if any(note.place.offset in moved for note in notes)
    }


def _relocated(note: InTransit, moved: Mapping[int, int]) -> InTransit:
    offset = _offset_of(note)
    return note._replace(place=note.place._replace(offset=moved.get(offset, offset)))


def _offset_of(note: InTransit) -> int:
    return note.place.offset


class Transit:
    """The notes of one partition: ``add`` takes the notes of a transaction, ``leave`` ends the notes that C has passed.

    >>> transit = Transit()
    >>> transit.add(7, [InTransit(Position(5_000, 40), b"id")])
    >>> transit.find(b"id", 35), transit.find(b"id", 41)
    ([Position(due_ms=5000, offset=40)], [])
    >>> transit.leave(41)
    >>> transit.leaving
    ((7, 0),)
    """

    def __init__(self, stored: Mapping[Lot, Sequence[InTransit]] | None = None) -> None:
        """Take the notes that the state holds."""
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
        """The first offset behind all notes; 0 where there are none."""
        return max((notes[-1].place.offset + 1 for notes in self._lots.values()), default=0)

    def find(self, id_hash: bytes, offset: int) -> list[Position]:
        """Return the places of the records of this id that are still to be read when ``offset`` is read."""
        return [each.place for each in self._by_id.get(id_hash, ()) if each.place.offset > offset]

    def behind(self, offset: int) -> list[Position]:
        """Return the places of all records that are still to be read when ``offset`` is read."""
        return [note.place for notes in self._lots.values() for note in notes if note.place.offset > offset]

    def add(self, number: int, notes: Sequence[InTransit]) -> None:
        """Add the notes of the transaction with this number, in the order of the log."""
        self._lots |= lots_of(number, notes)
        self._enter(notes)

    def leave(self, cursor: int) -> None:
        """Choose the lots that need no note any more once the next transaction moves C to ``cursor``."""
        gone = (lot for lot, notes in self._lots.items() if notes[-1].place.offset < cursor)
        self.leaving = tuple(gone) if self._lots else ()

    def confirm(self) -> None:
        """Remove the lots of the transaction, which was committed."""
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
        assert all(list(lot) == sorted(lot, key=_offset_of) for lot in self._lots.values())
        assert set(self.leaving) <= self._lots.keys()

    def _enter(self, notes: Iterable[InTransit]) -> None:
        for note in notes:
            self._by_id.setdefault(note.id_hash, []).append(note)
