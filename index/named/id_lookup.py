"""A look-up of several ids at once in stored buckets, and the places found so far.

Controls come in lots, and the ids of one lot lie in many of the same pages. A look-up answers for its own ids alone, so
it may end with any number of the read pages kept. It counts covered offsets, so buckets may be merged meanwhile::

    offsets    0 ........... 400 ........ 900 ............... C
               ├─ looked up ──┤├─ to do ───┤├─ not sealed ────┤
"""

from collections.abc import Collection, Iterable, Mapping, Sequence

from pyroaring import BitMap64

from index.named.id_pages import Sought
from index.named.id_runs import without
from index.pending.progress import Position


class IdLookup:
    """The look-up of some ids, by hash.

    >>> lookup = Lookup([b"a" * 16, b"b" * 16])
    >>> lookup.found(range(400), {b"a" * 16: [Position(7, 12), Position(7, 500)]})
    >>> lookup.covers(range(400)), lookup.covers(range(401)), lookup.places[b"a" * 16], b"c" * 16 in lookup
    (True, False, [Position(due_ms=7, offset=12)], False)
    """

    def __init__(self, hashes: Iterable[bytes] = ()) -> None:
        self._places: dict[bytes, list[Position]] = {id_hash: [] for id_hash in hashes}
        self._known = BitMap64()
        self.sought = Sought(self._places)

    def __contains__(self, id_hash: bytes) -> bool:
        return id_hash in self._places

    def covers(self, offsets: range) -> bool:
        """Return whether the places of its ids in a bucket of these offsets are known."""
        return bool(self._known.range_cardinality(offsets.start, offsets.stop) == len(offsets))

    def found(self, offsets: range, places: Mapping[bytes, Sequence[Position]]) -> None:
        """Take all places of its ids in a bucket of these offsets; leave out places at other offsets."""
        self._known.add_range(offsets.start, offsets.stop)
        for id_hash, found in places.items():
            self._places[id_hash] += [place for place in found if place.offset in offsets]
            self._places[id_hash].sort()

    @property
    def places(self) -> Mapping[bytes, list[Position]]:
        """The known places, in order, at which records of its ids are or have been."""
        return self._places

    def remove(self, id_hash: bytes, gone: Collection[Position]) -> None:
        """Remove some places of an id."""
        if id_hash in self._places:
            self._places[id_hash] = without(self._places[id_hash], gone)
