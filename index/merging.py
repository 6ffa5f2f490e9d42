"""Which buckets to merge when there are too many.

As in PIP-195: adjacent ones (their ledger ranges must not enclose another bucket's), those with the fewest entries.
Merging four at a time rewrites an entry about log4(buckets) times.
"""

from collections.abc import Iterable

from index.bucket import Bucket
from index.progress import BEFORE_ALL, Position

MOST_AT_ONCE = 4

MOST_SEGMENTS = 15_000
"""No more in one bucket by merging: its manifest is one record."""


def to_merge(buckets: Iterable[Bucket], max_buckets: int, watermark: Position = BEFORE_ALL) -> list[Bucket]:
    """Neighbours to merge into one, in offset order; empty while there are no more than ``max_buckets``.

    Adopted buckets that are not mergeable yet stay as they are, and apart.
    """
    ordered = sorted(buckets, key=lambda bucket: bucket.manifest.from_offset)
    if len(ordered) <= max_buckets:
        return []
    width = min(MOST_AT_ONCE, len(ordered))
    windows = [ordered[start : start + width] for start in range(len(ordered) - width + 1)]
    possible = [
        window
        for window in windows
        if sum(len(each.manifest.segments) for each in window) <= MOST_SEGMENTS
        and all(each.is_mergeable(watermark) for each in window)
    ]
    return min(possible, key=lambda window: sum(bucket.stored for bucket in window), default=[])
