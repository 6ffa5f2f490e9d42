"""Columns of a manifest that describe the pages of ids of its bucket; some 24 bytes a page."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from operator import sub

from index.errors import FormatError
from index.named.id_pages import MAX_PAGES, PAGE_ROWS, IdPageRef
from index.named.places import HASH_BYTES
from snapshots.proto import state_pb2

_MAX_NUMBER = 2**63 - 1


def id_columns(pages: Sequence[IdPageRef]) -> state_pb2.IdPages:
    """Encode the pages as a message."""
    record_offsets = [page.record_offset for page in pages]
    return state_pb2.IdPages(
        first_hashes=b"".join(page.first_hash for page in pages),
        rows=[page.rows for page in pages],
        sizes=[page.size_bytes for page in pages],
        record_offset_deltas=map(sub, record_offsets, [0, *record_offsets]),
    )


def id_pages_of(message: state_pb2.IdPages) -> tuple[IdPageRef, ...]:
    """Decode the pages of a message, unchecked; FormatError when its columns do not fit together."""
    count = len(message.rows)
    lengths = {count, len(message.sizes), len(message.record_offset_deltas)}
    if len(lengths) > 1 or len(message.first_hashes) != HASH_BYTES * count or count > MAX_PAGES:
        raise FormatError(f"pages of ids in columns that are not equally long, or over {MAX_PAGES}")
    return tuple(_pages(message))


def check_id_pages(pages: Sequence[IdPageRef]) -> None:
    """FormatError when they contradict each other, or are over a cap."""
    if len(pages) > MAX_PAGES:
        raise FormatError(f"bucket of {len(pages)} pages of ids; up to {MAX_PAGES} are possible")
    for number, page in enumerate(pages):
        if len(page.first_hash) != HASH_BYTES or not 0 < page.rows <= PAGE_ROWS:
            raise FormatError(f"page {number} of ids has {page.rows} rows; 1 to {PAGE_ROWS} are possible")
        for name, amount in (("size", page.size_bytes), ("record offset", page.record_offset)):
            if not 0 <= amount <= _MAX_NUMBER:
                raise FormatError(f"page {number} of ids has {name} {amount}")
    for number, (page, following) in enumerate(pairwise(pages)):
        if page.first_hash > following.first_hash:
            raise FormatError(f"page {number} of ids begins behind the next one")


def _pages(message: state_pb2.IdPages) -> Iterator[IdPageRef]:
    hashes, offsets = message.first_hashes, accumulate(message.record_offset_deltas)
    columns = zip(message.rows, message.sizes, offsets, strict=True)
    for number, (rows, size_bytes, record_offset) in enumerate(columns):
        at = number * HASH_BYTES
        yield IdPageRef(hashes[at : at + HASH_BYTES], rows, size_bytes, record_offset)
