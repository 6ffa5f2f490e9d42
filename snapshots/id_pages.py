"""Which ids the records of a bucket have: sorted pages in the snapshots topic, beside its segments.

A page has the places of some ids, by hash; the *fence* of a page is its first hash. To find an id, only the pages are
read whose fences say that they may have it: one, as a rule, and more where so many records have it that they fill
pages::

    fences     00…  3f…  7a…  7a…  c1…
    find 7a…        └────┴────┘           it may end the page before the first fence that equals it
    find 80…                  └──┘

An entry costs 16 bytes of hash, and about as much as in a pointer segment for offset and due time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from index.errors import FormatError
from index.id_runs import HASH_BYTES
from index.progress import Position
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2

PAGE_ENTRIES: Final = 4_096
"""Of a page: some 120 kB, which is read for one id, and 2,500 fences for ten million records with an id."""

_MAX_NUMBER: Final = 2**63 - 1

Named = tuple[bytes, Position]
"""The hash of an id, and where a record of it is."""


class Page(NamedTuple):
    """A page as it is written; ``fence`` is its first hash."""

    fence: bytes
    value: bytes


def id_page_key(bucket_id: int, number: int) -> bytes:
    """Key of page ``number``, from 0, of a bucket in the snapshots topic; no segment has it."""
    return b"%020d/id/%06d" % (bucket_id, number)


def encode_pages(bucket_id: int, named: Sequence[Named], page_entries: int = PAGE_ENTRIES) -> Iterator[Page]:
    """Cut what is sorted by hash and place into pages."""
    for number, start in enumerate(range(0, len(named), page_entries)):
        page = named[start : start + page_entries]
        message = state_pb2.IdPage(
            bucket_id=bucket_id,
            number=number,
            hashes=b"".join(id_hash for id_hash, _ in page),
            dues_ms=[place.due_ms for _, place in page],
            offsets=[place.offset for _, place in page],
        )
        yield Page(page[0][0], wrap(Kind.IDS, message.SerializeToString()))


def decode_page(key: bytes, value: bytes) -> list[Named]:
    """What a page holds, by hash and place; FormatError names the key of one that cannot be trusted."""
    try:
        message, named = parse_page(value)
        if key != id_page_key(message.bucket_id, message.number):
            raise FormatError(f"holds page {message.number} of bucket {message.bucket_id}")  # noqa: TRY301 -- named below
    except FormatError as error:
        raise FormatError(f"record {key!r} of the snapshots topic: {error}") from error
    return named


def parse_page(value: bytes) -> tuple[state_pb2.IdPage, list[Named]]:
    """A page and what it holds, whatever its key; FormatError when it cannot be trusted."""
    message = state_pb2.IdPage()
    try:
        message.ParseFromString(unwrap(Kind.IDS, value))
    except DecodeError as error:
        raise FormatError(f"page of ids: {error}") from error
    dues_ms, offsets, hashes = message.dues_ms, message.offsets, message.hashes
    if not offsets or len(offsets) != len(dues_ms) or len(hashes) != HASH_BYTES * len(offsets):
        raise FormatError(f"page of {len(hashes)} bytes of ids, {len(dues_ms)} due times and {len(offsets)} offsets")
    if message.number < 0 or message.bucket_id < 0 or max(*dues_ms, *offsets) > _MAX_NUMBER:
        raise FormatError("page with a number that is over the limit")
    starts = range(0, len(hashes), HASH_BYTES)
    places = map(Position, dues_ms, offsets)
    named = [(hashes[at : at + HASH_BYTES], place) for at, place in zip(starts, places, strict=True)]
    if any(one >= two for one, two in pairwise(named)):
        raise FormatError("page whose ids are not in order")
    return message, named


def pages_of(id_hash: bytes, fences: Sequence[bytes]) -> range:
    """Numbers of the pages that may have an id; ``fences`` are those of all pages, in order.

    >>> list(pages_of(b"7", [b"0", b"3", b"7", b"7", b"c"])), list(pages_of(b"8", [b"0", b"3", b"7", b"7", b"c"]))
    ([1, 2, 3], [3])
    """
    return range(max(bisect_left(fences, id_hash) - 1, 0), bisect_right(fences, id_hash))


def places_in(named: Sequence[Named], id_hash: bytes) -> list[Position]:
    """Where a page says that records of an id are."""
    start = bisect_left(named, (id_hash,))
    end = bisect_right(named, id_hash, key=lambda each: each[0])
    return [place for _, place in named[start:end]]
