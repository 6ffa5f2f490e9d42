"""The part of a manifest that tells how many entries of each segment go to which target.

It is for people, and nothing is released by it: where it would make the manifest too large it is left out as a whole.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

from index.buckets.bucket import SegmentRef, TargetCounts
from index.errors import FormatError
from snapshots.proto import state_pb2

MAX_COUNTS = 50_000
MAX_NAMES = 500
"""So a manifest, which is one record, has some 300 kB more at most."""


def target_columns(segments: Sequence[SegmentRef]) -> dict[str, Any]:
    """Return the fields of the message, empty where counts are unknown or too many."""
    names = list(dict.fromkeys(target for segment in segments for target, _ in segment.targets))
    runs = [len(segment.targets) for segment in segments]
    if not names or len(names) > MAX_NAMES or sum(runs) > MAX_COUNTS:
        return {}
    indexes = {name: index for index, name in enumerate(names)}
    counts = list(chain.from_iterable(segment.targets for segment in segments))
    return {
        "target_names": names,
        "target_runs": runs,
        "target_indexes": [indexes[target] for target, _ in counts],
        "target_counts": [count for _, count in counts],
    }


def targets_of(message: state_pb2.Manifest, segments: int) -> Sequence[TargetCounts]:
    """Return the counts of each segment; FormatError when the columns contradict each other."""
    names, runs = message.target_names[:], message.target_runs[:]
    indexes, counts = message.target_indexes[:], message.target_counts[:]
    if not runs:
        return [()] * segments
    if len(runs) != segments or not sum(runs) == len(indexes) == len(counts) <= MAX_COUNTS:
        raise FormatError(
            f"counts by target: {len(indexes)} targets and {len(counts)} counts for {len(runs)} of {segments} segments"
        )
    if indexes and max(indexes) >= len(names):
        raise FormatError(f"counts by target: a target named by index {max(indexes)} of {len(names)}")
    found = iter(zip(map(names.__getitem__, indexes), counts, strict=True))
    # Few are different: a bucket of thousands of segments would hold as many equal tuples.
    known: dict[TargetCounts, TargetCounts] = {}
    each = [tuple(next(found) for _ in range(run)) for run in runs]
    return [known.setdefault(targets, targets) for targets in each]
