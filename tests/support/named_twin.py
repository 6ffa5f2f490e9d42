"""Named schedules on the index alone: random work with crashes, seals and merges, and an independent checker.

The checker knows the log and the commits in their order, and nothing of how a control is evaluated. Each schedule must
be released once or be in exactly one receipt. Each control must have exactly one receipt. No schedule that lay in front
of a control may be released once the receipt of the control is committed.

The twin judges ``index`` alone, with no router around it. So it finds a wrong count of pending records at the operation
that makes it, where the simulation looks at the end of a run. It also finds bits of the mask that stay for ever, which
the simulation never counts. Mutation runs (:mod:`tests.mutation`) judge ``index`` by it.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pyroaring import BitMap64

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.buckets.bucket_rules import SealRules, cut, to_merge
from index.named.id_pages import IdPage, IdPageRef, IdRows, cut_rows, rows_in_order, rows_of
from index.named.mask import Mask
from index.named.names import hash_of
from index.named.places import HASH_BYTES
from index.named.receipts import Receipt
from index.partition.batch import Batch, Installation
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import Position, Progress, start_of
from index.protocol.record import Record
from index.protocol.schedule import Action, Control
from tests.support.runs import SMALL_RUNS

FIRST_OFFSET = 1_000
IDS = (b"a", b"b", b"c")
NOTHING = Record(None, None, (), 0)


class Row(NamedTuple):
    """One offset of the log; ``due_ms`` None: no schedule; ``action`` None: no control."""

    offset: int
    due_ms: int | None
    deliver_id: bytes | None
    action: Action | None = None
    if_due_ms: int | None = None

    @property
    def control(self) -> Control | None:
        return None if self.action is None else Control(self.action, self.deliver_id or b"", self.if_due_ms)


@dataclass
class Writing:
    """A bucket on its way into segments."""

    segments: Iterator[list[Entry[Row]]]
    from_offset: int
    to_offset: int
    sources: tuple[int, ...] = ()
    written: list[SegmentRef] = field(default_factory=list)


@dataclass
class NamedTwin:
    """A partition, its log, and everything that was committed."""

    index_class: ClassVar[type[PartitionIndex[Row, Row]]] = PartitionIndex

    rng: random.Random
    log: list[Row] = field(default_factory=list)
    end: int = FIRST_OFFSET
    now_ms: int = 1_000
    committed: Progress = field(default_factory=lambda: start_of(FIRST_OFFSET))
    containers: dict[int, BitMap64] = field(default_factory=dict)
    manifests: dict[int, Manifest] = field(default_factory=dict)
    store: list[list[Entry[Row]]] = field(default_factory=list)
    pages: list[IdRows] = field(default_factory=list)
    left: list[Row | Receipt] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        # A random generator of its own, so that all else is the same without pages.
        self.paging = random.Random(0)
        self.rules = SealRules(time_step_ms=self.rng.choice([20, 500]), segment_entries=self.rng.choice([1, 3, 10]))
        self.set_back_ms = self.rng.choice([10, 40, 200])
        self.index = self.new_index()

    def new_index(self) -> PartitionIndex[Row, Row]:
        self.writing: Writing | None = None
        self.ready: Installation | None = None
        mask = Mask(offset for container in self.containers.values() for offset in container)
        return self.index_class(self.committed, lambda _: 10, self.manifests.values(), mask, runs=SMALL_RUNS)

    def append(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.end += self.rng.random() < 0.1
            due_ms = max(0, self.now_ms + self.rng.randint(-40, self.rng.choice([40, 600, 3_000])))
            deliver_id = self.rng.choice([*IDS, None])
            luck = self.rng.random()
            row = Row(self.end, due_ms, deliver_id)
            if deliver_id is not None and luck < 0.4:
                known = [each.due_ms for each in self.log if each.deliver_id == deliver_id and each.due_ms is not None]
                if_due_ms = self.rng.choice(known) if known and self.rng.random() < 0.3 else None
                if luck < 0.25:
                    row = Row(self.end, None, deliver_id, Action.CANCEL, if_due_ms)
                else:
                    row = Row(self.end, due_ms, deliver_id, Action.REPLACE, if_due_ms)
            self.log.append(row)
            self.end += 1

    def read(self, most: int) -> None:
        ahead = [row for row in self.log if row.offset >= self.index.indexed_to]
        for row in ahead[:most]:
            entry = None if row.due_ms is None else (row.due_ms, row.offset, row)
            control = row.control
            if control is not None:
                self._control(row, control, entry)
            elif entry is not None and self.index.add([entry]) and row.deliver_id is not None:
                self.index.named.names.add(hash_of(row.deliver_id), Position(*entry[:2]))
        if len(ahead) <= most:
            self.index.advance(self.end)

    def _control(self, row: Row, control: Control, entry: Entry[Row] | None) -> None:
        self.read_ids(hash_of(control.deliver_id))
        receipt, _ = self.index.control(row.offset, control, NOTHING, entry)
        self.done["replayed" if receipt is None else receipt.outcome] += 1

    def read_ids(self, id_hash: bytes) -> None:
        """Tell the index the places of an id in those buckets where they are unknown."""
        names = self.index.named.names
        if id_hash not in names.lookup:
            names.look_up({id_hash, *map(hash_of, self.paging.sample(IDS, 2))})
        for each in self.manifests.values():
            if names.knows(id_hash, each.offsets):
                continue
            if each.id_pages is not None:
                self.look_up(each.offsets, each.id_pages)
                continue
            self.done["read"] += 1
            entries = [entry for ref in each.segments for entry in self.store[ref.record_offset]]
            ids = ((hash_of(row.deliver_id), Position(*at)) for *at, row in entries if row.deliver_id is not None)
            names.lookup.found(each.offsets, [(each, place, 0) for each, place in ids if each in names.lookup])

    def look_up(self, offsets: range, pages: Sequence[IdPageRef]) -> None:
        """Tell the index the places that a bucket has of the ids that are looked for."""
        lookup = self.index.named.names.lookup
        for number, numbers in lookup.sought.in_pages(pages):
            page = IdPage(self.pages[pages[number].record_offset])
            lookup.found(offsets, page.find(lookup.sought, numbers))
        lookup.found(offsets, ())
        self.done["looked up"] += 1

    def crash(self) -> None:
        self.index = self.new_index()
        while self.index.replaying:
            self.read(self.rng.randint(1, 4))

    def release(self) -> None:
        batch = self.index.plan(self.now_ms, self.rng.choice([0, 1, 3, 100]), 10_000, self.ready)
        luck = self.rng.random()
        if luck < 0.9:
            self.confirm(batch)
            if luck < 0.8:
                self.index.confirm()
                self.ready = None
                deque(self.index.parts.dropping(), maxlen=0)
                # Only after the confirmation does every indexed offset lie below C.
                if self.rng.random() < 0.3:
                    self.freeze()
                return
        self.crash()

    def confirm(self, batch: Batch[Row, Row]) -> None:
        assert all(due_ms <= self.now_ms for due_ms, _, _ in batch.late + batch.due), "early"
        self.left += batch.receipts
        self.left += [row for _, _, row in batch.late + batch.due]
        self.committed = batch.progress
        for number, low in self.index.named.mask.changes():
            self.containers[number] = low
            if not low:
                del self.containers[number]
        if isinstance(batch.installs, Installation):
            for source in batch.installs.merged_from:
                del self.manifests[source]
            self.manifests[batch.installs.manifest.bucket_id] = batch.installs.manifest
            self.done["merged" if batch.installs.merged_from else "sealed"] += 1

    def freeze(self) -> None:
        parts = self.index.parts
        if self.writing or self.ready or not self.index.may_freeze or not len(parts.mutable):
            return
        frozen = self.index.freeze()
        segments = cut(frozen.pieces(), self.rules, lambda _: 10)
        self.writing = Writing(segments, frozen.from_offset, parts.mutable.from_offset)

    def merge(self) -> None:
        if self.writing or self.ready:
            return
        found = to_merge(self.index.parts.buckets.values(), 1, self.index.committed.watermark)
        sources = [source.manifest for source in found]
        if sources:
            runs = [[entry for ref in each.segments for entry in self.store[ref.record_offset]] for each in sources]
            merged = list(heapq.merge(*runs, key=lambda entry: entry[:2]))
            ids = tuple(each.bucket_id for each in sources)
            segments = cut([merged], self.rules, lambda _: 10)
            self.writing = Writing(segments, sources[0].from_offset, sources[-1].to_offset, ids)

    def write(self) -> None:
        """Write one segment, or make the manifest to install once all are written."""
        writing = self.writing
        if writing is None:
            return
        segment = next(writing.segments, None)
        if segment is not None:
            first, last = Position(*segment[0][:2]), Position(*segment[-1][:2])
            self.store.append(segment)
            writing.written.append(SegmentRef(first, last, len(segment), 9, len(self.store) - 1, Placement.INLINE))
            return
        self.writing = None
        bucket_id = self.index.committed.next_bucket
        pages = self.id_pages(writing) if self.paging.random() < 0.8 else None
        made = Manifest(bucket_id, writing.from_offset, writing.to_offset, None, tuple(writing.written), None, pages)
        if writing.written:
            keep_to = Position(self.now_ms + self.rng.choice([-1_000, 0, 30]), 0)
            self.ready = Installation(made, writing.sources, keep_to)
        elif not writing.sources:
            if len(self.index.parts.frozen or ()):
                self.index.thaw()
            else:
                self.index.discard_frozen()

    def id_pages(self, writing: Writing) -> tuple[IdPageRef, ...] | None:
        """Write the ids of a bucket as pages; return None where a source has unknown ids."""
        rows: Iterable[bytes] = rows_in_order(self.index.named.names.frozen)
        if writing.sources:
            sources = [self.manifests[each].id_pages for each in writing.sources]
            if None in sources:
                return None
            stored = [[self.pages[page.record_offset] for page in each or ()] for each in sources]
            rows = heapq.merge(*([row for page in each for row in rows_of(page)] for each in stored))
        refs: list[IdPageRef] = []
        for page in cut_rows(rows, self.paging.choice([1, 2, 10])):
            refs.append(IdPageRef(page.joined[:HASH_BYTES], page.row_count, 9, len(self.pages)))
            self.pages.append(page)
        return tuple(refs)

    def fail(self) -> None:
        """Give up the seal or the merge: its segments were refused, or a source could not be read."""
        if self.writing is not None:
            if not self.writing.sources:
                self.index.thaw()
                self.done["thawed"] += 1
            self.writing = None

    def load(self) -> None:
        for bucket_id, bucket in self.index.parts.buckets.items():
            number = bucket.next_segment
            if number is not None:
                segment = self.store[bucket.manifest.segments[number].record_offset]
                self.index.parts.load(bucket_id, number, segment, self.index.committed.watermark)
                return

    def remove(self) -> None:
        for bucket_id, bucket in list(self.index.parts.buckets.items()):
            merged = (self.writing.sources if self.writing else ()) + (self.ready.merged_from if self.ready else ())
            if bucket.is_done(self.index.committed.watermark) and bucket_id not in merged:
                del self.index.parts.buckets[bucket_id], self.manifests[bucket_id]
                self.done["removed"] += 1

    def clock(self) -> None:
        self.now_ms = max(0, self.now_ms + self.rng.randint(-self.set_back_ms, self.set_back_ms + 20))

    def play(self, steps: int) -> Counter[str]:
        """Do so many random operations, let everything leave, and check it; return counts of the events."""
        weights = {
            self.append: 2.0, self.release: 3.0, self.clock: 2.0, self.freeze: 3.0, self.write: 6.0,
            self.merge: 2.0, self.load: 1.0, self.remove: 0.7, self.crash: 0.1, self.fail: 0.1,
        }  # fmt: skip
        for _ in range(steps):
            self.read(self.rng.choice([0, 0, 1, 5, 100]))
            self.rng.choices(list(weights), list(weights.values()))[0]()
            self.index.check()
            self.check_pending()
        self.crash()
        self.now_ms += 8_000
        for _ in range(1_000):
            self.read(1_000)
            self.load()
            self.confirm(batch := self.index.plan(self.now_ms, 5, 10_000))
            self.index.confirm()
            self.remove()
            self.index.check()
            if not self.index.owed and not self.index.pending and not self.manifests and not batch.installs:
                break
        # The mask bits of the last removed entries go with the next transaction.
        self.confirm(self.index.plan(self.now_ms, 5, 10_000))
        self.index.confirm()
        self.check()
        return self.done

    def check_pending(self) -> None:
        """Check that cancelled records are not counted as pending, in any place behind W."""
        parts, mask, progress = self.index.parts, self.index.named.mask, self.index.committed
        stored = [
            entry[1]
            for bucket_id, bucket in parts.buckets.items()
            for ref in bucket.manifest.segments
            for entry in self.store[ref.record_offset]
            if entry[:2] > progress.watermark_of(bucket_id)
        ]
        in_buckets = sum(offset in mask for offset in stored)
        assert progress.cancelled == in_buckets, f"{progress.cancelled} of {in_buckets} are counted"
        unsealed = [parts.mutable] if parts.frozen is None else [parts.frozen, parts.mutable]
        waiting = sum(offset in mask for part in unsealed for offset in part.settle())
        told, there = self.index.pending, parts.in_memory + parts.stored
        assert told == there - in_buckets - waiting, f"{told} pending of {there}, {in_buckets + waiting} cancelled"
        self.done["cancelled in buckets"] += in_buckets
        self.done["cancelled before they were sealed"] += waiting

    def check(self) -> None:
        """Check that every record and control has come to exactly one end, in the right order."""
        ends: Counter[int] = Counter()
        receipts: dict[int, int] = {}
        for place, each in enumerate(self.left):
            if isinstance(each, Row):
                ends[each.offset] += 1
                continue
            assert each.offset not in receipts, f"control {each.offset} has two receipts"
            receipts[each.offset] = place
            ends.update(each.masks)
        for row in self.log:
            assert (row.offset in receipts) == (row.control is not None), f"receipt of {row}"
            assert row.due_ms is None or ends[row.offset] == 1, f"{row} ended {ends[row.offset]} times"
        for place, each in enumerate(self.left):
            if isinstance(each, Row):
                for control in self._before(each, place, receipts):
                    raise AssertionError(f"{each} was released after the receipt of {control}")
        assert not self.containers, "bits of the mask are left, though nothing is pending"

    def _before(self, row: Row, place: int, receipts: dict[int, int]) -> Iterator[Row]:
        for other in self.log:
            stands_behind = other.control and other.deliver_id == row.deliver_id and other.offset > row.offset
            holds = other.if_due_ms is None or other.if_due_ms == row.due_ms
            if stands_behind and holds and receipts[other.offset] < place:
                yield other
