"""What one delay partition owes: which records are pending, late, rejected or done, and what leaves next.

The caller indexes records in offset order (``add``, ``reject``, ``advance``), asks for the next batch (``plan``),
writes it together with the batch's progress in one transaction, and says so (``confirm``). A batch that cannot be
committed is never given back: its outcome may be unknown, so the whole index is thrown away with it.

::

            add                plan                 confirm
    record ─────► pending ───────────► in flight ───────────► done  (at or before W, below C)
              └─► late    ───────────►     │
    reject ─────► rejected ──────────►     │

All late and rejected records leave in the next batch, whatever its size, so every committed C equals everything
indexed, and nothing at or beyond a committed C has been released. Holding C back behind a late record while releasing
beyond it would double records; passing it would lose them. The caller therefore bounds what it indexes between two
batches (``owed``).

There is one exception, for a clock that was set back or a new owner whose clock is behind: a late record that is not
due *now* stays, and C stays in front of it. Nothing beyond that C is released then either, because what is pending is
due after W, and so after every late record.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

from index.adopting import SHARE, Adoption
from index.batch import Batch, Installation, Installs
from index.bucket import Manifest
from index.mask import Mask
from index.named import NamedSchedules
from index.names import hash_of
from index.pending import Entry
from index.pending_set import PendingSet
from index.progress import Position, Progress
from index.receipts import Control, Receipt
from index.record import Record
from index.schedule import AT_ONCE
from index.skipped import SkippedRanges

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class PartitionIndex(Generic[P, R]):
    """The pending set of one delay partition and its progress.

    ``P`` is what the caller keeps of a record until it is released, ``R`` of one until it is rejected; ``size_of``
    gives the bytes a payload will cost in a transaction.
    """

    def __init__(
        self,
        progress: Progress,
        size_of: Callable[[P], int],
        buckets: Iterable[Manifest] = (),
        mask: Mask | None = None,
    ) -> None:
        self._committed = progress
        self._size_of = size_of
        self._replay_below = progress.cursor
        self._indexed_to = progress.sealed_to
        self._pending: PendingSet[P] = PendingSet(progress.sealed_to)
        behind = dict(progress.catching_up)
        for manifest in buckets:
            self._pending.add_bucket(manifest, progress.watermark, behind.get(manifest.bucket_id))
        self._named: NamedSchedules = NamedSchedules(mask or Mask())
        self._late: list[Entry[P]] = []
        self._rejected: list[tuple[int, R]] = []
        self._skipped = SkippedRanges(progress.skipped)
        self._in_flight: Batch[P, R] | None = None

    @property
    def committed(self) -> Progress:
        """Progress of the last batch that was confirmed, or what the index started from."""
        return self._committed

    @property
    def indexed_to(self) -> int:
        """The next offset to index."""
        return self._indexed_to

    @property
    def replaying(self) -> bool:
        """Whether records below the committed C are still to be indexed again; nothing may be planned until then."""
        return self._indexed_to < self._replay_below

    @property
    def pending(self) -> int:
        """How many records wait for their due time, in-flight ones excluded; in memory and in buckets."""
        return self._pending.in_memory + self._pending.stored

    @property
    def parts(self) -> PendingSet[P]:
        """Where what is pending lies; for sealing, loading, merging and removal."""
        return self._pending

    @property
    def owed(self) -> int:
        """How many late and rejected records, and receipts, must leave before anything else does."""
        return len(self._late) + len(self._rejected) + self._named.owed

    @property
    def named(self) -> NamedSchedules:
        """Ids, receipts and what is masked: for the caller to add ids to, and to write what has changed."""
        return self._named

    def add(self, run: Sequence[Entry[P]]) -> Sequence[Entry[P]]:
        """Index accepted records, in offset order; returns those that a replay does not show to have left already.

        A run at a time, because a call for each record would cost as much as what it does.
        """
        if not run:
            return run
        self._enter(run[0][1])
        self._indexed_to = run[-1][1] + 1
        if self._skipped and run[0][1] < self._replay_below:
            run = [each for each in run if not self._skipped.covers(each[1])]
        if self._named.mask and run and run[0][1] < self._replay_below:
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
        """Index a rejected record; False when a replay shows that it has left already."""
        self._enter(offset)
        if offset < self._replay_below:
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
        stored: Iterable[Position] = (),
        held: Iterable[Position] = (),
    ) -> Receipt | None:
        """Index a control, and the ``entry`` that it is where it is a schedule itself; None: a replay, it is settled.

        ``stored`` are places that buckets know for its id, ``held`` those of it that wait behind W.
        """
        if offset < self._replay_below:
            if entry is None:
                self.advance(offset + 1)
            else:
                self._add_named(control, entry)
            return None
        self._enter(offset)
        due_ms = None if entry is None else entry[0]
        receipt = self._named.evaluate(offset, control, record, due_ms, stored, held, self._is_pending)
        if entry is not None and not receipt.voids_itself:
            self._indexed_to = offset
            self._add_named(control, entry)
        return receipt

    def _add_named(self, control: Control, entry: Entry[P]) -> None:
        if self.add([entry]):
            self._named.names.add(hash_of(control.deliver_id), Position(entry[0], entry[1]))

    def _is_pending(self, place: Position) -> bool:
        if place.offset >= self._committed.cursor:
            return True
        behind = next((each.behind for each in self._pending.buckets.values() if each.holds(place.offset)), None)
        return place > (self._committed.watermark if behind is None else behind)

    def skip(self, from_offset: int, to_offset: int, rejected: R) -> None:
        """Index [from_offset, to_offset) as one rejection; until S has passed it, no replay accepts a record of it."""
        if self.reject(from_offset, rejected):
            self._skipped.add(from_offset, to_offset)
        self.advance(to_offset)

    def advance(self, to_offset: int) -> None:
        """Say that every record below ``to_offset`` has been indexed; control records and gaps are passed this way."""
        if to_offset < self._indexed_to:
            raise ValueError(f"advanced to {to_offset} after {self._indexed_to - 1} was indexed")
        if self._in_flight is not None:
            raise ValueError("records indexed while a batch is in flight")
        self._indexed_to = to_offset

    def next_due_ms(self) -> int | None:
        """Due time of the first pending record, or None."""
        return _earlier(self._pending.next_due_ms(), self._pending.catching_up.next_due_ms())

    def next_releasable_ms(self) -> int | None:
        """Due time of the first pending record when it could be released, or None."""
        of_adopted_ms = self._pending.catching_up.next_releasable_ms(self._committed.watermark)
        return _earlier(self._pending.next_releasable_ms(), of_adopted_ms)

    def next_owed_ms(self) -> int | None:
        """When the first owed record may leave, AT_ONCE unless the clock was set back; None when nothing is owed."""
        others = [self._rejected[0][0]] if self._rejected else []
        if self._named.first_owed is not None:
            others.append(self._named.first_owed)
        if not self._late:
            return AT_ONCE if others else None
        due_ms, offset, _ = self._late[0]
        return AT_ONCE if others and min(others) < offset else due_ms

    def furthest_due_ms(self) -> int | None:
        """Due time of the last pending record, or None."""
        return self._pending.furthest_due_ms()

    def plan(self, now_ms: int, max_entries: int, max_bytes: int, installs: Installs | None = None) -> Batch[P, R]:
        """Take everything owed and the first due records, at most ``max_entries`` and ``max_bytes`` of the latter.

        Of what is owed, the records from the first late one on that is not due at ``now_ms`` stay. A manifest that
        ``installs`` is part of the batch: with that of a sealed bucket, S moves past it, and C with an adopted one.
        """
        if self.replaying:
            raise ValueError(f"planned at {self._indexed_to}, before the replay reached {self._replay_below}")
        if self._in_flight is not None:
            raise ValueError("planned while a batch is in flight")
        # While a receipt has to stay, nothing leaves that it may speak of: see index.named.
        stays = self._named.owed and self._named.last_owed >= self._cursor_at(now_ms)
        catching_up = [] if stays else self._catch_up(now_ms, max_entries, max_bytes)
        due = self._pending.take_due(now_ms, max_entries)
        fitting, due_bytes = self._fitting(max_bytes, due)
        if fitting < len(due):
            self._pending.untake(due[fitting:])
            del due[fitting:]
        self._pending.leave(due)
        cursor = self._cursor_after(installs) if isinstance(installs, Adoption) else self._cursor_at(now_ms)
        late, self._late = _split(self._late, bisect_left(self._late, cursor, key=_offset_of_entry))
        rejected, self._rejected = _split(self._rejected, bisect_left(self._rejected, cursor, key=_offset_of_rejected))
        receipts = self._named.leave(cursor)
        progress = self._progress_after(due, cursor, installs)
        if isinstance(installs, Adoption):
            behind = (*progress.catching_up, *installs.behind(progress.watermark))
            progress = progress._replace(catching_up=behind)
        late, due, cancelled = self._not_cancelled(late + catching_up, due)
        self._named.mask.forget(self._pending.ranges(), progress.sealed_to)
        self._in_flight = Batch(late, due, rejected, progress, installs, due_bytes, receipts, cancelled)
        return self._in_flight

    def _not_cancelled(self, late: list[Entry[P]], due: list[Entry[P]]) -> tuple[list[Entry[P]], ...]:
        mask = self._named.mask
        if not mask:
            return late, due, []
        cancelled = [entry for entry in (*late, *due) if entry[1] in mask]
        return [*mask.without(late)], [*mask.without(due)], cancelled

    @property
    def may_freeze(self) -> bool:
        """Whether everything indexed is below the committed C, so that a bucket of it ends below every later S."""
        return self._in_flight is None and not self.replaying and self._committed.cursor == self._indexed_to

    @property
    def may_adopt(self) -> bool:
        """Whether everything indexed is in buckets or done, so that S can go where C goes."""
        return self._in_flight is None and not self.replaying and not self.owed and self._pending.is_sealed

    def confirm(self) -> None:
        """The batch in flight was committed."""
        assert self._in_flight is not None
        self._committed = self._in_flight.progress
        installed = self._in_flight.installs
        self._pending.cancel(self._named.confirm())
        self._pending.drop(self._in_flight.cancelled)
        self._in_flight = None
        self._skipped.forget(self._committed.sealed_to)
        if self._pending.catching_up:
            self._pending.catching_up.confirm()
        self._named.sweep(self._is_pending)
        if installed is None:
            return
        watermark = self._committed.watermark
        if isinstance(installed, Adoption):
            behind = dict(self._committed.catching_up).get(installed.manifest.bucket_id)
            self._pending.install_adopted(installed.manifest, watermark, behind)
            self._indexed_to = installed.manifest.to_offset
        elif installed.merged_from:
            self._pending.install_merged(installed.manifest, installed.merged_from, watermark)
        else:
            self._pending.install_sealed(installed.manifest, watermark, installed.keep_to)

    def check(self) -> None:
        """Assert every invariant; O(n log n)."""
        self._pending.check()
        self._named.check()
        committed = self._committed
        assert committed.sealed_to <= committed.cursor
        if not self.replaying:
            assert self._indexed_to >= committed.cursor
        first = self._pending.next_due_ms()
        assert first is None or first >= committed.watermark.due_ms
        assert all((due_ms, offset) <= committed.watermark for due_ms, offset, _ in self._late)
        assert [offset for _, offset, _ in self._late] == sorted({offset for _, offset, _ in self._late})
        assert [offset for offset, _ in self._rejected] == sorted({offset for offset, _ in self._rejected})
        assert all(offset >= committed.cursor for _, offset, _ in self._late)
        assert all(offset >= committed.cursor for offset, _ in self._rejected)

    def _enter(self, offset: int) -> None:
        if offset < self._indexed_to:
            raise ValueError(f"offset {offset} indexed after {self._indexed_to - 1}")
        if self._in_flight is not None:
            raise ValueError("records indexed while a batch is in flight")
        self._indexed_to = offset + 1

    def _catch_up(self, now_ms: int, max_entries: int, max_bytes: int) -> list[Entry[P]]:
        catching_up, watermark = self._pending.catching_up, self._committed.watermark
        if not catching_up:
            return []
        share, share_bytes = -(-max_entries // SHARE), max_bytes // SHARE
        taken = catching_up.take(now_ms, share, watermark, lambda run: self._fitting(share_bytes, run)[0])
        self._pending.close_caught_up(watermark)
        return taken

    def _fitting(self, max_bytes: int, due: list[Entry[P]]) -> tuple[int, int]:
        return _fitting(list(map(self._size_of, [payload for _, _, payload in due])), max_bytes)

    def _cursor_after(self, adoption: Adoption) -> int:
        manifest = adoption.manifest
        if not self.may_adopt or not manifest.from_offset == self._indexed_to < manifest.to_offset:
            raise ValueError(
                f"[{manifest.from_offset}, {manifest.to_offset}) adopted at {self._indexed_to}, or too soon"
            )
        return manifest.to_offset

    def _cursor_at(self, now_ms: int) -> int:
        # A tuple compares by due time first, and the usual answer, that all are due, must cost little.
        if not self._late or max(self._late)[0] <= now_ms:
            return self._indexed_to
        held_back = next(offset for due_ms, offset, _ in self._late if due_ms > now_ms)
        return self._named.cursor_before_doomed(held_back, self._late)

    def _progress_after(self, due: list[Entry[P]], cursor: int, installs: Installs | None) -> Progress:
        last = self._committed
        watermark = Position(due[-1][0], due[-1][1]) if due else last.watermark
        sealed = isinstance(installs, Installation) and not installs.merged_from
        lowest = self._pending.lowest_unsealed(without_frozen=sealed)
        # A bucket that was being merged may be installed after one with a higher id.
        next_bucket = max(last.next_bucket, -1 if installs is None else installs.manifest.bucket_id + 1)
        sealed_to = cursor if lowest is None else min(cursor, lowest)
        behind = self._pending.catching_up.watermarks()
        skipped = self._skipped.between(sealed_to, cursor)
        return Progress(cursor, watermark, sealed_to, last.number + 1, next_bucket, behind, skipped, last.series_key)


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((each for each in (one_ms, other_ms) if each is not None), default=None)


def _fitting(sizes: list[int], max_bytes: int) -> tuple[int, int]:
    """How many of the first entries go into a batch, and their bytes."""
    all_bytes = sum(sizes)
    if all_bytes <= max_bytes or not sizes:
        return len(sizes), all_bytes
    # One record always goes, however big: a batch that can never be planned would block the partition.
    sums = list(accumulate(sizes))
    fitting = max(bisect_right(sums, max_bytes), 1)
    return fitting, sums[fitting - 1]


def _split(items: list[T], at: int) -> tuple[list[T], list[T]]:
    return (items, []) if at == len(items) else (items[:at], items[at:])


def _offset_of_entry(entry: tuple[int, int, object]) -> int:
    return entry[1]


def _offset_of_rejected(rejected: tuple[int, object]) -> int:
    return rejected[0]
