"""Places of records by the hash of their id, for ranges of offsets to which no record is added any more."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import takewhile

from index.progress import Position

HASH_BYTES = 16

Places = Mapping[bytes, Position | list[Position]]
"""By hash; nearly every id has one place, and a list for each would double what it costs."""


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
        self._hashes = b""
        self._dues_ms = array("q")
        self._offsets = array("q")

    def compact(self) -> None:
        """Sort it into columns; another thread may go on to ask meanwhile."""
        if self._loose is None:
            return
        named = sorted(_all(self._loose))
        self._hashes = b"".join([id_hash for id_hash, _ in named])
        self._dues_ms = array("q", [place.due_ms for _, place in named])
        self._offsets = array("q", [place.offset for _, place in named])
        self._loose = None

    def find(self, id_hash: bytes) -> list[Position]:
        """Where records of this id are, or have been."""
        loose = self._loose
        if loose is not None:
            return places_of(loose, id_hash)
        count = len(self._offsets)
        first = bisect_left(range(count), id_hash, key=self._hash)
        same = takewhile(lambda place: self._hash(place) == id_hash, range(first, count))
        return [Position(self._dues_ms[place], self._offsets[place]) for place in same]

    def _hash(self, place: int) -> bytes:
        return self._hashes[place * HASH_BYTES : (place + 1) * HASH_BYTES]


def _all(places: Places) -> Iterable[tuple[bytes, Position]]:
    return ((id_hash, place) for id_hash in places for place in places_of(places, id_hash))
