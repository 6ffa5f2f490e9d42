"""What must be kept of the delay topic and of the snapshots topic, said by committed progress and manifests alone.

::

    delay topic       ░░░░░░░░│ pointed at │ sealed inline │ [S, C) in memory │ not indexed
                              ▲ the lowest pointer, else S
    snapshots topic   ░░░░░░░░│ live segments, and pages of ids ... │ those of a seal or merge that is under way
                              ▲ the lowest live one

Neither ever moves back, not even across owners: a segment written later lies behind all that were known before, and
what an older owner still believes in is at or before what a newer one needs. So an owner that was fenced without
noticing may trim by what it knows and does no harm.

Beside that, others need something while they build buckets that are to be adopted (:class:`Kept`): what they have
staged, and what they are about to write, from where on they say beforehand. Who trims decides first up to where, and
asks then: what a job writes that nobody had heard of by then lies behind.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from index.bucket import Bucket, Manifest
from index.progress import Position, Progress


class Kept(NamedTuple):
    """From where on a backfill needs the two topics; None: nowhere."""

    delay_topic_from: int | None = None
    snapshots_from: int | None = None


def kept_for_backfills(staged: Iterable[Manifest], written_from: Iterable[int]) -> Kept:
    """What staged buckets need, and jobs that are writing segments from these record offsets on."""
    manifests = list(staged)
    ranges = [manifest.segments_from for manifest in manifests]
    records = [offset for manifest in manifests for offset in manifest.record_offsets]
    return Kept(min(ranges, default=None), min([*records, *written_from], default=None))


def delay_topic_needed_from(committed: Progress, buckets: Iterable[Bucket]) -> int:
    """The lowest offset of the delay topic that is still needed: min(S, lowest pending pointer).

    Pointers count until their whole bucket has left, since a manifest knows only the lowest of them.
    """
    pointers = [
        bucket.manifest.needs_from
        for bucket in buckets
        if bucket.manifest.needs_from is not None and not bucket.is_done(committed.watermark)
    ]
    return min([committed.sealed_to, *pointers])


def rules_needed_from(committed: Progress, buckets: Iterable[Manifest]) -> int:
    """The lowest offset of a record that may be decided again: from S on, or when a segment of a bucket is loaded."""
    return min([committed.sealed_to, *(manifest.from_offset for manifest in buckets)])


def snapshots_needed_from(
    watermark: Position, buckets: Iterable[Bucket], being_read: Container[int] = ()
) -> int | None:
    """The lowest record offset of a live segment, or of a page of ids of a bucket that has one; None: there is none.

    Every segment counts of a bucket that is ``being_read``: who does reads what was live when it began.
    """
    offsets: list[int] = []
    for bucket in buckets:
        manifest, passed = bucket.manifest, bucket.passed(watermark)
        if manifest.bucket_id in being_read:
            offsets += manifest.record_offsets
        elif passed < len(manifest.segments):
            offsets += [segment.record_offset for segment in manifest.segments[passed:]]
            offsets += [page.record_offset for page in manifest.id_pages or ()]
    return min(offsets, default=None)


def snapshots_known_to(buckets: Iterable[Bucket]) -> int:
    """One past the highest record offset of any segment or page that a manifest names; 0 when there is none."""
    return max((offset + 1 for bucket in buckets for offset in bucket.manifest.record_offsets), default=0)
