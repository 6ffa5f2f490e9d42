"""Pages of ids in the snapshots topic, beside the segments of their bucket: see :mod:`index.named.id_pages`.

A page is one record, its rows as they are. A reader that does not know rows with shifts finds a page without rows,
which it refuses, and reads the segments instead. The manifest tells whether a record is the page it means, as with a
segment.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from index.errors import FormatError
from index.named.id_pages import (
    LEAST_ROWS,
    MAX_PAGES,
    PAGE_ROWS,
    SHIFTED_ROW_BYTES,
    IdPageRef,
    IdRows,
    are_rows,
    cut_rows,
    rows_of_a_page,
)
from index.named.places import HASH_BYTES
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import state_pb2


class EncodedPage(NamedTuple):
    """A page that only has to be written; its record offset is known when it is."""

    ref: IdPageRef
    value: bytes


def id_page_key(bucket_id: int, number: int) -> bytes:
    """Key of page ``number``, from 0, of a bucket in the snapshots topic; no segment has it."""
    return b"%020d/id/%06d" % (bucket_id, number)


def encode_page(page: IdRows) -> EncodedPage:
    """Encode rows as the record of a page; FormatError when they are no page, or over the cap."""
    _check(page)
    joined, has_shifts = page.joined, page.row_bytes == SHIFTED_ROW_BYTES
    message = state_pb2.IdPage(shifted_rows=joined) if has_shifts else state_pb2.IdPage(rows=joined)
    value = wrap(Kind.IDS, message.SerializeToString())
    return EncodedPage(IdPageRef(joined[:HASH_BYTES], page.row_count, len(value), -1), value)


def encode_pages(rows: Iterable[bytes], count: int, least_rows: int = LEAST_ROWS) -> Iterator[EncodedPage]:
    """Yield the pages of sorted rows, of which there are about ``count``."""
    return map(encode_page, cut_rows(rows, rows_of_a_page(count, least_rows)))


def parse_page(value: bytes) -> IdRows:
    """Decode the rows of any page; FormatError when it cannot be trusted."""
    message = state_pb2.IdPage()
    try:
        message.ParseFromString(unwrap(Kind.IDS, value))
    except DecodeError as error:
        raise FormatError(f"page of ids: {error}") from error
    page = IdRows(message.shifted_rows, SHIFTED_ROW_BYTES) if message.shifted_rows else IdRows(message.rows)
    _check(page)
    return page


def decode_page(ref: IdPageRef, value: bytes | None) -> IdRows:
    """Decode the rows of the page that a manifest names; FormatError when it is missing, or another page."""
    if value is None:
        raise FormatError(f"the snapshots topic has nothing that can be read at offset {ref.record_offset}")
    page = parse_page(value)
    if page.joined[:HASH_BYTES] != ref.first_hash or page.row_count != ref.rows:
        raise FormatError("it is not the page of ids that the manifest names")
    return page


class IdPageWriter:
    """Numbers the pages of one bucket and collects their references for its manifest."""

    def __init__(self, bucket_id: int, max_pages: int = MAX_PAGES) -> None:
        self._bucket_id = bucket_id
        self._max_pages = max_pages
        self._written: list[IdPageRef] = []

    def keyed(self, pages: Sequence[EncodedPage]) -> tuple[tuple[bytes, bytes], ...]:
        """Return the next pages as (key, value)."""
        first = len(self._written)
        return tuple((id_page_key(self._bucket_id, number), value) for number, (_, value) in enumerate(pages, first))

    def written(self, pages: Sequence[EncodedPage], record_offsets: Sequence[int]) -> None:
        """Note the offsets of the snapshots topic at which these pages were committed."""
        written = zip(pages, record_offsets, strict=True)
        self._written += [page.ref._replace(record_offset=offset) for page, offset in written]

    def refs(self) -> tuple[IdPageRef, ...] | None:
        """Return the references for the manifest; None when a manifest cannot hold so many."""
        return tuple(self._written) if len(self._written) <= self._max_pages else None


def _check(page: IdRows) -> None:
    if page.row_count > PAGE_ROWS or not are_rows(page):
        raise FormatError(f"page of ids of {len(page.joined)} bytes, which are not 1 to {PAGE_ROWS} rows in order")
