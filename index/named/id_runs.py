"""Places of records by the hash of their id, for ranges of offsets to which no record is added any more."""

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

from index.pending.progress import Position

HASH_BYTES = 16
_HALVES = Struct(">QQ")

FEW_OF: Final = 16
"""A list is filtered as a whole where more than one in so many of its places is removed."""

Places = Mapping[bytes, Position | list[Position]]
"""Places by hash. Nearly every id has one place, and a list for each would double the memory. A list is in order."""

DueTimes = tuple[int, int]
"""The first and the last due time that is looked for."""

NO_PLACES: Final[Places] = MappingProxyType({})


def places_of(places: Places, id_hash: bytes, due: DueTimes | None = None) -> list[Position]:
    """Return the places of one id in order; only the ones due within ``due``, where it is given.

    >>> places = {b"a": [Position(5, 1), Position(6, 2), Position(6, 4), Position(7, 3)]}
    >>> places_of(places, b"a", (6, 6)), places_of(places, b"b")
    ([Position(due_ms=6, offset=2), Position(due_ms=6, offset=4)], [])
    """
    known = places.get(id_hash, [])
    if not isinstance(known, list):
        known = [known]
    return list(known) if due is None else between(known, due)


def insert(places: dict[bytes, Position | list[Position]], id_hash: bytes, place: Position) -> None:
    """Add a place of an id."""
    known = places.setdefault(id_hash, place)
    if isinstance(known, list):
        insort(known, place)
    elif known is not place:
        places[id_hash] = sorted((known, place))


def between(places: list[Position], due: DueTimes) -> list[Position]:
    """Return the places that are due within some time; ``places`` is in order."""
    return places[bisect_left(places, (due[0],)) : bisect_left(places, (due[1] + 1,))]


def without(places: list[Position], gone: Collection[Position]) -> list[Position]:
    """Remove some of these places, which are in order; O(removed) where few are, apart from moving the others."""
    if FEW_OF * len(gone) > len(places):
        return [place for place in places if place not in gone]
    for place in gone:
        at = bisect_left(places, place)
        if at < len(places) and places[at] == place:
            del places[at]
    return places


class IdRun:
    """The places of one range; ``compact`` reduces them to 32 bytes each.

    >>> run = IdRun({b"b" * 16: Position(7, 2), b"a" * 16: [Position(5, 1), Position(6, 3)]})
    >>> run.compact()
    >>> run.find(b"a" * 16), run.find(b"c" * 16), run.last
    ([Position(due_ms=5, offset=1), Position(due_ms=6, offset=3)], [], Position(due_ms=7, offset=2))
    """

    def __init__(self, places: Places) -> None:
        """Take ``places``, which must not change any more and are not empty."""
        self._loose: Places | None = places
        self.last = max(max(known) if isinstance(known, list) else known for known in places.values())
        # Both halves of each hash. Bisecting numbers needs no Python call for each comparison.
        self._firsts = array("Q")
        self._seconds = array("Q")
        self._dues_ms = array("q")
        self._offsets = array("q")

    def compact(self) -> None:
        """Sort the places into columns; another thread may search meanwhile."""
        if self._loose is None:
            return
        named = sorted(_all(self._loose))
        halves = [_HALVES.unpack(id_hash) for id_hash, _ in named]
        self._firsts = array("Q", [first for first, _ in halves])
        self._seconds = array("Q", [second for _, second in halves])
        self._dues_ms = array("q", [place.due_ms for _, place in named])
        self._offsets = array("q", [place.offset for _, place in named])
        self._loose = None

    def find(self, id_hash: bytes, due: DueTimes | None = None) -> list[Position]:
        """Return the places where records of this id are or have been, due within ``due`` where it is given."""
        loose = self._loose
        if loose is not None:
            return places_of(loose, id_hash, due)
        rows = self._rows(id_hash)
        if due is not None:
            first = bisect_left(self._dues_ms, due[0], rows.start, rows.stop)
            rows = range(first, bisect_right(self._dues_ms, due[1], first, rows.stop))
        return [Position(self._dues_ms[at], self._offsets[at]) for at in rows]

    def latest(self, id_hash: bytes) -> Iterator[Position]:
        """Return the places where records of this id are or have been, the last due first."""
        loose = self._loose
        if loose is not None:
            return reversed(places_of(loose, id_hash))
        return (Position(self._dues_ms[at], self._offsets[at]) for at in reversed(self._rows(id_hash)))

    def _rows(self, id_hash: bytes) -> range:
        first, second = _HALVES.unpack(id_hash)
        begin = bisect_left(self._firsts, first)
        end = bisect_right(self._firsts, first, begin)
        begin = bisect_left(self._seconds, second, begin, end)
        return range(begin, bisect_right(self._seconds, second, begin, end))


def _all(places: Places) -> Iterable[tuple[bytes, Position]]:
    return ((id_hash, place) for id_hash in places for place in places_of(places, id_hash))
