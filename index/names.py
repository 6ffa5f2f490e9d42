"""Which pending records have which id: a 128-bit hash of the id, and where they are due.

Only records with an id are in it. What was cancelled is taken out at once. What has left is not taken out one by one,
since most ids are never asked for: it is swept out when as much has been added as was left by the last sweep, and
whoever asks looks whether a place is pending. An id that has many places has them in order of their due times, so that
a control that holds for one due time finds those without looking at the others; and where most of what a control finds
has left, that is taken out.

What is sealed lies in buckets, and so do its ids, sorted in pages (:mod:`index.id_pages`). They are not kept beside
that: who asks for some ids has the pages read that may have them (:mod:`index.id_lookup`).

Where it was not written which ids a bucket has, who asks first has to have the whole bucket read (``is_known``). From
then on its ids are kept, 32 bytes each, for as long as a bucket holds their records, and those of such buckets that are
sealed later; by ranges of offsets, so it does not matter how buckets are merged. So it is where some with an id are
spread (:mod:`index.spreading`), for a page does not tell when they were asked for::

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

from index.id_lookup import Lookup
from index.id_runs import HASH_BYTES, IdRun, Places, insert, places_of, without
from index.progress import Position

FIRST_SWEEP = 1_024
"""With fewer places than this a sweep is not worth the while."""


def hash_of(deliver_id: bytes) -> bytes:
    """What an id is known by: two ids of one partition with the same hash are not to be expected in any lifetime."""
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
        self.lookup = Lookup()

    def __len__(self) -> int:
        """How many places there are of records that have not been sealed."""
        return self._count

    @property
    def must_sweep(self) -> bool:
        """Whether it is time to look what has left."""
        return self._count >= self._sweep_at

    def add(self, id_hash: bytes, place: Position, shift_ms: int = 0) -> None:
        """A record of this id is pending there, so long after it was asked for (:mod:`index.spreading`)."""
        self._count += 1
        if shift_ms:
            self._shifts_ms[place.offset] = shift_ms
            self._longest_shift_ms = max(self._longest_shift_ms, shift_ms)
        insert(self._places, id_hash, place)

    def remove(self, id_hash: bytes, places: Iterable[Position]) -> None:
        """These were cancelled: once nothing brings them back, nobody else can tell any more that they were."""
        gone = set(places)
        self._count -= _remove(self._places, id_hash, gone)
        self.lookup.remove(id_hash, gone)
        self._cancelled.update(place.offset for place in gone)
        if self._frozen:
            self._removed.append((id_hash, gone))

    def find(self, id_hash: bytes, asked_ms: int | None = None) -> list[Position]:
        """Return where records of this id are, or have been; where ``asked_ms`` is given, those asked for then."""
        due = None if asked_ms is None else (asked_ms, asked_ms + self._longest_shift_ms)
        sealed = [place for _, run in self._runs for place in run.find(id_hash, due)]
        sealed += places_of(self.lookup.places, id_hash, due) + places_of(self._frozen, id_hash, due)
        found = [place for place in sealed if place.offset not in self._cancelled]
        found += places_of(self._places, id_hash, due)
        if asked_ms is None:
            return found
        return [place for place in found if place.due_ms - self._shifts_ms.get(place.offset, 0) == asked_ms]

    def latest(self, id_hash: bytes) -> Iterator[Position]:
        """Return where records of this id are, or have been, of each part those due last first."""
        parts: list[Places] = [self._places, self._frozen, self.lookup.places]
        known = [reversed(each) if isinstance(each, list) else [each] for part in parts if (each := part.get(id_hash))]
        found = chain.from_iterable([*known, *(run.latest(id_hash) for _, run in self._runs)])
        return (place for place in found if place.offset not in self._cancelled)

    def let_go(self, id_hash: bytes, gone: Iterable[Position]) -> None:
        """Take out those of these places of an id that are taken out at all before a sweep: they have left."""
        left = set(gone)
        self._count -= _remove(self._places, id_hash, left)
        self.lookup.remove(id_hash, left)

    def asked_ms(self, places: Iterable[Position]) -> dict[int, int]:
        """When these were asked for, by offset, where that is not when they leave."""
        shifts_ms = self._shifts_ms
        return {each.offset: each.due_ms - shifts_ms[each.offset] for each in places if each.offset in shifts_ms}

    def sweep(self, is_pending: Callable[[Position], bool]) -> None:
        """Let go of places that are not pending; O(all of them)."""
        pending = [(each, list(filter(is_pending, places_of(self._places, each)))) for each in self._places]
        self._places = {each: places if len(places) > 1 else places[0] for each, places in pending if places}
        self._count = _count(self._places)
        self._sweep_at = max(FIRST_SWEEP, 2 * self._count)
        self._forget_shifts()

    def freeze(self) -> None:
        """All that were added are being sealed from here on."""
        assert not self._frozen, "being sealed already"
        self._frozen, self._places, self._count, self._removed = self._places, {}, 0, []

    @property
    def frozen(self) -> Places:
        """What is being sealed, with what was cancelled since; another thread may read it, for it does not change."""
        return self._frozen

    @property
    def is_frozen_spread(self) -> bool:
        """Whether some of that leave later than they were asked for, which a page of ids does not tell."""
        frozen = self._frozen
        return bool(self._shifts_ms) and any(
            place.offset in self._shifts_ms for each in frozen for place in places_of(frozen, each)
        )

    def thaw(self) -> None:
        """They are not sealed after all."""
        newer, self._places, self._frozen = self._places, dict(self._frozen), {}
        for id_hash, gone in self._removed:
            _remove(self._places, id_hash, gone)
        self._count = _count(self._places)
        for id_hash in newer:
            for place in places_of(newer, id_hash):
                self.add(id_hash, place)

    def discard_frozen(self) -> None:
        """All of them have left, or lie in pages of a bucket."""
        self._frozen = {}

    def sealed(self, offsets: range) -> None:
        """They lie in a bucket of these offsets, which has no pages."""
        places, self._frozen = self._frozen, {}
        if self._is_asked:
            self.read(offsets, places)
        else:
            self._forget_shifts()

    def ask(self) -> None:
        """From now on keep what is sealed without pages: somebody looks for ids."""
        self._is_asked = True

    def look_up(self, hashes: Iterable[bytes]) -> None:
        """Look for these ids from now on, and no longer for those of before."""
        self.lookup = Lookup(hashes)

    def knows(self, id_hash: bytes, offsets: range) -> bool:
        """Whether it is known which records of this id a bucket of these offsets has."""
        return self.is_known(offsets) or (id_hash in self.lookup and self.lookup.covers(offsets))

    def is_known(self, offsets: range) -> bool:
        """Whether it is known which ids a bucket of these offsets has."""
        return bool(self._known.range_cardinality(offsets.start, offsets.stop) == len(offsets))

    def read(self, offsets: range, *places: AnyPlaces, shifts_ms: Mapping[int, int] = _NONE) -> None:
        """These are all ids of these offsets that a bucket holds; ``shifts_ms`` by offset, as of ``add``."""
        self._known.add_range(offsets.start, offsets.stop)
        self._shifts_ms.update(shifts_ms)
        self._longest_shift_ms = max(self._longest_shift_ms, *shifts_ms.values(), 0)
        runs = [IdRun(each) for each in places if each]
        self._runs += [(offsets, run) for run in runs]
        self._loose += runs

    def take_loose(self) -> list[IdRun]:
        """What is to be made compact, by any thread; it is given once."""
        loose, self._loose = self._loose, []
        return loose

    def forget(self, buckets: Sequence[range], watermark: Position | None) -> None:
        """Let go of what no bucket holds any more; and of what ``watermark`` has passed, where there is one for all."""
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
    """Take out those of these places that are there, and return how many were."""
    known = places.get(id_hash, [])
    before = len(known) if isinstance(known, list) else 1
    kept = without(known if isinstance(known, list) else [known], gone)
    if kept:
        places[id_hash] = kept if len(kept) > 1 else kept[0]
    else:
        places.pop(id_hash, None)
    return before - len(kept)
