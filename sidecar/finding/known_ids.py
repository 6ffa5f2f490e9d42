"""Which offsets of a delay partition have records of an id: remembered by blocks of the log, once each was read.

Records in front of C never change, so what was found in a block stays true until retention removes it, whatever is
sealed or merged meanwhile. What is remembered of each record with an id is a hash of 64 bits and its place in the
block: 10 bytes. Two ids of the same hash do no harm, since whoever asks reads the records that are named.

::

    log     0 .......... 4,096 .......... 8,192 ..... C .........
            ├─ remembered ─┤├─ remembered ─┤├─ read ──────────►
"""

from array import array
from bisect import bisect_left
from collections.abc import Iterable
from hashlib import blake2b
from itertools import takewhile
from typing import Final, NamedTuple

from sidecar.finding.remembered import Remembered

SPAN: Final = 4_096
"""Offsets in a block: what is behind the last whole one is read each time."""

MOST_BYTES: Final = 64 * 1_048_576
"""Of all blocks; what was not asked for longest is forgotten first."""

_HASH_BYTES: Final = 8
_BLOCK_BYTES: Final = 600


class Log(NamedTuple):
    """A delay partition, of the topic of that name which was created under that id."""

    topic: str
    topic_id: str
    partition: int


class _Block(NamedTuple):
    hashes: "array[int]"
    places: "array[int]"

    @property
    def size_bytes(self) -> int:
        return _BLOCK_BYTES + self.hashes.itemsize * len(self.hashes) + self.places.itemsize * len(self.places)


class KnownIds:
    """Of all delay partitions that were looked at; any thread may ask.

    >>> known = KnownIds(span=100)
    >>> log = Log("orders.delay", "a-topic-id", 0)
    >>> known.find(log, 300, b"order-7") is None
    True
    >>> known.note(log, 300, [(b"order-7", 317), (b"order-8", 318)])
    True
    >>> known.find(log, 300, b"order-7"), known.find(log, 300, b"order-9")
    ([317], [])
    """

    def __init__(self, span: int = SPAN, most_bytes: int = MOST_BYTES) -> None:
        self.span = span
        self._blocks = Remembered[tuple[Log, int], _Block](most_bytes)

    def find(self, log: Log, start: int, deliver_id: bytes) -> list[int] | None:
        """Offsets of the block that begins at ``start``, ascending; None when that has to be read."""
        block = self._blocks.get((log, start))
        if block is None:
            return None
        wanted = _hash_of(deliver_id)
        first = bisect_left(block.hashes, wanted)
        same = takewhile(lambda place: block.hashes[place] == wanted, range(first, len(block.hashes)))
        return [start + block.places[place] for place in same]

    def note(self, log: Log, start: int, found: Iterable[tuple[bytes, int]]) -> bool:
        """These are all ids of the block that begins at ``start``, each with its offset; whether there was room."""
        hashed = sorted((_hash_of(deliver_id), offset - start) for deliver_id, offset in found)
        block = _Block(array("Q", [each for each, _ in hashed]), array("H", [place for _, place in hashed]))
        return self._blocks.keep((log, start), block, block.size_bytes)


def _hash_of(deliver_id: bytes) -> int:
    return int.from_bytes(blake2b(deliver_id, digest_size=_HASH_BYTES).digest(), "big")
