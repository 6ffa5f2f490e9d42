"""The pending entries of one delay partition, in memory and in the segments of buckets.

::

    offsets   0 ............................ S ......................... C
              ├── bucket 4 ──┼── bucket 5 ───┤ ├── frozen ──┼── mutable ──┤
                 stored / loaded entries        being sealed   indexed last

Records are indexed into the *mutable* bucket. To be sealed, it is *frozen*: intake goes on into a new one while its
entries are written out. They belong to a bucket only when the manifest is committed; the entries due soon are *kept* in
memory. Segments are *loaded* shortly before they are due. Release takes from all of them in one order, and never passes
the first entry that is not in memory (the *barrier*).

Entries that an adopted bucket owes up to the watermark are kept apart until it has caught up
(:mod:`index.partition.adopting`).

An entry may be offered twice: by a replay, or by the segments of a merged bucket whose sources were loaded already. An
entry at or before the watermark, or held already, is dropped; so every such race ends in one release.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from pyroaring import BitMap64

from index.buckets.bucket import Bucket, Manifest
from index.partition.adopting import CatchingUp, everything
from index.pending.pending import NO_LIMIT, Entry, PendingIndex
from index.pending.progress import Position
from index.pending.run import NOTHING_WAITS, ListRun, Run, Runs, behind, in_order
from index.pending.unsealed import Unsealed
from index.pending.waiting import Waiting

P = TypeVar("P")


class PendingSet(Generic[P]):
    """Pending entries across mutable bucket, frozen bucket and buckets, taken in (due, offset) order.

    ``runs`` decides how entries that wait for long are kept.
    """

    def __init__(self, from_offset: int, runs: Runs[P] = NOTHING_WAITS) -> None:
        self.runs = runs
        self.mutable: Unsealed[P] = Unsealed(from_offset, runs)
        self.frozen: Unsealed[P] | None = None
        self.buckets: dict[int, Bucket] = {}
        self.catching_up: CatchingUp[P] = CatchingUp(runs.chunk_bits)
        self._loaded: PendingIndex[P] = PendingIndex(runs.chunk_bits)
        self._kept: Waiting[P] = Waiting(runs)
        self._held = BitMap64()
        self._dropped: list[Run[P]] = []

    @property
    def in_memory(self) -> int:
        """Number of entries in memory, without the entries that only wait to be dropped."""
        return sum(map(len, self._indexes())) + sum(map(len, self.catching_up.indexes()))

    @property
    def loaded(self) -> int:
        """Number of entries of buckets that are in memory."""
        return len(self._loaded) + len(self._kept)

    @property
    def stored(self) -> int:
        """Number of entries that are only in segments; a segment that is partly passed or masked counts as a whole."""
        return sum(bucket.stored for bucket in self.buckets.values())

    @property
    def is_dropping(self) -> bool:
        """True while memory holds entries that a bucket holds now."""
        return bool(self._dropped)

    def in_memory_indexes(self) -> list[PendingIndex[P]]:
        """Return the indexes of the entries in memory that are due soon; read-only."""
        return [*self.catching_up.indexes(), self._loaded, *(part.soon for part in self._unsealed())]

    def waiting_runs(self) -> list[Run[P]]:
        """Return the runs of the other entries in memory; read-only."""
        waiting = [self._kept, *(part.waiting for part in self._unsealed())]
        return [run for each in waiting for run in each.runs()]

    @property
    def is_sealed(self) -> bool:
        """True when all pending entries are in buckets."""
        return self.frozen is None and not len(self.mutable)

    @property
    def unsealed_from(self) -> int:
        """The offset below which all pending entries are in a bucket."""
        return self._unsealed()[0].from_offset

    def barrier(self) -> Position | None:
        """Return the first position that may hold an entry which is not in memory."""
        buckets = self.buckets.values()
        barriers = [at for bucket in buckets if bucket.behind is None and (at := bucket.barrier) is not None]
        return min(barriers, default=None)

    def next_due_ms(self) -> int | None:
        """Return the due time of the first entry, in memory or not, without the buckets that are catching up."""
        barrier = self.barrier()
        due = [due_ms for index in self._indexes() if (due_ms := index.next_due_ms()) is not None]
        return min([*due, barrier.due_ms] if barrier else due, default=None)

    def next_releasable_ms(self) -> int | None:
        """Return the due time of the first entry; None unless it is in memory and before the barrier."""
        first = min((first for index in self._indexes() if (first := index.first()) is not None), default=None)
        if first is None or first >= (self.barrier() or NO_LIMIT):
            return None
        return first[0]

    def furthest_due_ms(self) -> int | None:
        """Return the due time of the last entry, in memory or not."""
        indexes = [*self.catching_up.indexes(), *self._indexes()]
        due = [due_ms for index in indexes if (due_ms := index.furthest_due_ms()) is not None]
        due += [bucket.manifest.last.due_ms for bucket in self.buckets.values() if bucket.next_segment is not None]
        return max(due, default=None)

    def take_due(self, now_ms: int, max_entries: int) -> list[Entry[P]]:
        """Take the first entries due by now, in release order, up to the barrier; then ``untake`` or ``leave`` them."""
        before = self.barrier() or NO_LIMIT
        runs = [run for index in self._indexes() if (run := index.take_due(now_ms, max_entries, before))]
        if len(runs) <= 1:
            return runs[0] if runs else []
        taken = in_order(runs)
        self.untake(taken[max_entries:])
        del taken[max_entries:]
        return taken

    def untake(self, entries: Sequence[Entry[P]]) -> None:
        """Put back entries that were taken and are not to leave after all."""
        frozen_from, mutable_from = self.unsealed_from, self.mutable.from_offset
        self._loaded.put_back(entry for entry in entries if entry[1] < frozen_from)
        self.mutable.put_back([entry for entry in entries if entry[1] >= mutable_from])
        if self.frozen is not None:
            self.frozen.put_back([entry for entry in entries if frozen_from <= entry[1] < mutable_from])

    def leave(self, entries: Sequence[Entry[P]]) -> None:
        """Note that entries that were taken are leaving: they no longer hold S back."""
        offsets = BitMap64([offset for _, offset, _ in entries])
        self._held -= offsets
        for part in self._unsealed():
            part.settle().difference_update(offsets)

    def cancel(self, places: Sequence[Position]) -> None:
        """Remove cancelled records that are neither in a bucket nor being sealed: they no longer hold S back.

        Other cancelled records stay until W reaches them, when the mask drops them: W decides when a bucket is done.
        """
        mutable = self.mutable
        gone = mutable.discard([place for place in places if place.offset >= mutable.from_offset])
        mutable.settle().difference_update(BitMap64([offset for _, offset, _ in gone]))
        self.drop(gone)

    def drop(self, entries: list[Entry[P]]) -> None:
        """Hand entries that will not leave to ``dropping``."""
        if entries:
            self._dropped.append(ListRun(entries))

    def ranges(self) -> list[range]:
        """Return the ranges of offsets that buckets hold, including the bucket that is being sealed."""
        there = [range(b.manifest.from_offset, b.manifest.to_offset) for b in self.buckets.values()]
        return there if self.frozen is None else [*there, range(self.frozen.from_offset, self.mutable.from_offset)]

    def lowest_unsealed(self, *, without_frozen: bool = False) -> int | None:
        """Return the lowest pending offset that is in no bucket; None when there is none."""
        for part in [self.mutable] if without_frozen else self._unsealed():
            offsets = part.settle()
            if offsets:
                return int(offsets.min())
        return None

    def begin_at(self, offset: int) -> None:
        """Move the beginning of the mutable bucket's range to ``offset``; nothing in it may lie below."""
        self.mutable.from_offset = max(self.mutable.from_offset, offset)

    def freeze(self, to_offset: int) -> Unsealed[P]:
        """Set the mutable bucket aside to be sealed, and begin a new one at ``to_offset``."""
        if self.frozen is not None:
            raise ValueError("a bucket is being sealed already")
        self.frozen, self.mutable = self.mutable, Unsealed(to_offset, self.runs)
        return self.frozen

    def thaw(self) -> None:
        """Give up sealing: the frozen entries become mutable again."""
        assert self.frozen is not None
        self.frozen.take_over(self.mutable)
        self.mutable, self.frozen = self.frozen, None

    def install_sealed(self, manifest: Manifest, watermark: Position, keep_to: Position) -> None:
        """Install the committed bucket of the frozen entries; keep entries up to ``keep_to`` in memory."""
        assert self.frozen is not None
        kept_to = max((s.last for s in manifest.segments if s.first <= keep_to), default=watermark)
        # A few entries due later stay too, from the last chunk: they are known when their segment is loaded.
        self._held.update(self._loaded.put_chunks(self.frozen.soon.take_chunks(kept_to.due_ms)))
        kept = self.frozen.waiting.take_before(behind(kept_to))
        if kept is not None:
            self._held.update(kept.offsets)
            self._kept.add_run(kept)
        self._dropped += [*map(ListRun, self.frozen.soon.take_all()), *self.frozen.waiting.take_all()]
        self.frozen = None
        self.buckets[manifest.bucket_id] = Bucket(manifest, max(kept_to, watermark))

    def install_merged(self, manifest: Manifest, sources: Sequence[int], watermark: Position) -> None:
        """Put a merged bucket in the place of its sources, whose loaded entries stay in memory.

        Loading begins just before the first entry of any source that is not in memory. It does not begin where a source
        was last read: the next entry of that source may be an hour away, and the entries of the others would be loaded
        again.
        """
        barriers = [at for source in sources if (at := self.buckets.pop(source).barrier) is not None]
        loaded_to = manifest.last
        if barriers:
            due_ms, offset = min(barriers)
            loaded_to = min(loaded_to, Position(due_ms, offset - 1))
        self.buckets[manifest.bucket_id] = Bucket(manifest, max(loaded_to, watermark))

    def install_adopted(self, manifest: Manifest, watermark: Position, behind: Position | None) -> None:
        """Add a bucket that a job has built; ``behind`` is its own watermark, if it has to catch up."""
        assert self.is_sealed
        if manifest.segments:
            self.add_bucket(manifest, watermark, behind)
        self.mutable = Unsealed(manifest.to_offset, self.runs)

    def add_bucket(self, manifest: Manifest, watermark: Position, behind: Position | None) -> None:
        """Add a committed bucket without entries in memory."""
        bucket = self.buckets[manifest.bucket_id] = Bucket(manifest, watermark if behind is None else behind)
        if behind is not None:
            self.catching_up.begin(bucket, behind)

    def close_caught_up(self, watermark: Position) -> None:
        """Treat adopted buckets that owe nothing up to ``watermark`` like all others from here on."""
        for entries in self.catching_up.close(watermark):
            self._held.update(self._loaded.put_chunks(everything(entries)))

    def has_plenty(self, bucket: Bucket) -> bool:
        """Return whether a bucket has enough entries in memory for now."""
        return bucket.behind is not None and self.catching_up.has_plenty(bucket.manifest.bucket_id)

    def load(self, bucket_id: int, number: int, entries: Sequence[Entry[P]], watermark: Position) -> list[Entry[P]]:
        """Take in the next segment of a bucket; return the entries that were dropped because they are known."""
        bucket = self.buckets[bucket_id]
        fresh = self._fresh(bucket, entries, watermark)
        bucket.loaded(number)
        if len(fresh) == len(entries):
            return []
        taken = BitMap64([offset for _, offset, _ in fresh])
        return [entry for entry in entries if entry[1] not in taken]

    def _fresh(self, bucket: Bucket, entries: Sequence[Entry[P]], watermark: Position) -> Sequence[Entry[P]]:
        if bucket.manifest.built_from is not None:
            entries = [entry for entry in entries if entry[1] >= bucket.manifest.from_offset]
            if entries:
                bucket.found(Position(*entries[-1][:2]))
        if bucket.behind is not None:
            return self.catching_up.load(bucket.manifest.bucket_id, entries)
        offsets = BitMap64([offset for _, offset, _ in entries])
        held = offsets & self._held
        fresh = entries
        # As a rule none of its entries are known.
        if held or (entries and entries[0][:2] <= watermark):
            fresh = [entry for entry in entries if entry[:2] > watermark and entry[1] not in held]
            offsets = BitMap64([offset for _, offset, _ in fresh])
        self._loaded.put_run(fresh)
        self._held |= offsets
        return fresh

    def discard_frozen(self) -> None:
        """Drop the frozen bucket: all its entries have been released meanwhile."""
        assert self.frozen is not None
        assert not len(self.frozen)
        self.frozen = None

    def dropping(self) -> Iterator[Run[P]]:
        """Yield entries to be freed, a run at a time: freeing many at once would stall the release."""
        while self._dropped:
            yield self._dropped.pop()

    def check(self) -> None:
        """Assert every invariant; O(n log n)."""
        for part in self._unsealed():
            part.check()
        self._loaded.check()
        self._kept.check()
        self.catching_up.check()
        assert len(self._held) == self.loaded
        for bucket in self.buckets.values():
            bucket.check()
        ranges = sorted((b.manifest.from_offset, b.manifest.to_offset) for b in self.buckets.values())
        assert all(one[1] <= two[0] for one, two in pairwise(ranges)), ranges

    def _unsealed(self) -> list[Unsealed[P]]:
        return [self.mutable] if self.frozen is None else [self.frozen, self.mutable]

    def _indexes(self) -> Iterator[PendingIndex[P] | Waiting[P]]:
        yield from (self._loaded, self._kept)
        for part in self._unsealed():
            yield from (part.soon, part.waiting)
