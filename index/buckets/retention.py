"""Retention: the parts of the delay topic and of the snapshots topic that must be kept, by committed state alone.

::

    delay topic       ░░░░░░░░│ pointed at │ sealed inline │ [S, C) in memory │ not indexed
                              ▲ the lowest pointer, else S
    snapshots topic   ░░░░░░░░│ live segments, and pages of ids ... │ records of a seal or merge that is under way
                              ▲ the lowest live one

Neither limit ever moves back, not even across owners: a segment written later lies behind all that were known before,
and a record that an older owner still counts as needed lies at or before the records that a newer owner needs. So an
owner that was fenced without noticing may trim by its own state and does no harm.

Jobs that build buckets to be adopted also need records (:class:`Kept`): the buckets that they have staged, and the
segments that they are about to write, whose first offset they announce beforehand. Before an owner trims, it fixes its
limit, and then it asks for the needs of jobs: segments of a job that it has not heard of by then lie behind the limit.
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

from index.buckets.bucket import Bucket, Manifest
from index.pending.progress import Position, Progress


class Kept(NamedTuple):
    """The offsets from which on a backfill needs the two topics; None where it needs nothing."""

    delay_topic_from: int | None = None
    snapshots_from: int | None = None


def kept_for_backfills(staged: Iterable[Manifest], written_from: Iterable[int]) -> Kept:
    """Return the needs of staged buckets, and of jobs that write segments from these record offsets on."""
    manifests = list(staged)
    ranges = [manifest.segments_from for manifest in manifests]
    records = [offset for manifest in manifests for offset in manifest.record_offsets]
    return Kept(min(ranges, default=None), min([*records, *written_from], default=None))


def delay_topic_needed_from(committed: Progress, buckets: Iterable[Bucket]) -> int:
    """Return the lowest offset of the delay topic that is still needed: min(S, lowest pending pointer).

    Pointers count until their whole bucket has left, because a manifest knows only the lowest of them.
    """
    pointers = [
        bucket.manifest.needs_from
        for bucket in buckets
        if bucket.manifest.needs_from is not None and not bucket.is_done(committed.watermark)
    ]
    return min([committed.sealed_to, *pointers])


def rules_needed_from(committed: Progress, buckets: Iterable[Manifest], held: Iterable[int]) -> int:
    """Return the lowest offset of a record that may be decided again: from S on, of a bucket, or of a ``held`` record.

    The schedule of a held record is stored with it, and a move decides the record again.
    """
    return min([committed.sealed_to, *(manifest.from_offset for manifest in buckets), *held])


def snapshots_needed_from(
    watermark: Position, buckets: Iterable[Bucket], being_read: Container[int] = ()
) -> int | None:
    """Return the lowest record offset of a live segment, or of a page of ids of a bucket with one; None without any.

    Every segment counts in a bucket that is ``being_read``: its reader may still read segments that were live when it
    began.
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
    """Return the offset behind the last segment or page that a manifest names; 0 when there is none."""
    return max((offset + 1 for bucket in buckets for offset in bucket.manifest.record_offsets), default=0)
