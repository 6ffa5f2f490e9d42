"""Manifests and entries for tests, in a short notation."""

from collections.abc import Sequence

from index.buckets.bucket import Bucket, Manifest, Placement, SegmentRef
from index.pending.pending import Entry
from index.pending.progress import BEFORE_ALL, Position

Place = tuple[int, int]


def manifest(
    bucket_id: int, *segments: Sequence[Place], offsets: tuple[int, int] | None = None, needs_from: int | None = None
) -> Manifest:
    """Return a manifest of segments that hold these (due, offset), in release order."""
    held = [offset for segment in segments for _, offset in segment]
    from_offset, to_offset = offsets or (min(held), max(held) + 1)
    return Manifest(bucket_id, from_offset, to_offset, needs_from, tuple(map(ref, segments, range(len(segments)))))


def ref(segment: Sequence[Place], record_offset: int = 0) -> SegmentRef:
    """Return the reference to a segment that holds these (due, offset)."""
    first, last = Position(*segment[0]), Position(*segment[-1])
    return SegmentRef(first, last, len(segment), 100 * len(segment), record_offset, Placement.INLINE)


def bucket(bucket_id: int, *segments: Sequence[Place], loaded_to: Place = BEFORE_ALL) -> Bucket:
    """Return a bucket in which every entry up to ``loaded_to`` is in memory or has left."""
    return Bucket(manifest(bucket_id, *segments), Position(*loaded_to))


def entries(*places: Place) -> list[Entry[str]]:
    """Return entries whose payloads name them."""
    return [(due_ms, offset, f"{due_ms}/{offset}") for due_ms, offset in places]


def places(found: Sequence[Entry[str]]) -> list[Place]:
    """Return (due, offset) of entries, after a check that each has its own payload."""
    assert all(payload == f"{due_ms}/{offset}" for due_ms, offset, payload in found)
    return [(due_ms, offset) for due_ms, offset, _ in found]
