"""The round of an active partition: index arrived records, release due records, and sleep until the next due time.

A transaction begins

* if a record is owed or due, and the last transaction is settled: at once. A lone record on an idle partition never
  waits. After a batch of many records, the next batch gets a whole tick to fill.
* if a bucket waits to be sealed until every indexed record is below the committed C: at once.
* if policies have changed rules, or held records may leave: at once.
* if none of this is true, but C has moved and the last transaction is a while ago: with progress alone, unless a record
  is about to be due and would have to wait for it.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from index.partition.transaction_size import TransactionSize
from index.pending.pending import Entry
from index.protocol.schedule import AT_ONCE, ATTEMPT_LABELS, Attempted
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.decided import BadBatch
from sidecar.engine.ownership.owned_partition import OwnedPartition
from sidecar.engine.payload.records import Scheduled, transaction_bytes
from sidecar.engine.release.gate import waiting_since_ms
from sidecar.engine.release.plan import Plan, Released
from sidecar.engine.release.transaction import SETTLE_S, Request

IDLE_WAIT_S = 0.25
"""The longest sleep; a worker that is told to stop notices it within this time."""

LOADING_WAIT_S = 0.002
"""The longest sleep while a segment is being fetched or written: its records may be due already."""

PAUSED_WAIT_S = 0.005
"""The longest sleep while the intake pauses."""

SHARED_BY = 32
"""The size of a batch, in records, from which on the next transaction waits for a tick, so that records share it."""

BEFORE_ALL_MS = -(1 << 42)
"""The time of day of a paused partition. By it no record is due, no segment is about to be due, and a late record waits
with C in front of it, exactly as after a clock was set back. A pause can be trusted since it needs no other rule."""

NS_PER_MS = 1_000_000
MS_PER_S = 1_000


class Rounds:
    """Drives one owned partition; used by its worker only.

    ``batch_records`` is the most due records in a transaction. ``size`` lives longer than an ownership. ``asking`` is
    entered while the round waits for brokers.
    """

    def __init__(
        self,
        context: PartitionContext,
        owned: OwnedPartition,
        size: TransactionSize,
        batch_records: int,
        asking: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._context = context
        self._asking = asking
        self._clock = context.clock
        self._owned = owned
        self._size = size
        self.batch_records = batch_records
        self._indexed_bytes = 0
        self._last_began_s = self._open_again_s = float("-inf")

    @property
    def owned(self) -> OwnedPartition:
        """The partition that the rounds drive."""
        return self._owned

    def once(self) -> None:
        """Do one round; raise ClusterError if the partition has to be taken over again."""
        self._index(self._wait_s())
        # Behind the wait: a record that came within it must not leave by policies that have changed meanwhile.
        with self._asking():
            self._owned.follow_policies()
        self._owned.load(self._now_ms())
        running_s, now_ms = self._clock.running_s(), self._now_ms()
        is_open = running_s >= self._open_again_s
        requests = self._requests(now_ms, running_s) if is_open else []
        resumed = self._resumed(now_ms, running_s) if is_open else []
        if requests or resumed or self._may_begin(running_s):
            self._release(requests, resumed)

    def replay(self) -> None:
        """Index one more run of [S, C), before anything may be released."""
        self._index(IDLE_WAIT_S)

    def _requests(self, now_ms: int, running_s: float) -> list[Request]:
        wanted = self._owned.requests(now_ms)
        # Due records must not suffer from housekeeping: its segments are offered again the next time.
        carried = [each for each in wanted if not each.segments or self._size.carries(each.size_bytes, running_s)]
        for each in wanted:
            if each not in carried:
                each.owner.left_out(each)
        return carried

    def _resumed(self, now_ms: int, running_s: float) -> list[Entry[Scheduled]]:
        limit_bytes, doomed = self._limit_bytes(running_s), self._owned.ledger.named.doomed
        return self._owned.gate.resumed(self.batch_records, now_ms, limit_bytes, doomed)

    def _limit_bytes(self, running_s: float) -> int:
        """Return the most bytes to plan a transaction with; at least 1, since the intake would stop without room.

        If the partition has a key of series, the limit is half: each record may append another one of its size.
        """
        limit_bytes = self._size.limit_bytes(running_s)
        return max(1, limit_bytes // 2) if self._owned.ledger.committed.series_key else limit_bytes

    def _now_ms(self) -> int:
        return BEFORE_ALL_MS if self._owned.settings.paused else self._clock.now_ms()

    def _until_s(self, due_ms: int) -> float:
        """Return the seconds until a due time, to the nanosecond; negative if it has passed."""
        if self._owned.settings.paused:
            return (due_ms - BEFORE_ALL_MS) / MS_PER_S
        return (due_ms * NS_PER_MS - self._clock.now_ns()) / (NS_PER_MS * MS_PER_S)

    def _index(self, wait_s: float) -> None:
        ledger = self._owned.ledger
        if ledger.replaying:
            indexed = self._owned.index(wait_s)
        else:
            # All owed records have to leave in the next transaction, so they must fit into one.
            owed_ms = ledger.next_owed_ms()
            if owed_ms is None or owed_ms > self._now_ms():
                self._indexed_bytes = 0
            room_bytes = self._limit_bytes(self._clock.running_s()) - self._indexed_bytes
            if self._owned.intake_pauses or room_bytes <= 0:
                # Only the intake pauses; releases go on.
                self._clock.sleep(min(wait_s, PAUSED_WAIT_S))
                return
            indexed = self._owned.index(wait_s, room_bytes)
            self._indexed_bytes += indexed.size_bytes
        metrics, name = self._context.metrics, self._context.name
        for bad in indexed.bad:
            self._alarm_about_bad(bad)
        if indexed.accepted:
            metrics.indexed.labels(name).inc(indexed.accepted)
        if indexed.both_times:
            metrics.both_times.labels(name).inc(indexed.both_times)
        if indexed.without_time:
            metrics.without_time.labels(name).inc(indexed.without_time)

    def _wait_s(self) -> float:
        running_s = self._clock.running_s()
        ready_s = self._ready_in_s(running_s)
        longest_s = LOADING_WAIT_S if self._owned.is_loading or self._owned.is_busy else IDLE_WAIT_S
        held_s = self._owned.gate.wait_s(self._now_ms())
        if held_s is not None:
            longest_s = min(longest_s, max(held_s, self._open_again_s - running_s, 0.0))
        return longest_s if ready_s is None else min(max(ready_s, 0.0), longest_s)

    def _ready_in_s(self, running_s: float) -> float | None:
        """Return the seconds until the next transaction may begin, as known now; None if no record waits for it."""
        ledger = self._owned.ledger
        owed_ms = ledger.next_owed_ms()
        # Owed records come first: every pending record is due after W, and so after them.
        first_ms = ledger.next_releasable_ms() if owed_ms is None else owed_ms
        if first_ms is None or (owed_ms is None and not self._owned.gate.room_records):
            return None
        # Due times follow the wall clock, ticks do not: a clock that is set back must not hold up the next tick.
        return max(self._until_s(first_ms), self._open_again_s - running_s)

    def _may_begin(self, running_s: float) -> bool:
        ready_s = self._ready_in_s(running_s)
        if ready_s is not None and ready_s <= 0:
            return True
        if self._owned.wants_commit and running_s >= self._open_again_s:
            return True
        ledger, limits = self._owned.ledger, self._context.limits
        stale = running_s - self._last_began_s > limits.progress_every_s
        clear = ready_s is None or ready_s > limits.progress_clearance_s
        return stale and clear and ledger.indexed_to > ledger.committed.cursor

    def _release(self, requests: Sequence[Request], resumed: Sequence[Entry[Scheduled]]) -> None:
        gate, began_s = self._owned.gate, self._clock.running_s()
        # The gate may have to hold each record of the batch.
        max_records = min(self.batch_records, gate.room_records)
        resumed_bytes = transaction_bytes(resumed)
        # Resumed records may exceed the limit a little, since the record that crosses the limit is still taken.
        max_bytes = max(0, min(self._limit_bytes(began_s) - resumed_bytes, gate.room_bytes))
        plan = self._owned.releaser.plan(self._now_ms(), max_records, max_bytes, requests, resumed)
        self._indexed_bytes = 0
        self._last_began_s = began_s
        committed = False
        try:
            with self._asking():
                released = self._owned.release(plan)
            committed = True
        finally:
            if not committed:
                self._size.abandoned(plan.size_bytes)
        ended_s = self._clock.running_s()
        if not released.aborted:
            self._size.committed(plan.size_bytes, ended_s - began_s, ended_s)
        tick_s = self._owned.settings.tick_ms / MS_PER_S if len(plan.batch) >= SHARED_BY else 0
        self._open_again_s = max(ended_s + SETTLE_S, began_s + tick_s)
        self._count(plan, released, ended_s - began_s)
        context = self._context
        context.tracing.released(context.place, context.group_id, released.screened.released, self._clock.now_ms())

    def _count_held(self, plan: Plan, released: Released) -> None:
        metrics, name, now_ms = self._context.metrics, self._context.name, self._clock.now_ms()
        before, again = {offset for _, offset, _ in plan.resumed}, {offset for _, offset, _ in released.held}
        for _, offset, (schedule, _, _) in released.held:
            if offset not in before:
                metrics.held.labels(name, schedule.targets[0]).inc()
        for entry in plan.resumed:
            _, offset, (schedule, _, _) = entry
            if offset not in again:
                waited_ms = max(0, now_ms - waiting_since_ms(entry))
                metrics.held_seconds.labels(name, schedule.targets[0]).observe(waited_ms / MS_PER_S)

    def _count(self, plan: Plan, released: Released, seconds: float) -> None:
        metrics, name = self._context.metrics, self._context.name
        metrics.transactions.labels(name, "committed").inc()
        if released.aborted:
            metrics.transactions.labels(name, "aborted").inc(released.aborted)
        metrics.transaction_seconds.labels(name).observe(seconds)
        self._owned.released += len(released.screened.released)
        for target, count in released.by_target().items():
            metrics.released.labels(name, target).inc(count)
        for reason, count in released.by_reason().items():
            metrics.rejected.labels(name, reason).inc(count)
        self._count_attempts(released.attempts())
        for outcome, count in released.by_outcome().items():
            metrics.receipts.labels(name, outcome).inc(count)
        if released.receipts:
            metrics.cancelled.labels(name).inc(sum(receipt.cancels for receipt in released.receipts))
        if released.skipped:
            metrics.occurrences_skipped.labels(name).inc(released.skipped)
        if released.truncated:
            metrics.truncated.labels(name).inc(released.truncated)
        self._count_held(plan, released)
        held = {offset for _, offset, _ in released.held}.union(released.unwanted)
        due_times_ms = [due_ms for due_ms, offset, _ in plan.batch.due if offset not in held]
        scheduled = due_times_ms[bisect_right(due_times_ms, AT_ONCE) :]
        if scheduled:
            counts = metrics.lateness.observe(name, scheduled, self._clock.now_ms())
            self._owned.recent_lateness.add(counts, int(self._clock.running_s() * MS_PER_S))

    def _count_attempts(self, attempts: Sequence[tuple[int, Attempted]]) -> None:
        if not attempts:
            return
        metrics, name = self._context.metrics, self._context.name
        *counts, exhausted = self._owned.attempts.add(attempts)
        for label, count in zip(ATTEMPT_LABELS, counts, strict=True):
            if count:
                metrics.attempts.labels(name, label).inc(count)
        # From the first attempt on, so that the first exhausted record is seen as a rise.
        metrics.attempts_exhausted.labels(name).inc(exhausted)

    def _alarm_about_bad(self, bad: BadBatch) -> None:
        count = bad.to_offset - bad.from_offset
        self._context.metrics.lost.labels(self._context.name).inc(count)
        self._context.log.error(
            "records_lost",
            at_most=count,
            first_offset=bad.from_offset,
            last_offset=bad.to_offset - 1,
            why=f"a batch that the client cannot read: {bad.why}",
            remedy="they are still in the delay topic: read them with another client, and send the wanted ones again",
        )
