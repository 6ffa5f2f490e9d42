"""The index of one delay partition: its pending, late, rejected and done records, and the next to leave.

The caller indexes records in offset order (``add``, ``reject``, ``advance``), asks for the next batch (``plan``),
writes it together with the batch's progress in one transaction, and reports the commit (``confirm``). A batch that
cannot be committed is never given back: its outcome may be unknown, so the whole index is thrown away with it.

::

            add                plan                 confirm
    record ─────► pending ───────────► in flight ───────────► done  (at or before W, below C)
              └─► late    ───────────►     │
    reject ─────► rejected ──────────►     │

All late and rejected records leave in the next batch, even in a large one, so every committed C equals everything
indexed, and nothing at or beyond a committed C has been released. Holding C back behind a late record while releasing
beyond it would double records; passing it would lose them. So the caller limits the number of records that it
indexes between two batches (``owed``).

There is one exception, for a clock that was set back or a new owner whose clock is behind: a late record that is not
due *now* stays, and C stays in front of it. Nothing beyond that C is released then either, because pending entries are
due after W, and so after every late record.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TypeVar

from index.named.receipts import Receipt
from index.partition.adopting import SHARE, Adoption
from index.partition.batch import Batch, Installation, Installs
from index.partition.entering import Entering
from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from index.protocol.schedule import AT_ONCE

P = TypeVar("P")
R = TypeVar("R")
T = TypeVar("T")


class PartitionIndex(Entering[P, R]):
    """The pending set of one delay partition and its progress.

    ``P`` is the payload that the caller keeps of a record until its release, ``R`` the one until its rejection;
    ``size_of`` gives the bytes that a payload costs in a transaction. ``runs`` decides how entries that wait for long
    are kept.
    """

    def next_due_ms(self) -> int | None:
        """Return the due time of the first pending record, or None."""
        return _earlier(self._pending.next_due_ms(), self._pending.catching_up.next_due_ms())

    def next_releasable_ms(self) -> int | None:
        """Return the due time of the first pending record that can be released, or None."""
        of_adopted_ms = self._pending.catching_up.next_releasable_ms(self._committed.watermark)
        return _earlier(self._pending.next_releasable_ms(), of_adopted_ms)

    def next_owed_ms(self) -> int | None:
        """Return when the first owed record may leave: AT_ONCE unless the clock was set back, None without one."""
        others = [self._rejected[0][0]] if self._rejected else []
        if self._named.first_owed is not None:
            others.append(self._named.first_owed)
        if not self._late:
            return AT_ONCE if others else None
        due_ms, offset, _ = self._late[0]
        return AT_ONCE if others and min(others) < self._named.cursor_before_links(offset) else due_ms

    def furthest_due_ms(self) -> int | None:
        """Return the due time of the last pending record, or None."""
        return self._pending.furthest_due_ms()

    def plan(self, now_ms: int, max_entries: int, max_bytes: int, installs: Installs | None = None) -> Batch[P, R]:
        """Take everything owed and the first due records; of the due ones at most ``max_entries`` and ``max_bytes``.

        Owed records stay from the first late one on that is not due at ``now_ms``. A manifest that ``installs`` holds
        is part of the batch: S moves past the manifest of a sealed bucket, and C past an adopted one.
        """
        if self.replaying:
            raise ValueError(f"planned at {self._indexed_to}, before the replay reached {self._replay_below}")
        if self._in_flight is not None:
            raise ValueError("planned while a batch is in flight")
        # While a receipt has to stay, nothing leaves that may be in it: see index.named.named.
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
        adopted: list[range] = []
        if isinstance(installs, Adoption):
            # The bucket may contain a record that was cancelled while it was in transit.
            adopted = [range(installs.manifest.from_offset, installs.manifest.to_offset)]
            behind = (*progress.catching_up, *installs.behind(progress.watermark))
            progress = progress._replace(catching_up=behind)
        late, due, cancelled = self._not_cancelled(late + catching_up, due)
        progress = self._count_cancelled(progress, cancelled, receipts, installs)
        self._named.mask.forget([*self._pending.ranges(), *adopted], progress.sealed_to)
        self._in_flight = Batch(late, due, rejected, progress, installs, due_bytes, receipts, cancelled)
        return self._in_flight

    def _not_cancelled(self, late: list[Entry[P]], due: list[Entry[P]]) -> tuple[list[Entry[P]], ...]:
        mask = self._named.mask
        if not mask:
            return late, due, []
        cancelled = [entry for entry in (*late, *due) if entry[1] in mask]
        return [*mask.without(late)], [*mask.without(due)], cancelled

    def _count_cancelled(
        self, progress: Progress, passed: Sequence[Entry[P]], receipts: Sequence[Receipt], installs: Installs | None
    ) -> Progress:
        """Return the progress with the number of cancelled records that buckets hold after the next transaction."""
        seals = isinstance(installs, Installation) and not installs.merged_from
        to_offset = installs.manifest.to_offset if installs is not None and seals else None
        count = self._counted.plan(
            self._committed.cancelled,
            passed,
            receipts,
            self._stays(progress),
            self._pending.unsealed_from,
            to_offset,
        )
        if isinstance(installs, Adoption):
            # These records were in transit when they were cancelled, and the job has read them.
            count += self._named.mask.count(self._indexed_to, installs.manifest.to_offset)
        return progress._replace(cancelled=count)

    def _stays(self, progress: Progress) -> Callable[[Position], bool]:
        """Return a test that tells whether a cancelled schedule stays in its place until W reaches it."""
        parts, behind = self._pending, dict(progress.catching_up)
        manifests = {each.manifest.to_offset: each.manifest for each in parts.buckets.values()}
        ends = sorted(manifests)

        def stays(place: Position) -> bool:
            if place.offset >= parts.unsealed_from:
                return place.offset < parts.mutable.from_offset and place > progress.watermark
            at = bisect_right(ends, place.offset)
            manifest = manifests[ends[at]] if at < len(ends) else None
            if manifest is None or place.offset < manifest.from_offset:
                return False
            return place > behind.get(manifest.bucket_id, progress.watermark)

        return stays

    def spare(self, schedule: Position, moves: Collection[int], why: str) -> Batch[P, R]:
        """Leave a schedule pending, because the moves in flight at these offsets cannot write it again.

        Return the batch in flight with the progress that says so.
        """
        assert self._in_flight is not None
        self._named.spare(schedule, moves, why)
        progress = self._in_flight.progress
        cancelled = max(0, progress.cancelled - self._counted.spare(schedule.offset))
        self._in_flight = replace(self._in_flight, progress=progress._replace(cancelled=cancelled))
        return self._in_flight

    @property
    def may_freeze(self) -> bool:
        """True when all indexed records are below the committed C: then a bucket of them ends below every later S."""
        return self._in_flight is None and not self.replaying and self._committed.cursor == self._indexed_to

    @property
    def may_adopt(self) -> bool:
        """True when all indexed records are in buckets or done, so that S can go where C goes."""
        return self._in_flight is None and not self.replaying and not self.owed and self._pending.is_sealed

    def confirm(self) -> None:
        """Apply the batch in flight, which was committed."""
        assert self._in_flight is not None
        self._committed = self._in_flight.progress
        installed = self._in_flight.installs
        self._pending.cancel(self._named.confirm())
        self._counted.confirm()
        self._pending.drop(self._in_flight.cancelled)
        self._in_flight = None
        self._skipped.forget(self._committed.sealed_to)
        if self._pending.catching_up:
            self._pending.catching_up.confirm()
        self._named.sweep(self.is_pending)
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
            self._named.names.discard_frozen()
            self._pending.install_sealed(installed.manifest, watermark, installed.keep_to)
        self._named.names.forget(self._pending.ranges())

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
        # A tuple compares by due time first, and the usual case, that all are due, must be cheap.
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
        numbers = cursor, watermark, sealed_to, last.number + 1, next_bucket
        return Progress(*numbers, behind, skipped, last.series_key, restored_to=last.restored_to)


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((each for each in (one_ms, other_ms) if each is not None), default=None)


def _fitting(sizes: list[int], max_bytes: int) -> tuple[int, int]:
    """Count the first entries that fit into a batch, and their bytes."""
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
