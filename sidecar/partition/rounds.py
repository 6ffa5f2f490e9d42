"""The round of an active partition: index what has arrived, release what is due, sleep until something is.

When to begin a transaction:

* Something is owed or due, and the last transaction is settled: now. A lone record on an idle partition never waits;
  after a batch that many records shared, the next one is given a whole tick to fill.
* A bucket is to be sealed, and waits for everything indexed to be below the committed C: now.
* Policies have changed rules, or a target may be given what was held for it: now.
* Nothing is, but C has moved and the last transaction is a while ago: a transaction with progress alone, unless a
  record is about to be due and would have to wait for it.
"""

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence

import structlog

from index.batch import Batch
from index.pending import Entry
from index.schedule import AT_ONCE
from index.transaction_size import TransactionSize
from sidecar.intake.bad_batches import BadBatch
from sidecar.partition.context import Shared
from sidecar.partition.owned_partition import Owned
from sidecar.payload.records import Payload, Refused, Scheduled, scheduled_size, size_of
from sidecar.release.chores import NOTHING, Chores
from sidecar.release.releaser import Released

MAX_BATCH_BYTES = 64 * 1_048_576
"""Most payload in one transaction, however fast the brokers are: what is in it is in memory twice."""

IDLE_WAIT_S = 0.25
"""Longest sleep: how soon a worker notices that it is to stop."""

LOADING_WAIT_S = 0.002
"""Longest sleep while a segment is being fetched or written: what arrives may be due already."""

PAUSED_WAIT_S = 0.005
"""Sleep while nothing may come in."""

FINE_WAIT_S = 0.0015
"""The client sleeps in whole milliseconds; the last of them is slept by the clock, so that it is not overslept."""

PROGRESS_EVERY_S = 5.0
"""How often C is committed when nothing is released; it only shortens the rules kept and what lag tools show."""

SETTLE_NS = 4_000_000
"""Commit returns before the coordinator has written its markers, and a transaction that begins meanwhile is told to
come back in 20 ms (notes on Kafka, 2.8). With a pause of 4 ms that is rare: p99 is 10 ms instead of 25 ms."""

SHARED_BY = 32
"""From this many records on, waiting a tick to share the next transaction is worth more than releasing at once."""

PROGRESS_CLEARANCE_NS = 100_000_000
"""No progress-only transaction when a record is due sooner than this, since it would wait for it to settle."""

BEFORE_ALL_TIME_NS = -(1 << 62)
"""The clock of a paused partition. To it nothing is due, no segment is about to be, and a late record waits with C in
front of it, exactly as when a clock was set back: that a pause needs no other rule is why it can be trusted."""

NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000


class Rounds:
    """Drives one owned partition; used by its worker only."""

    def __init__(self, owned: Owned, shared: Shared, topic: str, size: TransactionSize) -> None:
        self._owned = owned
        self._shared = shared
        self._topic = topic
        self._size = size
        self._indexed_bytes = 0
        self._batch_records = shared.config.router.batch_records
        self._last_began_ns = 0
        self._open_again_ns = 0

    def once(self) -> None:
        """One round; KafkaException when the partition has to be taken over again."""
        self._owned.follow_policies()
        self._index(self._wait_s())
        now_ms = self._now_ns() // NS_PER_MS
        self._owned.load(now_ms)
        open_again = time.monotonic_ns() >= self._open_again_ns
        chores = self._chores(now_ms) if open_again else NOTHING
        resumed = self._resumed() if open_again else []
        now_ns = self._now_ns()
        if chores or resumed or self._may_begin(now_ns):
            self._release(now_ns, chores, resumed)

    def replay(self) -> None:
        """Index one more run of [S, C), before anything may be released."""
        self._index(IDLE_WAIT_S)

    def _chores(self, now_ms: int) -> Chores:
        chores = self._owned.chores(now_ms)
        # What is due must not suffer from housekeeping: the segments are offered again the next time.
        return chores if self._size.carries(chores.size_bytes, time.monotonic()) else chores.without_refusable()

    def _resumed(self) -> list[Entry[Scheduled]]:
        most_bytes = self._size.limit_bytes(time.monotonic())
        return self._owned.gate.resumed(self._batch_records, self._now_ns() // NS_PER_MS, most_bytes)

    def _now_ns(self) -> int:
        return BEFORE_ALL_TIME_NS if self._owned.settings.paused else self._shared.clock.now_ns()

    def _index(self, wait_s: float) -> None:
        if FINE_WAIT_S >= wait_s > 0:
            time.sleep(wait_s)
            wait_s = 0
        ledger = self._owned.ledger
        if ledger.replaying:
            indexed = self._owned.index(wait_s)
        else:
            # All that is owed has to leave in the next transaction, so it must not be more than one can carry.
            owed_ms = ledger.next_owed_ms()
            if owed_ms is None or owed_ms * NS_PER_MS > self._now_ns():
                self._indexed_bytes = 0
            room_bytes = self._size.limit_bytes(time.monotonic()) - self._indexed_bytes
            if self._owned.intake_pauses or room_bytes <= 0:
                # Only what comes in pauses; what is due goes on.
                time.sleep(min(wait_s, PAUSED_WAIT_S))
                return
            indexed = self._owned.index(wait_s, room_bytes)
            self._indexed_bytes += indexed.size_bytes
        metrics = self._shared.metrics
        for bad in indexed.bad:
            self._alarm_about_bad(bad)
        if indexed.accepted:
            metrics.indexed.labels(self._topic).inc(indexed.accepted)
        if indexed.both_times:
            metrics.both_times.labels(self._topic).inc(indexed.both_times)
        if indexed.without_time:
            metrics.without_time.labels(self._topic).inc(indexed.without_time)

    def _wait_s(self) -> float:
        ready_ns = self._ready_in_ns(self._now_ns())
        longest_s = LOADING_WAIT_S if self._owned.is_loading or self._owned.is_busy else IDLE_WAIT_S
        held_s = self._owned.gate.wait_s(self._now_ns() // NS_PER_MS)
        if held_s is not None:
            longest_s = min(longest_s, max(held_s, (self._open_again_ns - time.monotonic_ns()) / NS_PER_S, 0.0))
        if ready_ns is None:
            return longest_s
        wait_s = ready_ns / NS_PER_S
        if wait_s > FINE_WAIT_S:
            return min(wait_s - FINE_WAIT_S / 2, longest_s)
        return max(wait_s, 0.0)

    def _ready_in_ns(self, now_ns: int) -> int | None:
        """How long until the next transaction may begin, as far as is known now; None when nothing is waiting."""
        ledger = self._owned.ledger
        owed_ms = ledger.next_owed_ms()
        # What is owed comes first whenever there is any: whatever is pending is due after W, and so after it.
        first_ms = ledger.next_releasable_ms() if owed_ms is None else owed_ms
        if first_ms is None or (owed_ms is None and not self._owned.gate.room_records):
            return None
        # Due times are of the wall clock and the pace is not: a clock that is set back must not hold up the next tick.
        return max(first_ms * NS_PER_MS - now_ns, self._open_again_ns - time.monotonic_ns())

    def _may_begin(self, now_ns: int) -> bool:
        ready_ns = self._ready_in_ns(now_ns)
        if ready_ns is not None and ready_ns <= 0:
            return True
        if self._owned.wants_commit and time.monotonic_ns() >= self._open_again_ns:
            return True
        ledger = self._owned.ledger
        stale = time.monotonic_ns() - self._last_began_ns > PROGRESS_EVERY_S * NS_PER_S
        clear = ready_ns is None or ready_ns > PROGRESS_CLEARANCE_NS
        return stale and clear and ledger.indexed_to > ledger.committed.cursor

    def _release(self, now_ns: int, chores: Chores, resumed: Sequence[Entry[Scheduled]]) -> None:
        now_ms, gate = now_ns // NS_PER_MS, self._owned.gate
        # Each record of the batch may have to be held.
        max_records = min(self._batch_records, gate.room_records)
        resumed_bytes = _bytes_of(resumed)
        max_bytes = min(self._size.limit_bytes(time.monotonic()) - resumed_bytes, gate.room_bytes)
        batch = self._owned.ledger.plan(now_ms, max_records, max_bytes, chores.installs)
        rejected_bytes = sum(size_of(refused.record) for _, refused in batch.rejected)
        size_bytes = resumed_bytes + _bytes_of(batch.late) + batch.due_bytes + rejected_bytes + chores.size_bytes
        self._indexed_bytes = 0
        self._last_began_ns = time.monotonic_ns()
        committed = False
        try:
            released = self._owned.release(batch, chores, resumed)
            committed = True
        finally:
            if not committed:
                self._size.abandoned(size_bytes)
        ended_ns = time.monotonic_ns()
        if not released.aborted:
            self._size.committed(size_bytes, (ended_ns - self._last_began_ns) / NS_PER_S, ended_ns / NS_PER_S)
        tick_ns = self._owned.settings.tick_ms * NS_PER_MS if len(batch) >= SHARED_BY else 0
        self._open_again_ns = max(ended_ns + SETTLE_NS, self._last_began_ns + tick_ns)
        self._count(batch, released, resumed, (ended_ns - self._last_began_ns) / NS_PER_S)

    def _count_held(self, released: Released, resumed: Sequence[Entry[Scheduled]]) -> None:
        metrics, now_ms = self._shared.metrics, self._shared.clock.now_ms()
        before, again = {offset for _, offset, _ in resumed}, {offset for _, offset, _ in released.held}
        for _, offset, (schedule, _, _) in released.held:
            if offset not in before:
                metrics.held.labels(self._topic, schedule.targets[0]).inc()
        for due_ms, offset, (schedule, _, record) in resumed:
            if offset in again:
                continue
            since_ms = due_ms if due_ms != AT_ONCE or record is None else record.timestamp_ms
            metrics.held_seconds.labels(self._topic, schedule.targets[0]).observe(max(0, now_ms - since_ms) / 1_000)

    def _count(
        self,
        batch: Batch[Payload, Refused],
        released: Released,
        resumed: Sequence[Entry[Scheduled]],
        seconds: float,
    ) -> None:
        metrics, topic = self._shared.metrics, self._topic
        metrics.transactions.labels(topic, "committed").inc()
        if released.aborted:
            metrics.transactions.labels(topic, "aborted").inc(released.aborted)
        metrics.transaction_seconds.labels(topic).observe(seconds)
        for target, count in released.by_target().items():
            metrics.released.labels(topic, target).inc(count)
        for reason, count in released.by_reason().items():
            metrics.rejected.labels(topic, reason).inc(count)
        if released.truncated:
            metrics.truncated.labels(topic).inc(released.truncated)
        if released.screened.lost:
            metrics.lost.labels(topic).inc(len(released.screened.lost))
            self._alarm_about_lost(released.screened.lost)
        self._count_held(released, resumed)
        held = {offset for _, offset, _ in released.held}
        due_times_ms = [due_ms for due_ms, offset, _ in batch.due if offset not in held]
        scheduled = due_times_ms[bisect_right(due_times_ms, AT_ONCE) :]
        if scheduled:
            metrics.lateness.observe(topic, scheduled, self._shared.clock.now_ms())

    def _alarm_about_bad(self, bad: BadBatch) -> None:
        count = bad.to_offset - bad.from_offset
        self._shared.metrics.lost.labels(self._topic).inc(count)
        structlog.get_logger().error(
            "records_lost",
            topic=self._topic,
            partition=self._owned.partition,
            at_most=count,
            first_offset=bad.from_offset,
            last_offset=bad.to_offset - 1,
            why=f"a batch that the client cannot read: {bad.why}",
            remedy="they are still in the delay topic: read them with another client, and send again what is wanted",
        )

    def _alarm_about_lost(self, offsets: Sequence[int]) -> None:
        structlog.get_logger().error(
            "records_lost",
            topic=self._topic,
            partition=self._owned.partition,
            count=len(offsets),
            first_offset=offsets[0],
            last_offset=offsets[-1],
            why="due, but gone from the delay topic, which alone held them",
            remedy=f"raise the retention of {self._topic} above its longest delay, or use placement inline",
        )


def _bytes_of(entries: Iterable[Entry[Payload]]) -> int:
    return sum(map(scheduled_size, [payload for _, _, payload in entries]))
