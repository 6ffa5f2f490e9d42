"""Which ids the records of a bucket have, as it is stored: rows sorted by the hash of the id, cut into pages.

::

    row     hash of the id │ due ms │ offset       16, 8 and 8 bytes, big-endian: so rows sort as bytes
    first   00…  3f…  7a…  7a…  c1…                the first hash of each page, which the manifest has
    find 7a…     └────┴────┘                       it may end the page before the first one that begins with it
    find 80…               └──┘

To find an id only those pages are read that may have it: one, as a rule. A page is kept as it is stored, and searched
so. What it says is where a record of an id was when the bucket was made: whoever asks looks whether that is pending.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from struct import Struct
from typing import Final, NamedTuple

from index.id_runs import HASH_BYTES, Places, places_of
from index.progress import Position

ROW_BYTES: Final = 32
LEAST_ROWS: Final = 1_024
"""Of a page as a rule: 32 KiB, which is read for one id."""

PAGE_ROWS: Final = 8_192
"""No page has more: it is one record."""

ENOUGH_PAGES: Final = 4_000
"""Rather larger pages than more of them, since each costs 24 bytes of the manifest."""

MAX_PAGES: Final = 8_000
"""Of a bucket, since its manifest is one record. Where there would be more, it is not written which ids it has: from 65
million on."""

_PARTS: Final = 256
_ROW: Final = Struct(">16sQQ")
_PLACE: Final = Struct(">QQ")


class IdPageRef(NamedTuple):
    """What a manifest says of one page: its first hash, and where its record is in the snapshots topic."""

    first_hash: bytes
    rows: int
    size_bytes: int
    record_offset: int


def rows_in_order(places: Places) -> Iterator[bytes]:
    """A row for each of these places, sorted; in parts, since whoever sorts a million at once holds up all threads."""
    parts: list[list[bytes]] = [[] for _ in range(_PARTS)]
    for id_hash in places:
        parts[id_hash[0]].append(id_hash)
    for part in parts:
        part.sort()
        for id_hash in part:
            for due_ms, offset in sorted(places_of(places, id_hash)):
                yield _ROW.pack(id_hash, due_ms, offset)


def rows_of_a_page(rows: int) -> int:
    """How many rows each page of a bucket has of which there are about so many.

    >>> rows_of_a_page(20), rows_of_a_page(10_000_000), rows_of_a_page(90_000_000)
    (1024, 2500, 8192)
    """
    return min(max(LEAST_ROWS, -(-rows // ENOUGH_PAGES)), PAGE_ROWS)


def cut_rows(rows: Iterable[bytes], page_rows: int) -> Iterator[bytes]:
    """Sorted rows joined to pages."""
    left = iter(rows)
    return iter(lambda: b"".join(islice(left, page_rows)), b"")


def rows_of(page: bytes) -> Iterator[bytes]:
    """The rows of a page."""
    return (page[at : at + ROW_BYTES] for at in range(0, len(page), ROW_BYTES))


def place_in(row: bytes) -> Position:
    """Where the record of a row is."""
    return Position(*_PLACE.unpack_from(row, HASH_BYTES))


def place_bytes(place: Position) -> bytes:
    """What a row has behind the hash: bytes that compare as places do; none where nothing can come before it."""
    if place.due_ms < 0 or place.offset < 0:
        return b"" if place.due_ms < 0 else _PLACE.pack(place.due_ms, 0)[:-1]
    return _PLACE.pack(*place)


def places_in(page: bytes, id_hash: bytes) -> list[Position]:
    """Where a page says that records of an id are.

    >>> page = b"".join(rows_in_order({b"b" * 16: [Position(7, 2), Position(6, 9)], b"a" * 16: Position(5, 1)}))
    >>> places_in(page, b"b" * 16), places_in(page, b"c" * 16)
    ([Position(due_ms=6, offset=9), Position(due_ms=7, offset=2)], [])
    """
    low, high = 0, len(page) // ROW_BYTES
    while low < high:
        middle = (low + high) // 2
        at = middle * ROW_BYTES
        if page[at : at + HASH_BYTES] < id_hash:
            low = middle + 1
        else:
            high = middle
    at = low * ROW_BYTES
    found: list[Position] = []
    while page[at : at + HASH_BYTES] == id_hash:
        found.append(Position(*_PLACE.unpack_from(page, at + HASH_BYTES)))
        at += ROW_BYTES
    return found


def pages_with(pages: Sequence[IdPageRef], hashes: Iterable[bytes]) -> dict[int, list[bytes]]:
    """Which of these pages may have some of these hashes, by number, and which; ascending.

    >>> pages = [IdPageRef(first, 1, 9, 0) for first in (b"0", b"3", b"7", b"7", b"c")]
    >>> pages_with(pages, [b"7", b"8"]), pages_with(pages, [b"!"])
    ({1: [b'7'], 2: [b'7'], 3: [b'7', b'8']}, {})
    """
    firsts = [page.first_hash for page in pages]
    wanted: dict[int, list[bytes]] = {}
    for id_hash in hashes:
        for number in range(max(bisect_left(firsts, id_hash) - 1, 0), bisect_right(firsts, id_hash)):
            wanted.setdefault(number, []).append(id_hash)
    return dict(sorted(wanted.items()))


def are_rows(page: bytes) -> bool:
    """Whether these bytes are rows in order, one at least."""
    if not page or len(page) % ROW_BYTES:
        return False
    return all(one < two for one, two in pairwise(rows_of(page)))
