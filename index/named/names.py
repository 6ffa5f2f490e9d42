"""The ids of pending records: maps a 128-bit hash of each id to the places of its records.

Only records with an id are in it. Cancelled places are removed at once. Places that have left are not removed one by
one, because most ids are never looked for: a sweep removes them when as many places were added as the last sweep left,
and every caller of a look-up checks whether a place is pending. An id with many places has them in order of their due
times, so that a control for one due time finds its places without visiting the others. Where most of the places that a
control finds have left, they are removed.

Sealed records lie in buckets, and so do their ids, sorted in pages (:mod:`index.named.id_pages`). These ids are not in
memory as well: a look-up reads the pages that may hold its ids (:mod:`index.named.id_lookup`).

A bucket may have no pages. The first look-up then has the whole bucket read (``is_known``). From then on its ids are
kept, 32 bytes each, for as long as a bucket holds their records; so are the ids of buckets without pages that are
sealed later. They are kept by ranges of offsets, so buckets may be merged in any way. A bucket is also written without
pages where some of its records with an id are spread (:mod:`index.rules.spreading`), because a page does not give the
time that was requested::

    offsets    0 ........... 400 ........ 900 ............... C
               ├─ read once ──┤├─ sealed ──┤├─ not sealed ────┤
                   runs            runs          places
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain
from types import MappingProxyType
from typing import Final

from pyroaring import BitMap64

from index.named.id_lookup import IdLookup
from index.named.id_runs import HASH_BYTES, IdRun, Places, insert, places_of, without
from index.pending.progress import Position

FIRST_SWEEP = 1_024
"""Fewest places for which a sweep is worthwhile."""


def hash_of(deliver_id: bytes) -> bytes:
    """Hash an id; two ids of one partition with the same hash are not to be expected in any lifetime."""
    return blake2b(deliver_id, digest_size=HASH_BYTES).digest()


_NONE: Final[Mapping[int, int]] = MappingProxyType({})

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
        self._count = 0
        self._sweep_at = FIRST_SWEEP
        self._runs: list[tuple[range, IdRun]] = []
        self._known = BitMap64()
        self._cancelled = BitMap64()
        self._loose: list[IdRun] = []
        self._shifts_ms: dict[int, int] = {}
        self._longest_shift_ms = 0
        self._is_asked = False
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

    def find(self, id_hash: bytes, asked_ms: int | None = None) -> list[Position]:
        """Return the places where records of this id are or have been, requested for ``asked_ms`` where it is given."""
        due = None if asked_ms is None else (asked_ms, asked_ms + self._longest_shift_ms)
        sealed = [place for _, run in self._runs for place in run.find(id_hash, due)]
        sealed += places_of(self.lookup.places, id_hash, due) + places_of(self._frozen, id_hash, due)
        found = [place for place in sealed if place.offset not in self._cancelled]
        found += places_of(self._places, id_hash, due)
        if asked_ms is None:
            return found
        return [place for place in found if place.due_ms - self._shifts_ms.get(place.offset, 0) == asked_ms]

    def latest(self, id_hash: bytes) -> Iterator[Position]:
        """Return the places where records of this id are or have been; within each part the last due first."""
        parts: list[Places] = [self._places, self._frozen, self.lookup.places]
        known = [reversed(each) if isinstance(each, list) else [each] for part in parts if (each := part.get(id_hash))]
        found = chain.from_iterable([*known, *(run.latest(id_hash) for _, run in self._runs)])
        return (place for place in found if place.offset not in self._cancelled)

    def let_go(self, id_hash: bytes, gone: Iterable[Position]) -> None:
        """Remove places of an id that have left, except where only a sweep or ``forget`` removes places."""
        left = set(gone)
        self._count -= _remove(self._places, id_hash, left)
        self.lookup.remove(id_hash, left)

    def asked_ms(self, places: Iterable[Position]) -> dict[int, int]:
        """Return the times that were requested for these places, by offset, where they differ from the due times."""
        shifts_ms = self._shifts_ms
        return {each.offset: each.due_ms - shifts_ms[each.offset] for each in places if each.offset in shifts_ms}

    def sweep(self, is_pending: Callable[[Position], bool]) -> None:
        """Remove places that are not pending; O(places)."""
        pending = [(each, list(filter(is_pending, places_of(self._places, each)))) for each in self._places]
        self._places = {each: places if len(places) > 1 else places[0] for each, places in pending if places}
        self._count = _count(self._places)
        self._sweep_at = max(FIRST_SWEEP, 2 * self._count)
        self._forget_shifts()

    def freeze(self) -> None:
        """Set all places aside that were added, because they are being sealed from here on."""
        assert not self._frozen, "being sealed already"
        self._frozen, self._places, self._count, self._removed = self._places, {}, 0, []

    @property
    def frozen(self) -> Places:
        """The places that are being sealed, including the ones cancelled since; they do not change.

        Another thread may read them.
        """
        return self._frozen

    @property
    def is_frozen_spread(self) -> bool:
        """True if some frozen records leave later than requested, which a page of ids does not tell."""
        frozen = self._frozen
        return bool(self._shifts_ms) and any(
            place.offset in self._shifts_ms for each in frozen for place in places_of(frozen, each)
        )

    def thaw(self) -> None:
        """Put the frozen places back, because they are not sealed after all."""
        newer, self._places, self._frozen = self._places, dict(self._frozen), {}
        for id_hash, gone in self._removed:
            _remove(self._places, id_hash, gone)
        self._count = _count(self._places)
        for id_hash in newer:
            for place in places_of(newer, id_hash):
                self.add(id_hash, place)

    def discard_frozen(self) -> None:
        """Drop the frozen places: all of them have left, or lie in pages of a bucket."""
        self._frozen = {}

    def sealed(self, offsets: range) -> None:
        """Note that the frozen places lie in a bucket of these offsets, which has no pages."""
        places, self._frozen = self._frozen, {}
        if self._is_asked:
            self.read(offsets, places)
        else:
            self._forget_shifts()

    def ask(self) -> None:
        """Keep the ids that are sealed without pages from now on, because ids are being looked for."""
        self._is_asked = True

    def look_up(self, hashes: Iterable[bytes]) -> None:
        """Look for these ids from now on, and no longer for the earlier ones."""
        self.lookup = IdLookup(hashes)

    def knows(self, id_hash: bytes, offsets: range) -> bool:
        """Return whether all places of this id in a bucket of these offsets are known."""
        return self.is_known(offsets) or (id_hash in self.lookup and self.lookup.covers(offsets))

    def is_known(self, offsets: range) -> bool:
        """Return whether all ids of a bucket of these offsets are known."""
        return bool(self._known.range_cardinality(offsets.start, offsets.stop) == len(offsets))

    def read(self, offsets: range, *places: AnyPlaces, shifts_ms: Mapping[int, int] = _NONE) -> None:
        """Take all ids that a bucket of these offsets holds; ``shifts_ms`` gives shifts by offset, see ``add``."""
        self._known.add_range(offsets.start, offsets.stop)
        self._shifts_ms.update(shifts_ms)
        self._longest_shift_ms = max(self._longest_shift_ms, *shifts_ms.values(), 0)
        runs = [IdRun(each) for each in places if each]
        self._runs += [(offsets, run) for run in runs]
        self._loose += runs

    def take_loose(self) -> list[IdRun]:
        """Return the runs that are to be made compact, by any thread; each is returned once."""
        loose, self._loose = self._loose, []
        return loose

    def forget(self, buckets: Sequence[range], watermark: Position | None) -> None:
        """Drop ids that no bucket holds any more, and ids that ``watermark`` has passed, if all buckets share one."""
        if not self._known and not self._cancelled:
            return
        held = BitMap64()
        for each in buckets:
            held.add_range(each.start, each.stop)
        self._known &= held
        self._cancelled &= held
        self._runs = [
            (offsets, run)
            for offsets, run in self._runs
            if held.range_cardinality(offsets.start, offsets.stop) and (watermark is None or run.last > watermark)
        ]
        self._forget_shifts()

    def check(self) -> None:
        """Assert every invariant."""
        assert self._count == _count(self._places)
        for places in (self._places, self._frozen):
            assert all(len(each) == HASH_BYTES for each in places)
            assert all(len(known) > 1 for known in places.values() if isinstance(known, list))
            assert all(known == sorted(known) for known in places.values() if isinstance(known, list))
        assert self._is_asked or not self._runs

    def _forget_shifts(self) -> None:
        if self._shifts_ms:
            loose = self._places, self._frozen
            unsealed = {each.offset for known in loose for id_hash in known for each in places_of(known, id_hash)}
            self._shifts_ms = {
                offset: shift_ms
                for offset, shift_ms in self._shifts_ms.items()
                if offset in unsealed or offset in self._known
            }
            self._longest_shift_ms = max(self._shifts_ms.values(), default=0)


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
