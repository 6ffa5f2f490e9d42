"""A look-up of several ids at once in stored buckets, and the places found so far.

Controls come in lots, and the ids of one lot lie in many of the same pages. A look-up answers for its own ids alone, so
it may end with any number of the read pages kept. It counts covered offsets, so buckets may be merged meanwhile::

    offsets    0 ........... 400 ........ 900 ............... C
               ├─ looked up ──┤├─ to do ───┤├─ not sealed ────┤
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping

from pyroaring import BitMap64

from index.named.id_pages import FoundId, Sought
from index.named.places import Shifts, without
from index.pending.progress import Position


class IdLookup:
    """The look-up of some ids, by hash.

    >>> lookup = IdLookup([b"a" * 16, b"b" * 16])
    >>> lookup.found(range(400), [(b"a" * 16, Position(7, 12), 0), (b"a" * 16, Position(7, 500), 0)])
    >>> lookup.covers(range(400)), lookup.covers(range(401)), lookup.places[b"a" * 16], b"c" * 16 in lookup
    (True, False, [Position(due_ms=7, offset=12)], False)
    """

    def __init__(self, hashes: Iterable[bytes] = ()) -> None:
        self._places: dict[bytes, list[Position]] = {id_hash: [] for id_hash in hashes}
        self._shifts_ms: dict[int, int] = {}
        self._known = BitMap64()
        self.sought = Sought(self._places)
        self.longest_shift_ms = 0

    def __contains__(self, id_hash: bytes) -> bool:
        return id_hash in self._places

    def covers(self, offsets: range) -> bool:
        """Return whether the places of its ids in a bucket of these offsets are known."""
        return bool(self._known.range_cardinality(offsets.start, offsets.stop) == len(offsets))

    def found(self, offsets: range, found: Iterable[FoundId]) -> None:
        """Take all places of its ids in a bucket of these offsets; leave out places at other offsets."""
        self._known.add_range(offsets.start, offsets.stop)
        for id_hash, place, shift_ms in found:
            if place.offset not in offsets:
                continue
            known = self._places[id_hash]
            at = bisect_left(known, place)
            # A bucket that was read before a merge may be read again as a part of the merged bucket.
            if known[at : at + 1] != [place]:
                known.insert(at, place)
            if shift_ms:
                self._shifts_ms[place.offset] = shift_ms
                self.longest_shift_ms = max(self.longest_shift_ms, shift_ms)

    @property
    def places(self) -> Mapping[bytes, list[Position]]:
        """The known places, in order, at which records of its ids are or have been."""
        return self._places

    @property
    def shifts_ms(self) -> Shifts:
        """The shifts of the known places."""
        return self._shifts_ms

    def remove(self, id_hash: bytes, gone: Collection[Position]) -> None:
        """Remove some places of an id."""
        if id_hash in self._places:
            self._places[id_hash] = without(self._places[id_hash], gone)
