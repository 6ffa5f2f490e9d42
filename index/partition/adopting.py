"""Adoption of a bucket that a job has built from the delay topic, while the partition goes on.

A job decides the records of offsets [a, b) and stages the bucket. An owner whose cursor C is in [a, b) adopts it: from
then on C = S = b. The entries of the bucket below the old C are *masked*, because the owner has indexed those records
itself. The owner adopts only while it has nothing unsealed and owes nothing, because S must be able to go where C
goes::

    offsets    a ........... C ................................ b
               ├── masked ───┤├── of the adopted bucket ────────┤├── indexed by the owner, next
               in the owner's
               own buckets

The rest of the partition is at W, but nothing of this bucket has left, however long ago it was due. So the bucket has a
watermark of its own, which starts below its first entry, lies in the progress record, and moves in the transactions
that release its entries. While this watermark is behind W, the bucket is *catching up*: its entries up to W leave in
their own order, some in each transaction beside the entries that are due, and W goes on meanwhile. The transaction that
takes the last entry up to W drops the watermark. From then on the bucket is like the others, and W does not pass its
entries any more.

Two other ways were rejected. Setting W back to the first entry of the bucket would release again all that has left
since. Releasing all entries up to W in one transaction, as late records are, could be a transaction of millions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from index.buckets.bucket import Bucket, Manifest
from index.pending.pending import Entry, PendingIndex
from index.pending.progress import BEFORE_ALL, Behind, Position
from index.protocol.schedule import AT_ONCE

P = TypeVar("P")

SHARE = 4
"""One entry in so many of a batch may come from a bucket that is catching up. If such a bucket could fill a whole
batch, the entries that are due would wait too long."""

PLENTY = 10_000
"""Entries of a bucket that is catching up which may be in memory before loading pauses. All of them are overdue, and
there may be millions."""

_EVERYTHING_MS = 1 << 62


@dataclass(frozen=True, slots=True)
class Adoption:
    """A bucket that is adopted with a batch; its ``manifest`` has no segments when nothing of its range is pending."""

    manifest: Manifest

    def behind(self, watermark: Position) -> tuple[Behind, ...]:
        """Return the watermark of its own that the bucket needs, if it is behind the watermark of the partition."""
        segments = self.manifest.segments
        return (Behind(self.manifest.bucket_id, BEFORE_ALL),) if segments and segments[0].first <= watermark else ()


def adopted(staged: Manifest, bucket_id: int, cursor: int) -> Manifest:
    """Return the manifest of a staged bucket as an owner at ``cursor`` installs it: entries below it are masked."""
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
    """A bucket that is behind, its entries in memory, and its watermark, committed or in flight."""

    bucket: Bucket
    watermark: Position
    entries: PendingIndex[P]

    @property
    def first(self) -> Position | None:
        """The first entry that has not left; where it is not in memory, the earliest place that it may have."""
        there = self.entries.first()
        # Segments are loaded in order, so the entries that are not in memory come after all that are.
        return self.bucket.barrier if there is None else Position(*there)

    def owes(self, watermark: Position) -> bool:
        """Return whether an entry is left at or before the watermark of the partition."""
        return (first := self.first) is not None and first <= watermark


class CatchingUp(Generic[P]):
    """The adopted buckets that are behind."""

    def __init__(self, chunk_bits: int) -> None:
        self._chunk_bits = chunk_bits
        self._lanes: dict[int, _Lane[P]] = {}

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def indexes(self) -> list[PendingIndex[P]]:
        """Return the indexes that hold the entries in memory."""
        return [lane.entries for lane in self._lanes.values()]

    def watermarks(self) -> tuple[Behind, ...]:
        """Return the watermark of each bucket, committed or in flight."""
        return tuple(Behind(bucket_id, lane.watermark) for bucket_id, lane in sorted(self._lanes.items()))

    def begin(self, bucket: Bucket, watermark: Position) -> None:
        """Add a bucket that is behind; its entries up to ``watermark`` have left."""
        bucket.behind = watermark
        self._lanes[bucket.manifest.bucket_id] = _Lane(bucket, watermark, PendingIndex(self._chunk_bits))

    def has_plenty(self, bucket_id: int) -> bool:
        """Return whether to load no more of a bucket for now.

        The first bucket may have ``PLENTY`` entries in memory; the others load only when they have none.
        """
        most = PLENTY if bucket_id == next(iter(self._lanes)) else 1
        return len(self._lanes[bucket_id].entries) >= most

    def load(self, bucket_id: int, entries: Sequence[Entry[P]]) -> list[Entry[P]]:
        """Take the entries of a segment into memory; return the entries that have not left yet."""
        lane = self._lanes[bucket_id]
        fresh = [entry for entry in entries if entry[:2] > lane.watermark]
        lane.entries.put_back(fresh)
        return fresh

    def next_due_ms(self) -> int | None:
        """Return the due time of the first entry, in memory or not."""
        firsts = [first.due_ms for lane in self._lanes.values() if (first := lane.first) is not None]
        return min(firsts, default=None)

    def next_releasable_ms(self, watermark: Position) -> int | None:
        """Return when the next entry could leave: AT_ONCE when a bucket is no longer behind, None when none could."""
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
        """Take the entries of one bucket that leave next: due by now, and at or before ``watermark``, the partition's.

        ``fitting`` returns how many of them go into a transaction.
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
        """Remove the buckets that owe nothing at or before ``watermark``; yield the entries in memory of each."""
        for bucket_id, lane in list(self._lanes.items()):
            if not lane.owes(watermark):
                lane.bucket.behind = None
                del self._lanes[bucket_id]
                yield lane.entries

    def confirm(self) -> None:
        """Take over the watermarks in flight as committed."""
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
