"""Places of records by the hash of their id, for ranges of offsets to which no record is added any more."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from struct import Struct
from types import MappingProxyType
from typing import Final

from index.progress import Position

HASH_BYTES = 16
_HALVES = Struct(">QQ")

Places = Mapping[bytes, Position | list[Position]]
"""By hash; nearly every id has one place, and a list for each would double what it costs."""

NO_PLACES: Final[Places] = MappingProxyType({})


def places_of(places: Places, id_hash: bytes) -> list[Position]:
    """Those of one id."""
    known = places.get(id_hash, [])
    return list(known) if isinstance(known, list) else [known]


class IdRun:
    """Places of one range; ``compact`` makes them 32 bytes each.

    >>> run = IdRun({b"b" * 16: Position(7, 2), b"a" * 16: [Position(5, 1), Position(6, 3)]})
    >>> run.compact()
    >>> run.find(b"a" * 16), run.find(b"c" * 16), run.last
    ([Position(due_ms=5, offset=1), Position(due_ms=6, offset=3)], [], Position(due_ms=7, offset=2))
    """

    def __init__(self, places: Places) -> None:
        """``places``, which must not change any more, and of which there is one at least."""
        self._loose: Places | None = places
        self.last = max(max(known) if isinstance(known, list) else known for known in places.values())
        # Both halves of each hash: numbers are found without a call of ours for each that is looked at.
        self._firsts = array("Q")
        self._seconds = array("Q")
        self._dues_ms = array("q")
        self._offsets = array("q")

    def compact(self) -> None:
        """Sort it into columns; another thread may go on to ask meanwhile."""
        if self._loose is None:
            return
        named = sorted(_all(self._loose))
        halves = [_HALVES.unpack(id_hash) for id_hash, _ in named]
        self._firsts = array("Q", [first for first, _ in halves])
        self._seconds = array("Q", [second for _, second in halves])
        self._dues_ms = array("q", [place.due_ms for _, place in named])
        self._offsets = array("q", [place.offset for _, place in named])
        self._loose = None

    def find(self, id_hash: bytes) -> list[Position]:
        """Where records of this id are, or have been."""
        loose = self._loose
        if loose is not None:
            return places_of(loose, id_hash)
        first, second = _HALVES.unpack(id_hash)
        found: list[Position] = []
        at = bisect_left(self._firsts, first)
        while at < len(self._firsts) and self._firsts[at] == first:
            if self._seconds[at] == second:
                found.append(Position(self._dues_ms[at], self._offsets[at]))
            at += 1
        return found


def _all(places: Places) -> Iterable[tuple[bytes, Position]]:
    return ((id_hash, place) for id_hash in places for place in places_of(places, id_hash))
