"""The division of a range of a delay topic: into buckets by offset, and each bucket into slots by due time.

::

    offsets of partition 0   [a ─────── m1)[m1 ─────── b)      buckets 0 and 1: staged and adopted in this order
    due times of bucket 0    │ slot 0 │ slot 1 │ slot 2 │      slots: one task each sorts, cuts and encodes one

A router adopts a bucket at once; slots only share out the work. A sample decides where slots end, so slots differ in
size, and nothing else depends on it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from index.buckets.bucket_rules import NEARLY_EMPTY, SealRules
from index.pending.progress import Position
from index.protocol.schedule import AT_ONCE
from spark_backfill.source import OffsetRange


class BucketRange(OffsetRange):
    """The offsets of one partition which become one bucket."""

    __slots__ = ()


def buckets_of(ranges: Iterable[OffsetRange], bucket_records: int) -> list[BucketRange]:
    """Divide ranges into buckets of about the same size, at most ``bucket_records`` offsets each.

    They are in order of partition and offset.
    """
    buckets = []
    for partition, start, end in sorted(ranges):
        count = -(-(end - start) // bucket_records)
        bounds = [start + (end - start) * number // count for number in range(count)] + [end] if count else []
        buckets += [BucketRange(partition, *bound) for bound in pairwise(bounds)]
    return buckets


def segments_of(span: int, dues_ms: Sequence[int], sizes_bytes: Sequence[int], rules: SealRules) -> int:
    """Estimate how many segments ``span`` records become, from a sample of them."""
    if not dues_ms:
        return 0
    full = sum(1 / min(rules.segment_entries, max(1, rules.segment_bytes // size)) for size in sizes_bytes)
    later_ms = [due_ms for due_ms in dues_ms if due_ms != AT_ONCE] or [0]
    steps = (max(later_ms) - min(later_ms)) // rules.time_step_ms + 1
    # The end of a step does not end a segment that is nearly empty.
    return math.ceil(span * full / len(sizes_bytes)) + min(steps, span * NEARLY_EMPTY // rules.segment_entries)


def slot_count(bucket: BucketRange, slot_records: int) -> int:
    """Return the number of tasks that share the bucket."""
    return max(1, -(-bucket.span // slot_records))


def boundaries(sample: Iterable[Position], slots: int) -> tuple[Position, ...]:
    """Return the starts of all slots but the first, ascending. Each slot has about the same share of the sample."""
    ordered = sorted(set(sample))
    if not ordered:
        return ()
    chosen = {ordered[len(ordered) * number // slots] for number in range(1, slots)}
    return tuple(sorted(chosen - {ordered[0]}))


@dataclass(frozen=True, slots=True)
class Slots:
    """Buckets in order, and the boundaries of each one's slots; slots are numbered through all buckets."""

    buckets: tuple[BucketRange, ...]
    bounds: tuple[tuple[Position, ...], ...]

    @property
    def first(self) -> list[int]:
        """Number of the first slot of each bucket, and at the end the number of all slots."""
        return [0, *accumulate(len(bounds) + 1 for bounds in self.bounds)]

    @property
    def count(self) -> int:
        """Number of all slots."""
        return self.first[-1]

    def of_partition(self) -> dict[int, list[int]]:
        """Return the numbers of the buckets of each partition, by offset."""
        found: dict[int, list[int]] = {}
        for number, bucket in enumerate(self.buckets):
            found.setdefault(bucket.partition, []).append(number)
        return found


def planned(buckets: Sequence[BucketRange], samples: Mapping[BucketRange, Sequence[Position]], per_slot: int) -> Slots:
    """Return the slots of all buckets. A bucket with more than one slot is divided by its sample."""
    bounds = [boundaries(samples.get(bucket, ()), slot_count(bucket, per_slot)) for bucket in buckets]
    return Slots(tuple(buckets), tuple(bounds))
