"""Places of records by the hash of their id, and the shifts of places that a spread makes due later."""

from bisect import bisect_left, insort
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from index.pending.progress import Position

HASH_BYTES = 16

FEW_OF: Final = 16
"""A list is filtered as a whole where more than one in so many of its places is removed."""

Places = Mapping[bytes, Position | list[Position]]
"""Places by hash. Nearly every id has one place, and a list for each would double the memory. A list is in order."""

Shifts = Mapping[int, int]
"""How many milliseconds after the requested time a record is due, by offset; only records with a shift are in it (see
:mod:`index.rules.spreading`)."""

DueTimes = tuple[int, int]
"""The first and the last due time that is looked for."""

NO_PLACES: Final[Places] = MappingProxyType({})
NO_SHIFTS: Final[Shifts] = MappingProxyType({})


def places_of(places: Places, id_hash: bytes, due: DueTimes | None = None) -> list[Position]:
    """Return the places of one id in order; only the ones due within ``due``, where it is given.

    >>> places = {b"a": [Position(5, 1), Position(6, 2), Position(6, 4), Position(7, 3)]}
    >>> places_of(places, b"a", (6, 6)), places_of(places, b"b")
    ([Position(due_ms=6, offset=2), Position(due_ms=6, offset=4)], [])
    """
    known = places.get(id_hash, [])
    if not isinstance(known, list):
        known = [known]
    return list(known) if due is None else _between(known, due)


def insert(places: dict[bytes, Position | list[Position]], id_hash: bytes, place: Position) -> None:
    """Add a place of an id."""
    known = places.setdefault(id_hash, place)
    if isinstance(known, list):
        insort(known, place)
    elif known is not place:
        places[id_hash] = sorted((known, place))


def without(places: list[Position], gone: Collection[Position]) -> list[Position]:
    """Remove some of these places, which are in order; O(removed) where few are, apart from moving the others."""
    if FEW_OF * len(gone) > len(places):
        return [place for place in places if place not in gone]
    for place in gone:
        at = bisect_left(places, place)
        if at < len(places) and places[at] == place:
            del places[at]
    return places


def _between(places: list[Position], due: DueTimes) -> list[Position]:
    return places[bisect_left(places, (due[0],)) : bisect_left(places, (due[1] + 1,))]
