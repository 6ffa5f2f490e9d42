"""Which pending records have which id, for those that are in memory: a 128-bit hash of the id, and where they are due.

Only records with an id are in it. What was cancelled is taken out at once. What has left is not taken out one by one,
since most ids are never asked for: it is swept out when as much has been added as was left by the last sweep, and
whoever asks looks whether a place is pending.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b

from index.progress import Position

HASH_BYTES = 16

FIRST_SWEEP = 1_024
"""With fewer places than this a sweep is not worth the while."""


def hash_of(deliver_id: bytes) -> bytes:
    """What an id is known by: two ids of one partition with the same hash are not to be expected in any lifetime."""
    return blake2b(deliver_id, digest_size=HASH_BYTES).digest()


class Names:
    """Places of records by the hash of their id.

    >>> names = Names()
    >>> names.add(hash_of(b"order-7"), Position(2_000, 5))
    >>> names.find(hash_of(b"order-7"))
    [Position(due_ms=2000, offset=5)]
    """

    def __init__(self) -> None:
        # Nearly every id has one place: a list for each would double what it costs.
        self._places: dict[bytes, Position | list[Position]] = {}
        self._count = 0
        self._sweep_at = FIRST_SWEEP

    def __len__(self) -> int:
        return self._count

    @property
    def must_sweep(self) -> bool:
        """Whether it is time to look what has left."""
        return self._count >= self._sweep_at

    def add(self, id_hash: bytes, place: Position) -> None:
        """A record of this id is pending there."""
        self._count += 1
        known = self._places.setdefault(id_hash, place)
        if known is place:
            return
        if isinstance(known, list):
            known.append(place)
        else:
            self._places[id_hash] = [known, place]

    def remove(self, id_hash: bytes, places: Iterable[Position]) -> None:
        """These were cancelled: once nothing brings them back, nobody else can tell any more that they were."""
        gone = set(places)
        known = self.find(id_hash)
        kept = [place for place in known if place not in gone]
        self._count -= len(known) - len(kept)
        if kept:
            self._places[id_hash] = kept if len(kept) > 1 else kept[0]
        else:
            self._places.pop(id_hash, None)

    def find(self, id_hash: bytes) -> list[Position]:
        """Where records of this id are, or have been."""
        known = self._places.get(id_hash, [])
        return list(known) if isinstance(known, list) else [known]

    def sweep(self, is_pending: Callable[[Position], bool]) -> None:
        """Let go of places that are not pending; O(all of them)."""
        kept = [(each, [place for place in self.find(each) if is_pending(place)]) for each in self._places]
        self._places = {each: places if len(places) > 1 else places[0] for each, places in kept if places}
        self._count = sum(len(places) for _, places in kept)
        self._sweep_at = max(FIRST_SWEEP, 2 * self._count)

    def within(self, offsets: range) -> Iterable[tuple[bytes, Position]]:
        """Hash and place of each record at these offsets, by hash: what the pages of a bucket hold."""
        found = [(each, place) for each in self._places for place in self.find(each) if place.offset in offsets]
        return sorted(found)

    def check(self) -> None:
        """Assert every invariant."""
        assert self._count == sum(len(self.find(each)) for each in self._places)
        assert all(len(each) == HASH_BYTES for each in self._places)
        assert all(len(known) > 1 for known in self._places.values() if isinstance(known, list))
