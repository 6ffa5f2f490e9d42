"""A partition with buckets, checked against the model that knows nothing of buckets.

As far as entries are in memory, the same ones leave in the same order as if all of them were in memory; and at the end
each has left once. Segments and manifests lie in a store of the test that survives crashes. After a crash, only the
manifests that a committed batch installed exist.

The twin judges ``index`` alone, with no router around it. So it finds an S that is lower than it need be, and a due
record that one batch leaves to the next: the simulation compares neither. Mutation runs (:mod:`tests.mutation`) judge
``index`` by it.
"""

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.buckets.bucket_rules import SealRules, cut, to_merge
from index.partition.batch import Batch, Installation, Installs
from index.partition.partition import PartitionIndex
from index.pending.pending import CHUNK_BITS, NO_LIMIT, Entry
from index.pending.progress import Position, Progress
from tests.support.partition_twin import PAYLOAD_BYTES, Row, Twin
from tests.support.runs import SMALL_RUNS

Segment = list[Entry[Row]]


@dataclass
class Writing:
    """A bucket on its way into segments: a seal, or a merge of ``sources``."""

    segments: Iterator[Segment]
    from_offset: int
    to_offset: int
    written: list[SegmentRef]
    sources: tuple[int, ...] = ()


class TwinWithBuckets(Twin):
    """Seals, loads, merges and removes buckets between all other operations."""

    def __post_init__(self) -> None:
        self.store: list[Segment] = []
        self.manifests: dict[int, Manifest] = {}
        # Offsets of pending entries that are only in segments.
        self.absent: set[int] = set()
        self.sealed: set[int] = set()
        self.writing: Writing | None = None
        self.ready: Installs | None = None
        self.done: Counter[str] = Counter()
        self.far_chance = self.rng.choice([0.0, 0.6])
        self.rules = SealRules(
            time_step_ms=self.rng.choice([10, 50, 1_000]), segment_entries=self.rng.choice([1, 3, 10])
        )
        super().__post_init__()

    def new_index(self) -> PartitionIndex[Row, Row]:
        self.writing = self.ready = None
        self.absent = {row.offset for row in self.log if row.offset in self.sealed}
        index: PartitionIndex[Row, Row] = PartitionIndex(
            self.model.committed, lambda _: PAYLOAD_BYTES, self.manifests.values(), runs=SMALL_RUNS
        )
        index.check()
        return index

    def append(self) -> None:
        """Append also records that are due later, so that buckets live for a while."""
        super().append()
        if self.rng.random() < self.far_chance:
            for _ in range(self.rng.randint(1, 4)):
                self.log.append(Row(self.end, self.now_ms + self.rng.randint(0, 3_000)))
                self.end += 1

    def freeze(self) -> None:
        parts = self.index.parts
        if self.writing is None and self.ready is None and self.index.may_freeze and len(parts.mutable):
            to_offset = self.index.indexed_to
            frozen = parts.freeze(to_offset)
            segments = cut(frozen.pieces(), self.rules, lambda _: PAYLOAD_BYTES)
            self.writing = Writing(segments, frozen.from_offset, to_offset, [])
            self.done["frozen"] += 1

    def merge(self) -> None:
        if self.writing is not None or self.ready is not None:
            return
        watermark = self.index.committed.watermark
        sources = [source.manifest for source in to_merge(self.index.parts.buckets.values(), 1, watermark)]
        if sources:
            runs = [
                [entry for ref in each.segments if ref.last > watermark for entry in self.stored(each, ref)]
                for each in sources
            ]
            merged = heapq.merge(*runs, key=lambda entry: entry[:2])
            segments = cut([list(merged)], self.rules, lambda _: PAYLOAD_BYTES)
            ids = tuple(each.bucket_id for each in sources)
            self.writing = Writing(segments, sources[0].from_offset, sources[-1].to_offset, [], ids)

    def stored(self, manifest: Manifest, ref: SegmentRef) -> Segment:
        """Return the entries of a segment that belong to the bucket."""
        return [entry for entry in self.store[ref.record_offset] if entry[1] >= manifest.from_offset]

    def keep(self, segment: Segment) -> SegmentRef:
        """Write a segment; return its reference."""
        first, last = Position(*segment[0][:2]), Position(*segment[-1][:2])
        self.store.append(segment)
        return SegmentRef(first, last, len(segment), 9, len(self.store) - 1, Placement.INLINE)

    def write(self) -> None:
        """Write one segment, or make the manifest to install once all are written."""
        writing = self.writing
        if writing is None:
            return
        segment = next(writing.segments, None)
        if segment is not None:
            writing.written.append(self.keep(segment))
            return
        self.writing = None
        if writing.written:
            bucket_id = self.index.committed.next_bucket
            made = Manifest(bucket_id, writing.from_offset, writing.to_offset, None, tuple(writing.written))
            keep_to = Position(self.now_ms + self.rng.choice([-1_000, 0, 30]), 0)
            self.ready = Installation(made, writing.sources, keep_to)
        elif not writing.sources:
            self.index.parts.discard_frozen()
            self.done["nothing left to seal"] += 1

    def fail(self) -> None:
        """Give up the seal or the merge: its segments were refused, or a source could not be read."""
        if self.writing is not None:
            if not self.writing.sources:
                self.index.parts.thaw()
                self.done["thawed"] += 1
            self.writing = None

    def load(self) -> None:
        buckets = [each for each in self.index.parts.buckets.values() if each.next_segment is not None]
        if buckets:
            bucket = self.rng.choice(buckets)
            number = bucket.next_segment or 0
            segment = self.store[bucket.manifest.segments[number].record_offset]
            watermark = self.index.committed.watermark
            pending = {offset for due_ms, offset, _ in segment if (due_ms, offset) > watermark}
            dropped = self.index.parts.load(bucket.manifest.bucket_id, number, segment, watermark)
            known = {offset for _, offset, _ in dropped}
            assert {offset for _, offset, _ in segment} - known == pending & self.absent
            self.absent -= pending
            self.done["loaded"] += 1
            self.done["dropped as known"] += len(known & pending)

    def remove(self) -> None:
        for bucket_id, bucket in list(self.index.parts.buckets.items()):
            merging = self.writing is not None and bucket_id in self.writing.sources
            installing = isinstance(self.ready, Installation) and bucket_id in self.ready.merged_from
            if bucket.is_done(self.index.committed.watermark) and not merging and not installing:
                del self.index.parts.buckets[bucket_id], self.manifests[bucket_id]
                self.done["removed"] += 1

    def plan(self) -> Batch[Row, Row]:
        limits = self.rng.choice([0, 1, 3, 100]), self.rng.choice([1, PAYLOAD_BYTES * 2, 10_000])
        installs = self.ready
        before = self.model.committed
        late, due, rejected, unsealed = self.model.plan(self.now_ms, *limits)
        batch = self.index.plan(self.now_ms, *limits, installs)
        assert [offset for _, offset, _ in batch.late] == late
        assert [offset for offset, _ in batch.rejected] == rejected
        taken = [offset for _, offset, _ in batch.due]
        there = [*self._until_absent(due)]
        assert taken == there[: len(taken)]
        coming = [bucket.barrier for bucket in self.index.parts.buckets.values() if bucket.barrier is not None]
        assert taken == there or min(coming) <= Position(self.now_ms, 1 << 62), "held back by nothing"
        watermark = Position(*batch.due[-1][:2]) if batch.due else before.watermark
        next_bucket = before.next_bucket if installs is None else installs.manifest.bucket_id + 1
        sealed_to = self._sealed_to(watermark, unsealed.cursor, installs)
        assert batch.progress == Progress(unsealed.cursor, watermark, sealed_to, before.number + 1, next_bucket)
        assert all(due_ms <= self.now_ms for due_ms, _, _ in batch.late + batch.due), "early"
        self.check()
        return batch

    def _until_absent(self, due: list[int]) -> Iterator[int]:
        for offset in due:
            if offset in self.absent:
                return
            yield offset

    def _sealed_to(self, watermark: Position, cursor: int, installs: Installs | None) -> int:
        """Return S: the lowest pending offset that is in no bucket, committed or about to be; at most C."""
        sealing = range(0)
        if installs is not None and not (isinstance(installs, Installation) and installs.merged_from):
            sealing = range(installs.manifest.from_offset, installs.manifest.to_offset)
        rows = [row for row in self.log if row.offset < cursor and row.due_ms is not None]
        pending = [row.offset for row in rows if not row.is_done(Progress(cursor, watermark, 0))]
        return min([*(each for each in pending if each not in self.sealed and each not in sealing), cursor])

    def confirm(self, batch: Batch[Row, Row]) -> None:
        super().confirm(batch)
        installed = batch.installs
        if not isinstance(installed, Installation):
            return
        manifest = installed.manifest
        for source in installed.merged_from:
            del self.manifests[source]
        self.manifests[manifest.bucket_id] = manifest
        self.done["merged" if installed.merged_from else "sealed"] += 1
        if not installed.merged_from:
            rows = [row for row in self.log if manifest.from_offset <= row.offset < manifest.to_offset]
            self.sealed |= {row.offset for row in rows}
            watermark = batch.progress.watermark
            kept_to = max((ref.last for ref in manifest.segments if ref.first <= installed.keep_to), default=watermark)
            stored = [entry for ref in manifest.segments for entry in self.store[ref.record_offset]]
            beyond = {entry[1] for entry in stored if entry[:2] > kept_to}
            # Entries due soon stay in memory by whole chunks, so a little more stays than was asked for.
            assert self.index.parts.frozen is not None
            kept = [
                c
                for c in self.index.parts.frozen.soon.chunks()
                if c[0][0] >> CHUNK_BITS <= kept_to.due_ms >> CHUNK_BITS
            ]
            self.absent |= beyond - {offset for chunk in kept for _, offset, _ in chunk}
        self.ready = None

    def release(self) -> None:
        # Crashes throw away the seal or merge under way, so they are rarer here.
        if self.rng.random() < 0.1:
            super().release()
        else:
            batch = self.plan()
            self.confirm(batch)
            self._index_confirms(batch)
            self.check()
        deque(islice(self.index.parts.dropping(), self.rng.choice([0, 1, 100])), maxlen=0)

    def _index_confirms(self, batch: Batch[Row, Row]) -> None:
        before = self.index.parts.barrier() or NO_LIMIT
        self.index.confirm()
        after = self.index.parts.barrier() or NO_LIMIT
        is_merge = isinstance(batch.installs, Installation) and bool(batch.installs.merged_from)
        assert not is_merge or after >= before, "a merge holds back what is in memory"

    def play(self, operations: Mapping[Callable[[], None], float], reads: Sequence[int]) -> Counter[str]:
        """Do 250 of the operations, as often as their weights say, and check after each; return the counts of events.

        Each operation may be preceded by reading and by a step of the clock.
        """
        for _ in range(250):
            if self.rng.random() < 0.25:
                self.read(self.rng.choice(reads))
                self.now_ms = max(0, self.now_ms + self.rng.randint(-20, 30))
            self.rng.choices(list(operations), list(operations.values()))[0]()
            self.check()
        self.drain()
        return self.done

    def drain(self) -> None:
        self.fail()
        self.read(10_000)
        self.now_ms += 4_000
        for _ in range(2_000):
            self.load()
            batch = self.plan()
            self.confirm(batch)
            self.index.confirm()
            self.remove()
            self.check()
            if not self.index.owed and not self.index.pending and not self.manifests:
                break
        assert sorted(self.left) == [row.offset for row in self.log], "a record never left"
        assert self.manifests == {}
        assert self.index.parts.in_memory == self.index.parts.stored == 0
