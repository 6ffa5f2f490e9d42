"""The ids of pending records: maps a 128-bit hash of each id to the places of its records.

Only records with an id are in it. Cancelled places are removed at once. Places that have left are not removed one by
one, because most ids are never looked for: a sweep removes them when as many places were added as the last sweep left,
and every caller of a look-up checks whether a place is pending. An id with many places has them in order of their due
times, so that a control for one due time finds its places without visiting the others. Where most of the places that a
control finds have left, they are removed.

Sealed records lie in buckets, and so do their ids, sorted in pages (:mod:`index.named.id_pages`). These ids are not in
memory as well: a look-up reads the pages that may hold its ids (:mod:`index.named.id_lookup`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain

from pyroaring import BitMap64

from index.named.id_lookup import IdLookup
from index.named.places import HASH_BYTES, Places, Shifts, insert, places_of, without
from index.pending.progress import Position

FIRST_SWEEP = 1_024
"""Fewest places for which a sweep is worthwhile."""


def hash_of(deliver_id: bytes) -> bytes:
    """Hash an id; two ids of one partition with the same hash are not to be expected in any lifetime."""
    return blake2b(deliver_id, digest_size=HASH_BYTES).digest()


AnyPlaces = dict[bytes, Position | list[Position]]


class Names:
    """Places of records by the hash of their id.

    >>> names = Names()
    >>> names.add(hash_of(b"order-7"), Position(2_000, 5))
    >>> names.find(hash_of(b"order-7"))
    [Position(due_ms=2000, offset=5)]
    """

    def __init__(self) -> None:
        self._places: AnyPlaces = {}
        self._frozen: AnyPlaces = {}
        self._shifts_ms: dict[int, int] = {}
        self._frozen_shifts_ms: dict[int, int] = {}
        self._longest_shift_ms = 0
        self._count = 0
        self._sweep_at = FIRST_SWEEP
        self._cancelled = BitMap64()
        self._removed: list[tuple[bytes, set[Position]]] = []
        self.lookup = IdLookup()

    def __len__(self) -> int:
        """Return the number of places of records that have not been sealed."""
        return self._count

    @property
    def must_sweep(self) -> bool:
        """True when it is time to look for places that have left."""
        return self._count >= self._sweep_at

    def add(self, id_hash: bytes, place: Position, shift_ms: int = 0) -> None:
        """Add the place of a pending record; ``shift_ms`` is how long after the requested time it is due.

        See :mod:`index.rules.spreading`.
        """
        self._count += 1
        if shift_ms:
            self._shifts_ms[place.offset] = shift_ms
            self._longest_shift_ms = max(self._longest_shift_ms, shift_ms)
        insert(self._places, id_hash, place)

    def remove(self, id_hash: bytes, places: Iterable[Position]) -> None:
        """Remove cancelled places, and remember their offsets, because the mask forgets them in the end."""
        gone = set(places)
        self._count -= _remove(self._places, id_hash, gone)
        self.lookup.remove(id_hash, gone)
        self._cancelled.update(place.offset for place in gone)
        if self._frozen:
            self._removed.append((id_hash, gone))

    def read_as(self, id_hash: bytes, places: Iterable[Position]) -> list[Position]:
        """Return the places in memory at the offsets of these.

        A record in transit is due at another time than its note says, if the rules about spreading have changed.
        """
        offsets = {place.offset for place in places}
        known = chain(places_of(self._places, id_hash), places_of(self._frozen, id_hash))
        return [place for place in known if place.offset in offsets]

    def find(self, id_hash: bytes, asked_ms: int | None = None) -> list[Position]:
        """Return the places where records of this id are or have been, requested for ``asked_ms`` where it is given."""
        longest_shift_ms = max(self._longest_shift_ms, self.lookup.longest_shift_ms)
        due = None if asked_ms is None else (asked_ms, asked_ms + longest_shift_ms)
        sealed = places_of(self.lookup.places, id_hash, due) + places_of(self._frozen, id_hash, due)
        found = [place for place in sealed if place.offset not in self._cancelled]
        found += places_of(self._places, id_hash, due)
        if asked_ms is None:
            return found
        return [place for place in found if place.due_ms - self._shift_ms(place.offset) == asked_ms]

    def latest(self, id_hash: bytes) -> Iterator[Position]:
        """Return the places where records of this id are or have been; within each part the last due first."""
        parts: list[Places] = [self._places, self._frozen, self.lookup.places]
        known = [reversed(each) if isinstance(each, list) else [each] for part in parts if (each := part.get(id_hash))]
        return (place for place in chain.from_iterable(known) if place.offset not in self._cancelled)

    def let_go(self, id_hash: bytes, gone: Iterable[Position]) -> None:
        """Remove places of an id that have left, except where only a sweep or ``forget`` removes places."""
        left = set(gone)
        self._count -= _remove(self._places, id_hash, left)
        self.lookup.remove(id_hash, left)

    def asked_ms(self, places: Iterable[Position]) -> dict[int, int]:
        """Return the times that were requested for these places, by offset, where they differ from the due times."""
        return {each.offset: each.due_ms - shift_ms for each in places if (shift_ms := self._shift_ms(each.offset))}

    def sweep(self, is_pending: Callable[[Position], bool]) -> None:
        """Remove places that are not pending; O(places)."""
        pending = [(each, list(filter(is_pending, places_of(self._places, each)))) for each in self._places]
        self._places = {each: places if len(places) > 1 else places[0] for each, places in pending if places}
        self._count = _count(self._places)
        self._sweep_at = max(FIRST_SWEEP, 2 * self._count)
        if self._shifts_ms:
            left = {place.offset for each in self._places for place in places_of(self._places, each)}
            self._shifts_ms = {offset: self._shifts_ms[offset] for offset in self._shifts_ms.keys() & left}
        self._longest_shift_ms = max([*self._shifts_ms.values(), *self._frozen_shifts_ms.values()], default=0)

    def freeze(self) -> None:
        """Set all places aside that were added, because they are being sealed from here on."""
        assert not self._frozen, "being sealed already"
        self._frozen, self._places, self._count, self._removed = self._places, {}, 0, []
        self._frozen_shifts_ms, self._shifts_ms = self._shifts_ms, {}

    @property
    def frozen(self) -> Places:
        """The places that are being sealed, including the ones cancelled since; they do not change.

        Another thread may read them.
        """
        return self._frozen

    @property
    def frozen_shifts_ms(self) -> Shifts:
        """The shifts of the places that are being sealed; they do not change, and another thread may read them."""
        return self._frozen_shifts_ms

    def thaw(self) -> None:
        """Put the frozen places back, because they are not sealed after all."""
        newer, self._places, self._frozen = self._places, dict(self._frozen), {}
        self._shifts_ms, self._frozen_shifts_ms = self._frozen_shifts_ms | self._shifts_ms, {}
        for id_hash, gone in self._removed:
            _remove(self._places, id_hash, gone)
        self._count = _count(self._places)
        for id_hash in newer:
            for place in places_of(newer, id_hash):
                self.add(id_hash, place)

    def discard_frozen(self) -> None:
        """Drop the frozen places: all of them have left, or lie in a bucket."""
        self._frozen, self._frozen_shifts_ms = {}, {}

    def look_up(self, hashes: Iterable[bytes]) -> None:
        """Look for these ids from now on, and no longer for the earlier ones."""
        self.lookup = IdLookup(hashes)

    def knows(self, id_hash: bytes, offsets: range) -> bool:
        """Return whether all places of this id in a bucket of these offsets are known."""
        return id_hash in self.lookup and self.lookup.covers(offsets)

    def forget(self, buckets: Sequence[range]) -> None:
        """Drop the cancelled offsets that no bucket holds any more."""
        if not self._cancelled:
            return
        held = BitMap64()
        for each in buckets:
            held.add_range(each.start, each.stop)
        self._cancelled &= held

    def check(self) -> None:
        """Assert every invariant."""
        assert self._count == _count(self._places)
        for places in (self._places, self._frozen):
            assert all(len(each) == HASH_BYTES for each in places)
            assert all(len(known) > 1 for known in places.values() if isinstance(known, list))
            assert all(known == sorted(known) for known in places.values() if isinstance(known, list))

    def _shift_ms(self, offset: int) -> int:
        unsealed_ms = self._shifts_ms.get(offset) or self._frozen_shifts_ms.get(offset)
        return unsealed_ms or self.lookup.shifts_ms.get(offset, 0)


def _count(places: AnyPlaces) -> int:
    return sum(len(known) if isinstance(known, list) else 1 for known in places.values())


def _remove(places: AnyPlaces, id_hash: bytes, gone: set[Position]) -> int:
    """Remove the given places as far as they are present; return how many were."""
    known = places.get(id_hash, [])
    before = len(known) if isinstance(known, list) else 1
    kept = without(known if isinstance(known, list) else [known], gone)
    if kept:
        places[id_hash] = kept if len(kept) > 1 else kept[0]
    else:
        places.pop(id_hash, None)
    return before - len(kept)
