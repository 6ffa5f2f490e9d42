"""The part of a manifest that tells when the entries of each segment are due.

It is for people, and nothing is released by it: where there would be too many due times some are left out.
"""

from collections.abc import Sequence
from itertools import accumulate, islice
from operator import sub
from typing import Any

from index.buckets.bucket import NO_MARKS, DueMarks, SegmentRef
from index.buckets.due_marks import MOST_MARKS, check_marks, thinned
from index.errors import FormatError
from snapshots.proto import state_pb2


def due_columns(segments: Sequence[SegmentRef]) -> dict[str, Any]:
    """Return the fields of the message, none without marks; FormatError when a segment contradicts itself."""
    if all(segment.dues == NO_MARKS for segment in segments):
        return {}
    deltas: list[int] = []
    few = thinned(segments)
    for number, segment in enumerate(few):
        _refuse(number, segment)
        at_ms = segment.dues.at_ms
        deltas += map(sub, at_ms, (segment.first.due_ms, *at_ms))
    return {"due_every": [segment.dues.every for segment in few], "due_mark_deltas": deltas}


class MarksIn:
    """Reads the due marks of a message, one segment after the other."""

    def __init__(self, message: state_pb2.Manifest, segments: int) -> None:
        every, deltas = message.due_every[:], message.due_mark_deltas[:]
        if len(every) not in {0, segments} or len(deltas) > MOST_MARKS:
            raise FormatError(f"due times: {len(deltas)} for {len(every)} of {segments} segments")
        self._every = iter(every)
        self._deltas = iter(deltas)
        self._number = 0

    def of(self, ref: SegmentRef) -> SegmentRef:
        """Return the next segment with its marks; FormatError when they contradict it."""
        every = next(self._every, 0)
        if every:
            # The number of entries has not been looked at yet: it may be 0, or more than islice takes.
            deltas = islice(self._deltas, min(max(ref.entries - 1, 0) // every, MOST_MARKS))
            at_ms = tuple(accumulate(deltas, initial=ref.first.due_ms))[1:]
            ref = ref._replace(dues=DueMarks(every, at_ms))
            _refuse(self._number, ref)
        self._number += 1
        return ref

    def end(self) -> None:
        """Check that all marks belong to a segment; FormatError when some are left over."""
        if left := sum(1 for _ in self._deltas):
            raise FormatError(f"due times: {left} of no segment")


def _refuse(number: int, segment: SegmentRef) -> None:
    if wrong := check_marks(segment):
        raise FormatError(f"due times: segment {number} has {wrong}")
