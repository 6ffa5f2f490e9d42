"""Indexing of a delay partition: takes records, rejections, controls and gaps in offset order.

:mod:`index.partition.partition` plans the release.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Generic, TypeVar

from index.buckets.bucket import Manifest
from index.named.mask import Mask
from index.named.named import NamedSchedules
from index.named.names import hash_of
from index.named.queries import Queries
from index.named.receipts import Matched, Receipt
from index.named.transit import Transit
from index.partition.batch import Batch
from index.partition.counted import CountedStill
from index.partition.pending_set import PendingSet
from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from index.pending.run import NOTHING_WAITS, Runs
from index.pending.skipped import SkippedRanges
from index.pending.unsealed import Unsealed
from index.protocol.record import Record
from index.protocol.schedule import Control

_NOTHING_HELD: Final[Mapping[Position, int]] = MappingProxyType({})

P = TypeVar("P")
R = TypeVar("R")


class Entering(Generic[P, R]):
    """The pending set of one delay partition and its progress, filled in offset order."""

    def __init__(
        self,
        progress: Progress,
        size_of: Callable[[P], int],
        buckets: Iterable[Manifest] = (),
        mask: Mask | None = None,
        transit: Transit | None = None,
        runs: Runs[P] = NOTHING_WAITS,
        queries: Queries | None = None,
    ) -> None:
        self._committed = progress
        self._size_of = size_of
        self._replay_below = progress.cursor
        self._indexed_to = progress.sealed_to
        self._pending: PendingSet[P] = PendingSet(progress.sealed_to, runs)
        behind = dict(progress.catching_up)
        for manifest in buckets:
            self._pending.add_bucket(manifest, progress.watermark, behind.get(manifest.bucket_id))
        self._named: NamedSchedules = NamedSchedules(mask or Mask(), transit or Transit(), queries)
        self._late: list[Entry[P]] = []
        self._rejected: list[tuple[int, R]] = []
        self._skipped = SkippedRanges(progress.skipped)
        self._in_flight: Batch[P, R] | None = None
        self._counted = CountedStill()

    @property
    def committed(self) -> Progress:
        """Progress of the last confirmed batch, or the progress that the index started from."""
        return self._committed

    @property
    def indexed_to(self) -> int:
        """The next offset to index."""
        return self._indexed_to

    @property
    def replaying(self) -> bool:
        """True while records below the committed C are still to be indexed again; nothing may be planned until then."""
        return self._indexed_to < self._replay_below

    @property
    def pending(self) -> int:
        """Count the records that wait for their due time, in memory and in buckets, without the ones in flight.

        Cancelled records are left out wherever they lie; the number of those that a query has cancelled may have been
        estimated. A segment that is partly passed counts as a whole.
        """
        cancelled = self._committed.cancelled + len(self._counted) + self._named.queries.left
        return max(0, self._pending.in_memory + self._pending.stored - cancelled)

    @property
    def parts(self) -> PendingSet[P]:
        """The parts of the pending set, for sealing, loading, merging and removal."""
        return self._pending

    @property
    def owed(self) -> int:
        """Number of late and rejected records and of receipts, which must leave before anything else does."""
        return len(self._late) + len(self._rejected) + self._named.owed

    @property
    def named(self) -> NamedSchedules:
        """Ids, receipts and the mask. The caller adds ids to it, and writes the changes."""
        return self._named

    def add(self, run: Sequence[Entry[P]]) -> Sequence[Entry[P]]:
        """Index accepted records, in offset order; return the entries that have neither left nor been cancelled.

        It takes a run at a time, because a call for each record would double the cost.
        """
        if not run:
            return run
        self._enter(run[0][1])
        self._indexed_to = run[-1][1] + 1
        if self._skipped and run[0][1] < self._replay_below:
            run = [each for each in run if not self._skipped.covers(each[1])]
        if self._named.mask and run and run[0][1] < max(self._replay_below, self._named.transit.reaches):
            run = self._named.mask.without(run)
        watermark = self._committed.watermark
        due_ms, offset = watermark
        pending = [each for each in run if each[0] > due_ms or (each[0] == due_ms and each[1] > offset)]
        self._pending.mutable.add(pending)
        if len(pending) == len(run):
            return run
        passed = [each for each in run if (each[0], each[1]) <= watermark]
        late = [each for each in passed if each[1] >= self._replay_below]
        self._late += late
        return pending + late

    def reject(self, offset: int, rejected: R) -> bool:
        """Index a rejected record; return False when a replay shows that it has left, or when it was cancelled."""
        self._enter(offset)
        if offset < self._replay_below or self._named.is_cancelled(offset):
            return False
        self._rejected.append((offset, rejected))
        return True

    def control(
        self,
        offset: int,
        control: Control,
        record: Record,
        entry: Entry[P] | None = None,
        *,
        held: Mapping[Position, int] = _NOTHING_HELD,
        gone: Collection[int] = (),
    ) -> tuple[Receipt | None, Sequence[Entry[P]]]:
        """Index a control, and the ``entry`` of the schedule that it becomes.

        It returns the receipt of the control, None where the control is settled, and the entry where that was added.
        The ids of all buckets must be known (:mod:`index.named.names`). ``held`` maps the places of its id that wait
        behind W to their shifts: how long after the requested time each one is due. ``gone`` are the offsets of
        schedules of its id that a query has cancelled.
        """
        shift_ms = 0 if control.schedule is None else control.schedule.shift_ms
        if self.is_settled(offset):
            if entry is None:
                self.advance(offset + 1)
                return None, ()
            return None, self._add_named(control, entry, shift_ms)
        self._enter(offset)
        due_ms = None if entry is None else entry[0] - shift_ms
        is_pending = (lambda place: place.offset not in gone and self.is_pending(place)) if gone else self.is_pending
        receipt = self._named.evaluate(offset, control, record, due_ms, held, is_pending)
        if entry is None or receipt.voids_itself:
            return receipt, ()
        self._indexed_to = offset
        return receipt, self._add_named(control, entry, shift_ms)

    def query(
        self, offset: int, control: Control, record: Record, behind: Sequence[Position], matched: Matched, left: int
    ) -> None:
        """Index a control with a predicate (:mod:`index.named.queries`), as ``NamedSchedules.query`` does."""
        self._enter(offset)
        self._named.query(offset, control, record, behind, matched, left)

    def freeze(self) -> Unsealed[P]:
        """Set everything that was indexed aside to be sealed; all of it must be below the committed C.

        The range begins at S. Everything below S has left, and neither its rules nor its mask are kept: a segment below
        S that is rebuilt from the delay topic would bring cancelled records back.
        """
        self._named.names.freeze()
        self._pending.begin_at(self._committed.sealed_to)
        return self._pending.freeze(self._indexed_to)

    def thaw(self) -> None:
        """Give up sealing."""
        self._named.names.thaw()
        self._pending.thaw()

    def discard_frozen(self) -> None:
        """Drop the frozen bucket: all its entries have left meanwhile."""
        self._named.names.discard_frozen()
        self._pending.discard_frozen()

    def is_settled(self, offset: int) -> bool:
        """Return whether a control at this offset is only read again: its receipt has left, the mask has its effect."""
        return offset < self._replay_below

    def _add_named(self, control: Control, entry: Entry[P], shift_ms: int) -> Sequence[Entry[P]]:
        added = self.add([entry])
        if added:
            self._named.names.add(hash_of(control.deliver_id), Position(entry[0], entry[1]), shift_ms)
        return added

    def is_pending(self, place: Position) -> bool:
        """Return whether a record that was indexed has not left; a cancelled one may still be in its place."""
        if place.offset >= self._committed.cursor:
            return True
        bucket = next((each for each in self._pending.buckets.values() if each.holds(place.offset)), None)
        if bucket is None and place.offset < self._pending.unsealed_from:
            # Its bucket is done, perhaps because all entries behind W were cancelled; the mask no longer knows the
            # record then.
            return False
        behind = None if bucket is None else bucket.behind
        return place > (self._committed.watermark if behind is None else behind)

    def skip(self, from_offset: int, to_offset: int, rejected: R) -> None:
        """Index [from_offset, to_offset) as one rejection; a replay accepts no record of it until S has passed it."""
        if self.reject(from_offset, rejected):
            self._skipped.add(from_offset, to_offset)
        self.advance(to_offset)

    def advance(self, to_offset: int) -> None:
        """Mark every record below ``to_offset`` as indexed; control records and gaps are passed this way."""
        if to_offset < self._indexed_to:
            raise ValueError(f"advanced to {to_offset} after {self._indexed_to - 1} was indexed")
        if self._in_flight is not None:
            raise ValueError("records indexed while a batch is in flight")
        self._indexed_to = to_offset

    def _enter(self, offset: int) -> None:
        if offset < self._indexed_to:
            raise ValueError(f"offset {offset} indexed after {self._indexed_to - 1}")
        if self._in_flight is not None:
            raise ValueError("records indexed while a batch is in flight")
        self._indexed_to = offset + 1
