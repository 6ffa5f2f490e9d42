"""The ids of the records of a bucket, as stored: rows sorted by the hash of the id, cut into pages.

::

    row     hash of the id │ due ms │ offset       16, 8 and 8 bytes, big-endian: so rows sort as bytes
    first   00…  3f…  7a…  7a…  c1…                the first hash of each page, which the manifest has
    find 7a…     └────┴────┘                       it may end the page before the first one that begins with it
    find 80…               └──┘

A control names the time that was requested, and a spread makes a record due later (:mod:`index.rules.spreading`). So
the row of such a record ends with its shift, in 4 more bytes. All rows of a page are equally long: where one has a
shift, the others have the shift 0. A topic without a spread has no such page.

Only the pages that may hold an id are read to find it: one, as a rule. A page is kept and searched in its stored form.
It gives the place of the record of an id when the bucket was made: the caller checks whether that record is pending.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from index.named.places import HASH_BYTES, NO_SHIFTS, Places, Shifts, places_of
from index.pending.progress import Position

ROW_BYTES: Final = 32
SHIFTED_ROW_BYTES: Final = 36
"""Bytes of each row of a page with shifts."""

LEAST_ROWS: Final = 1_024
"""Rows of a page as a rule: 32 KiB, which are read for one id."""

PAGE_ROWS: Final = 8_192
"""Most rows of a page: it is one record."""

ENOUGH_PAGES: Final = 4_000
"""Beyond this number pages become larger rather than more, because each page costs 24 bytes of the manifest."""

MAX_PAGES: Final = 8_000
"""Most pages of a bucket, because its manifest is one record. A bucket that would need more has no pages at all: from
65 million ids on."""

_PARTS: Final = 256
_ROW: Final = Struct(">16sQQ")
_PLACE: Final = Struct(">QQ")
_LEAD: Final = Struct(">Q")
_SHIFT: Final = Struct(">I")
_LEADS: Final = {ROW_BYTES: Struct(">Q24x"), SHIFTED_ROW_BYTES: Struct(">Q28x")}

FoundId: TypeAlias = tuple[bytes, Position, int]
"""The hash of an id, the place of its record, and the shift of the record, 0 where it has none."""


class IdPageRef(NamedTuple):
    """The reference to one page in a manifest: its first hash, and the place of its record in the snapshots topic."""

    first_hash: bytes
    rows: int
    size_bytes: int
    record_offset: int


class IdRows(NamedTuple):
    """The rows of one page, joined."""

    joined: bytes
    row_bytes: int = ROW_BYTES

    @property
    def row_count(self) -> int:
        """The number of rows."""
        return len(self.joined) // self.row_bytes


def row(id_hash: bytes, due_ms: int, offset: int, shift_ms: int = 0) -> bytes:
    """Encode the row of one record with an id; it ends with the shift of the record, if that is not 0."""
    plain = _ROW.pack(id_hash, due_ms, offset)
    return plain + _SHIFT.pack(shift_ms) if shift_ms else plain


def rows_in_order(places: Places, shifts_ms: Shifts = NO_SHIFTS) -> Iterator[bytes]:
    """Yield a row for each place, sorted; in parts, because sorting a million at once holds up all threads."""
    parts: list[list[bytes]] = [[] for _ in range(_PARTS)]
    for id_hash in places:
        parts[id_hash[0]].append(id_hash)
    for part in parts:
        part.sort()
        for id_hash in part:
            for due_ms, offset in sorted(places_of(places, id_hash)):
                yield row(id_hash, due_ms, offset, shifts_ms.get(offset, 0))


def rows_of_a_page(rows: int, least_rows: int = LEAST_ROWS) -> int:
    """Return the number of rows of each page for a bucket with about so many rows.

    >>> rows_of_a_page(20), rows_of_a_page(10_000_000), rows_of_a_page(90_000_000)
    (1024, 2500, 8192)
    """
    return min(max(least_rows, -(-rows // ENOUGH_PAGES)), PAGE_ROWS)


def cut_rows(rows: Iterable[bytes], page_rows: int) -> Iterator[IdRows]:
    """Join sorted rows to pages."""
    left = iter(rows)
    while some := list(islice(left, page_rows)):
        yield join_rows(some)


def join_rows(rows: Sequence[bytes]) -> IdRows:
    """Join sorted rows to one page.

    >>> plain, shifted = row(b"a" * 16, 5, 1), row(b"b" * 16, 9, 2, 3)
    >>> join_rows([plain]).row_bytes, join_rows([plain, shifted]).row_bytes
    (32, 36)
    """
    joined = b"".join(rows)
    if len(joined) == ROW_BYTES * len(rows):
        return IdRows(joined)
    return IdRows(b"".join([each.ljust(SHIFTED_ROW_BYTES, b"\0") for each in rows]), SHIFTED_ROW_BYTES)


def rows_of(page: IdRows) -> Iterator[bytes]:
    """Yield the rows of a page."""
    joined, row_bytes = page
    return (joined[at : at + row_bytes] for at in range(0, len(joined), row_bytes))


def place_in(one_row: bytes) -> Position:
    """Return the place of the record of a row."""
    return Position(*_PLACE.unpack_from(one_row, HASH_BYTES))


def shift_in(one_row: bytes) -> int:
    """Return the shift of the record of a row, 0 where it has none."""
    return int.from_bytes(one_row[ROW_BYTES:], "big")


def place_bytes(place: Position) -> bytes:
    """Encode a place as in a row, where bytes compare as places do; return b"" for the place before all."""
    if place.due_ms < 0 or place.offset < 0:
        return b"" if place.due_ms < 0 else _PLACE.pack(place.due_ms, 0)[:-1]
    return _PLACE.pack(*place)


class Sought:
    """Ids that are looked for, by hash; sorted, so that each page is searched for a run of them."""

    def __init__(self, hashes: Iterable[bytes]) -> None:
        self.hashes = sorted(hashes)
        self.leads = [_LEAD.unpack_from(id_hash)[0] for id_hash in self.hashes]

    @property
    def all(self) -> range:
        """The numbers of all ids."""
        return range(len(self.hashes))

    def in_pages(self, pages: Sequence[IdPageRef]) -> Iterator[tuple[int, range]]:
        """Yield the numbers of the pages that may have some of the ids, each with the range of these ids; ascending.

        >>> pages = [IdPageRef(first * 16, 1, 9, 0) for first in (b"0", b"3", b"7", b"7", b"c")]
        >>> list(Sought([b"8" * 16, b"7" * 16]).in_pages(pages)), list(Sought([b"!" * 16]).in_pages(pages))
        ([(1, range(0, 1)), (2, range(0, 1)), (3, range(0, 2))], [])
        """
        for number, page in enumerate(pages):
            begin = bisect_left(self.hashes, page.first_hash)
            is_last = number + 1 == len(pages)
            end = len(self.hashes) if is_last else bisect_right(self.hashes, pages[number + 1].first_hash)
            if begin < end:
                yield number, range(begin, end)


class IdPage:
    """A page that can be searched.

    >>> rows = rows_in_order({b"b" * 16: [Position(7, 2), Position(6, 9)], b"a" * 16: Position(5, 1)}, {2: 4})
    >>> list(IdPage(join_rows([*rows])).find(Sought([b"b" * 16, b"c" * 16]), range(2)))
    [(b'bbbbbbbbbbbbbbbb', Position(due_ms=6, offset=9), 0), (b'bbbbbbbbbbbbbbbb', Position(due_ms=7, offset=2), 4)]
    """

    __slots__ = ("_leads", "_row_bytes", "_rows")

    def __init__(self, rows: IdRows) -> None:
        self._rows, self._row_bytes = rows
        # The first half of each hash. Bisecting numbers needs no Python call for each comparison, and nearly all hashes
        # that are looked for in a page are not there.
        self._leads = array("Q", [lead for (lead,) in _LEADS[self._row_bytes].iter_unpack(self._rows)])

    @property
    def size_bytes(self) -> int:
        """Bytes that the page takes in memory."""
        return len(self._rows) + self._leads.itemsize * len(self._leads)

    def find(self, sought: Sought, numbers: range) -> Iterator[FoundId]:
        """Yield each of the ids of these numbers that is found."""
        leads, count, wanted, row_bytes = self._leads, len(self._leads), sought.leads, self._row_bytes
        for number in numbers:
            lead = wanted[number]
            at = bisect_left(leads, lead)
            while at < count and leads[at] == lead:
                one_row = self._rows[at * row_bytes : (at + 1) * row_bytes]
                if one_row[:HASH_BYTES] == sought.hashes[number]:
                    yield sought.hashes[number], place_in(one_row), shift_in(one_row)
                at += 1


def are_rows(page: IdRows) -> bool:
    """Return whether these bytes are rows in order, one at least."""
    if not page.joined or len(page.joined) % page.row_bytes:
        return False
    return all(one < two for one, two in pairwise(rows_of(page)))
