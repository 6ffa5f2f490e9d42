"""Where records of an id wait in buckets, by the pages of ids that are stored with those; see :mod:`index.id_pages`."""

from collections.abc import Callable
from typing import NamedTuple

from index.bucket import Manifest
from index.id_pages import IdPage, IdPageRef, Sought
from index.names import hash_of
from index.progress import Position
from snapshots.state import StoredState

ReadPage = Callable[[IdPageRef], IdPage | None]
"""A page; None when it is there no more, or not to be trusted."""


class InBucket(NamedTuple):
    """Where a record waits."""

    place: Position
    bucket: Manifest


def places_in_buckets(state: StoredState, deliver_id: bytes, from_offset: int, read: ReadPage) -> list[InBucket] | None:
    """Where records of an id wait in buckets from an offset on, by offset; None where that is not known of a bucket.

    What was cancelled or is held is among them.
    """
    sought = Sought([hash_of(deliver_id)])
    found: list[InBucket] = []
    for bucket in state.buckets:
        if bucket.id_pages is None:
            return None
        watermark = state.progress.watermark_of(bucket.bucket_id)
        for number, numbers in sought.in_pages(bucket.id_pages):
            page = read(bucket.id_pages[number])
            if page is None:
                return None
            places = (place for _, place in page.find(sought, numbers) if place > watermark)
            found += [InBucket(place, bucket) for place in places if place.offset in bucket.offsets]
    return sorted((each for each in found if each.place.offset >= from_offset), key=lambda each: each.place.offset)
