"""Adopting a bucket that a job has built from the delay topic, while the partition goes on.

A job decides the records of offsets [a, b) and stages the bucket; an owner whose cursor C is in [a, b) takes it over:
C = S = b from then on, and what the bucket holds below the old C is *masked*, since the owner has indexed that itself.
Only with nothing unsealed and nothing owed, because S must be able to go where C goes::

    offsets    a ........... C ................................ b
               ├── masked ───┤├── of the adopted bucket ────────┤├── indexed by the owner, next
               in the owner's
               own buckets

The rest of the partition is at W, and of this bucket nothing has left, however long ago it was due. So it has a
watermark of its own, which starts below its first entry, lies in the progress record, and moves in the transactions
that release its entries. While it is behind W, the bucket is *catching up*: what it owes up to W leaves in its own
order, some in each transaction beside what is due, and W goes on meanwhile. The transaction that takes the last of
what it owes up to W drops its watermark: with that it is a bucket like the others, and W does not pass it any more.

Rejected: setting W back to the first entry, which would release again what has left since; and releasing everything it
owes in one transaction, as late records do, since that may be millions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from index.bucket import Bucket, Manifest
from index.pending import Entry, PendingIndex
from index.progress import BEFORE_ALL, Behind, Position
from index.schedule import AT_ONCE

P = TypeVar("P")

SHARE = 4
"""What is catching up gets this part of a batch: behind a whole one, what is due would wait too long."""

PLENTY = 10_000
"""Entries in memory of what is catching up, beyond which no more is loaded: it is all overdue, and may be millions."""

_EVERYTHING_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Adoption:
    """A bucket that is adopted with a batch; ``manifest`` without segments when nothing of its range is pending."""

    manifest: Manifest

    def behind(self, watermark: Position) -> tuple[Behind, ...]:
        """Its own watermark, if it is behind that of the partition."""
        segments = self.manifest.segments
        return (Behind(self.manifest.bucket_id, BEFORE_ALL),) if segments and segments[0].first <= watermark else ()


def adopted(staged: Manifest, bucket_id: int, cursor: int) -> Manifest:
    """The manifest of a staged bucket as an owner at ``cursor`` installs it: what lies below is masked."""
    needs_from = staged.needs_from
    return replace(
        staged,
        bucket_id=bucket_id,
        from_offset=max(staged.from_offset, cursor),
        needs_from=None if needs_from is None else max(needs_from, cursor),
        built_from=staged.from_offset,
    )


@dataclass(slots=True)
class _Lane(Generic[P]):
    """A bucket that is behind, what is in memory of it, and its watermark, committed or in flight."""

    bucket: Bucket
    watermark: Position
    entries: PendingIndex[P]

    @property
    def first(self) -> Position | None:
        """The first entry that has not left; of a segment that is not in memory, what it may be at the earliest."""
        there = self.entries.first()
        # Segments are loaded in order, so what is not in memory comes after all that is.
        return self.bucket.barrier if there is None else Position(*there)

    def owes(self, watermark: Position) -> bool:
        """Whether something is left at or before the watermark of the partition."""
        return (first := self.first) is not None and first <= watermark


class CatchingUp(Generic[P]):
    """The adopted buckets that are behind."""

    def __init__(self, chunk_bits: int) -> None:
        self._chunk_bits = chunk_bits
        self._lanes: dict[int, _Lane[P]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def indexes(self) -> list[PendingIndex[P]]:
        """Where the entries in memory lie."""
        return [lane.entries for lane in self._lanes.values()]

    def watermarks(self) -> tuple[Behind, ...]:
        """The watermark of each, committed or in flight."""
        return tuple(Behind(bucket_id, lane.watermark) for bucket_id, lane in sorted(self._lanes.items()))

    def begin(self, bucket: Bucket, watermark: Position) -> None:
        """A bucket is behind: everything up to ``watermark`` of it has left."""
        bucket.behind = watermark
        self._lanes[bucket.manifest.bucket_id] = _Lane(bucket, watermark, PendingIndex(self._chunk_bits))

    def has_plenty(self, bucket_id: int) -> bool:
        """Whether no more of a bucket should be loaded for now; of all but the first one only a little is."""
        most = PLENTY if bucket_id == next(iter(self._lanes)) else 1
        return len(self._lanes[bucket_id].entries) >= most

    def load(self, bucket_id: int, entries: Sequence[Entry[P]]) -> list[Entry[P]]:
        """Take in entries of a segment; returns those that have not left yet."""
        lane = self._lanes[bucket_id]
        fresh = [entry for entry in entries if entry[:2] > lane.watermark]
        lane.entries.put_back(fresh)
        return fresh

    def next_due_ms(self) -> int | None:
        """Due time of the first entry, in memory or not."""
        firsts = [first.due_ms for lane in self._lanes.values() if (first := lane.first) is not None]
        return min(firsts, default=None)

    def next_releasable_ms(self, watermark: Position) -> int | None:
        """Due time of the first entry that could leave, AT_ONCE when a bucket is no longer behind; None: nothing."""
        times_ms: list[int] = []
        for lane in self._lanes.values():
            there = lane.entries.first()
            if not lane.owes(watermark):
                times_ms.append(AT_ONCE)
            elif there is not None:
                times_ms.append(there[0])
        return min(times_ms, default=None)

    def take(
        self, now_ms: int, max_entries: int, watermark: Position, fitting: Callable[[list[Entry[P]]], int]
    ) -> list[Entry[P]]:
        """Take what leaves next of one bucket: due by now, and at or before ``watermark``, that of the partition.

        ``fitting`` tells how many of them go into a transaction.
        """
        for lane in self._lanes.values():
            due = lane.entries.take_due(now_ms, max_entries, (watermark.due_ms, watermark.offset + 1))
            if due:
                count = fitting(due)
                lane.entries.put_back(due[count:])
                lane.watermark = Position(*due[count - 1][:2])
                return due[:count]
        return []

    def close(self, watermark: Position) -> Iterator[PendingIndex[P]]:
        """Let go of buckets of which nothing is left at or before ``watermark``; yields what is in memory of each."""
        for bucket_id, lane in list(self._lanes.items()):
            if not lane.owes(watermark):
                lane.bucket.behind = None
                del self._lanes[bucket_id]
                yield lane.entries

    def confirm(self) -> None:
        """The watermarks in flight were committed."""
        for lane in self._lanes.values():
            lane.bucket.behind = lane.watermark

    def check(self) -> None:
        """Assert every invariant; O(n log n)."""
        for lane in self._lanes.values():
            lane.entries.check()
            first = lane.entries.first()
            assert lane.bucket.behind is not None
            assert lane.bucket.behind <= lane.watermark
            assert first is None or lane.watermark < first <= lane.bucket.loaded_to


def everything(entries: PendingIndex[P]) -> Iterator[tuple[int, list[Entry[P]]]]:
    """Remove and yield all chunks."""
    return entries.take_chunks(_EVERYTHING_MS)
