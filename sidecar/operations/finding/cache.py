"""Caches of the finder: parts of Kafka that one page has read and the next page need not read again.

Every cache is bounded, forgets the entry that was used longest ago first, and may be used by any thread.
"""

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from typing import Final, Generic, NamedTuple, TypeVar

from index.buckets.bucket import Manifest, SegmentRef
from index.errors import FormatError
from index.named.id_pages import IdPage, IdPageRef
from sidecar.engine.ports import Stored
from snapshots.segments.manifest import decode_manifest
from snapshots.segments.segment import StoredEntry
from snapshots.state.state import ManifestOf

MIB: Final = 1_048_576
MOST_BLOCK_BYTES: Final = 64 * MIB
MOST_STATE_BYTES: Final = 128 * MIB
MOST_PAGE_BYTES: Final = 64 * MIB
MOST_ENTRIES: Final = 20_000
"""Bound on the entries of all cached segments. A page of 500 ends within a segment, and the next page goes on there."""

SPAN: Final = 4_096
"""Offsets in a block of ids. The offsets behind the last whole block are read each time."""

_HASH_BYTES: Final = 8
_BLOCK_BYTES: Final = 600
_RECORD_BYTES: Final = 200
_SEGMENT_BYTES: Final = 600
_PAGE_BYTES: Final = 200

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class Cache(Generic[K, V]):
    """Values by key, at most ``most`` in size together.

    >>> cache = Cache[str, bytes](most=3)
    >>> cache.keep("a", b"12", size=2), cache.keep("b", b"34", size=2)
    (True, False)
    >>> cache.get("a"), cache.get("b")
    (None, b'34')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._known: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """Return the value, which now counts as used last; None where there is none."""
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return None
            self._known.move_to_end(key)
            return found[0]

    def keep(self, key: K, value: V, size: int) -> bool:
        """Store a value, and say whether there was room for it without forgetting another one.

        A value that is larger than the whole cache is kept alone.
        """
        with self._lock:
            before = self._known.pop(key, None)
            self._size += size - (0 if before is None else before[1])
            self._known[key] = value, size
            has_room = self._size <= self._most
            while self._size > self._most and len(self._known) > 1:
                self._size -= self._known.popitem(last=False)[1][1]
            return has_room

    def forget(self, key: K) -> None:
        """Remove a value, if it is there."""
        with self._lock:
            before = self._known.pop(key, None)
            self._size -= 0 if before is None else before[1]


class Incarnation(NamedTuple):
    """A delay topic, with the ids under which it and its state topic were created."""

    topic: str
    topic_id: str | None
    state_id: str | None


class Log(NamedTuple):
    """A delay partition of the topic that was created under ``topic_id``."""

    topic: str
    topic_id: str
    partition: int


class _Block(NamedTuple):
    hashes: "array[int]"
    places: "array[int]"

    @property
    def size_bytes(self) -> int:
        return _BLOCK_BYTES + self.hashes.itemsize * len(self.hashes) + self.places.itemsize * len(self.places)


class IdBlocks:
    """Offsets of the records of each id, by block of the delay partition.

    Records in front of C never change, so a block stays true until retention removes it, through all seals and merges.
    A block stores 10 bytes for each record with an id: a hash of 64 bits, and the place in the block. Two ids of the
    same hash do no harm, since the caller reads the records that are named.

    ::

        log     0 .......... 4,096 .......... 8,192 ..... C .........
                ├── cached ───┤├── cached ────┤├─ read ──────────►

    >>> blocks = IdBlocks(span=100)
    >>> log = Log("orders.delay", "a-topic-id", 0)
    >>> blocks.find(log, 300, b"order-7") is None
    True
    >>> blocks.note(log, 300, [(b"order-7", 317), (b"order-8", 318)])
    True
    >>> blocks.find(log, 300, b"order-7"), blocks.find(log, 300, b"order-9")
    ([317], [])
    """

    def __init__(self, span: int = SPAN, most_bytes: int = MOST_BLOCK_BYTES) -> None:
        self.span = span
        self._blocks = Cache[tuple[Log, int], _Block](most_bytes)

    def find(self, log: Log, start: int, deliver_id: bytes) -> list[int] | None:
        """Return the offsets of an id in the block that begins at ``start``, ascending; None: the block is unknown."""
        block = self._blocks.get((log, start))
        if block is None:
            return None
        wanted = _hash_of(deliver_id)
        first = bisect_left(block.hashes, wanted)
        same = takewhile(lambda place: block.hashes[place] == wanted, range(first, len(block.hashes)))
        return [start + block.places[place] for place in same]

    def note(self, log: Log, start: int, found: Iterable[tuple[bytes, int]]) -> bool:
        """Store all ids of the block that begins at ``start`` with their offsets, and say whether there was room."""
        hashed = sorted((_hash_of(deliver_id), offset - start) for deliver_id, offset in found)
        block = _Block(array("Q", [each for each, _ in hashed]), array("H", [place for _, place in hashed]))
        return self._blocks.keep((log, start), block, block.size_bytes)


def _hash_of(deliver_id: bytes) -> int:
    return int.from_bytes(blake2b(deliver_id, digest_size=_HASH_BYTES).digest(), "big")


Manifests = dict[tuple[bytes, bytes], Manifest]
"""Decoded manifests by key and value in the state topic."""

ReadSince = Callable[[int], tuple[Iterable[Stored], int]]
"""Reads a state partition from an offset up to the first open transaction; also returns the offset of that end."""

Fold = Callable[[Iterable[tuple[bytes | None, bytes | None]], ManifestOf], T]
"""Makes a state of the last value of each key, as :func:`snapshots.state.state.fold_state` does."""


class _State(NamedTuple):
    latest: dict[bytes | None, bytes]
    manifests: Manifests
    read_to: int

    @property
    def size_bytes(self) -> int:
        records = sum(_RECORD_BYTES + len(key or b"") + len(value) for key, value in self.latest.items())
        return records + sum(
            _SEGMENT_BYTES * len(each.segments) + _PAGE_BYTES * len(each.id_pages or ())
            for each in self.manifests.values()
        )


_UNREAD: Final = _State({}, {}, 0)


class States:
    """The last value of each key of state partitions, with the manifests decoded.

    Reading again costs only the new records. A state topic grows with every transaction until it is compacted, to
    hundreds of megabytes where much was cancelled, while the last values are small. With ten million pending records
    the manifests take longer to decode than an id takes to find, and no other thread runs meanwhile.
    """

    def __init__(self, most_bytes: int = MOST_STATE_BYTES) -> None:
        self._known = Cache[Hashable, _State](most_bytes)

    def folded(self, place: Hashable, read: ReadSince, fold: Fold[T]) -> T:
        """Return the state at a place; where ``fold`` refuses it, read the partition from its beginning once more.

        A removed key leaves a tombstone for as long as the topic keeps it, ten minutes as ``init`` creates the topic. A
        caller that comes back later may have a key cached that the progress does not know any more.
        """
        known = self._known.get(place)
        if known is not None:
            try:
                return self._read_on(place, known, read, fold)
            except FormatError:
                self._known.forget(place)
        return self._read_on(place, _UNREAD, read, fold)

    def _read_on(self, place: Hashable, known: _State, read: ReadSince, fold: Fold[T]) -> T:
        latest = dict(known.latest)
        records, read_to = read(known.read_to)
        for _, key, value in records:
            # A changed key moves to the end: the order is that of the log.
            latest.pop(key, None)
            if value is not None:
                latest[key] = value
        manifests: Manifests = {}
        made = fold(latest.items(), partial(_manifest, known.manifests, manifests))
        state = _State(latest, manifests, read_to)
        self._known.keep(place, state, state.size_bytes)
        return made


def _manifest(before: Manifests, now: Manifests, key: bytes, value: bytes) -> Manifest:
    """Decode a manifest, unless it was decoded before, and note it in ``now``."""
    manifest = before.get((key, value)) or decode_manifest(key, value)
    now[key, value] = manifest
    return manifest


@dataclass(frozen=True, slots=True)
class FinderCaches:
    """All caches of one finder.

    Pages and segments are keyed by all that the manifest says of them, so that a topic which was created again has
    others.
    """

    states: States = field(default_factory=States)
    blocks: IdBlocks = field(default_factory=IdBlocks)
    pages: Cache[tuple[Incarnation, int, IdPageRef], IdPage] = field(default_factory=lambda: Cache(MOST_PAGE_BYTES))
    segments: Cache[tuple[Incarnation, int, SegmentRef], Sequence[StoredEntry]] = field(
        default_factory=lambda: Cache(MOST_ENTRIES)
    )
