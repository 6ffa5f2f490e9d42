"""One delay partition, one worker: a thread that owns everything about it and shares nothing.

The worker takes the partition over (:mod:`sidecar.takeover`), indexes [S, C) again, and then goes round
(:mod:`sidecar.rounds`). Producer, index and open batch live and die together (:mod:`sidecar.owned`): after any error
that is not the broker's clean verdict about a record they are thrown away and the partition is taken over again, so
that what happens next is decided by the log and not by memory.
"""

import threading
import time
from dataclasses import replace

import structlog
from confluent_kafka import KafkaException

from index.errors import NotYetError, RefusedError
from index.progress import BEFORE_ALL
from sidecar import failpoints
from sidecar.config_topic import DelayTopicConfig
from sidecar.kafka_errors import classify, error_of
from sidecar.owned import Owned
from sidecar.partition_status import PartitionState, PartitionStatus
from sidecar.policies import is_drained
from sidecar.rounds import Rounds
from sidecar.shared import Shared
from sidecar.takeover import Origin

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
LOOK_AGAIN_S = 15.0
"""A refused partition looks again this often, so that a mended cause needs no restart."""

DRAINED_LOOK_S = 0.5
"""How soon a drained partition is taken over again once it may be."""

DRAIN_WITHIN_S = 15.0
"""What cannot be sealed by then, because the broker refuses it, say, is indexed again by the next owner."""

REPORT_EVERY_S = 0.25


class Worker(threading.Thread):
    """Runs one delay partition until it is told to stop."""

    def __init__(self, shared: Shared, topic: DelayTopicConfig, partition: int) -> None:
        super().__init__(name=f"{topic.name}/{partition}", daemon=True)
        self._shared = shared
        self._topic = topic
        self._partition = partition
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._log = structlog.get_logger().bind(topic=topic.name, partition=partition)
        self._pause_s = FIRST_PAUSE_S
        self.status = PartitionStatus(topic.name, partition, PartitionState.FENCING)
        self.delay_topic_id = ""
        """Of the delay topic that is served; empty until the partition is restored."""

    def stop(self) -> None:
        """Ask the worker to finish its transaction and end; join it to know when it has."""
        self._stopping.set()

    def take_over_again(self) -> None:
        """Ask the worker to begin anew: what it knows of its delay topic no longer holds."""
        self._again.set()

    def run(self) -> None:
        """Take over and serve; after an error pause, ask the group whether to go on, and take over again."""
        ours = True
        while not self._stopping.is_set():
            try:
                # Whoever was fenced must not fence the new owner in turn: only the group says whose it is.
                if self._is_to_be_drained():
                    self._pause(PartitionState.DRAINED, "drained by a policy", DRAINED_LOOK_S)
                elif ours or self._shared.still_ours(self._topic.name, self._partition):
                    ours = False
                    self._own()
                else:
                    self._pause(PartitionState.WAITING, "the group has given it to another member", self._pause_s)
            except NotYetError as error:
                self._log.warning("partition_waits", why=str(error))
                self._pause_longer(str(error))
            except RefusedError as error:
                self._refuse(error)
            except KafkaException as exception:
                self._after(exception)
            except Exception as exception:  # noqa: BLE001 - see below
                # A defect of ours. It must not end the thread in silence: say so, and let the log decide again.
                self._log.exception("partition_failed")
                self._pause(PartitionState.WAITING, f"internal error: {exception!r}", LOOK_AGAIN_S)
        self._report(PartitionState.STOPPED, "given back to the group")

    def _own(self) -> None:
        began_s = time.monotonic()
        self._report(PartitionState.FENCING)
        owned = Owned(self._shared, self._topic, self._partition)
        try:
            owned.fence(self._stopping.is_set)
            self._report(PartitionState.RESTORING)
            self._again.clear()
            origin = owned.restore()
            self.delay_topic_id = origin.delay_topic_id
            self._alarm_about_lost(origin)
            rounds = Rounds(owned, self._shared, self._topic.name)
            self._replay(owned, rounds)
            failpoints.passing("recovery.replayed")
            if not self._stopping.is_set():
                self._became_active(owned, time.monotonic() - began_s)
            self._serve(owned, rounds)
            if owned.settings.drained and not self._stopping.is_set():
                self._drain(owned, rounds)
        finally:
            owned.close()

    def _drain(self, owned: Owned, rounds: Rounds) -> None:
        """Seal what is in memory, so that the next owner finds it in buckets; give up after a while."""
        owned.drain()
        deadline_s = time.monotonic() + DRAIN_WITHIN_S
        while not owned.is_drained and not self._stopping.is_set() and time.monotonic() < deadline_s:
            rounds.once()
            self._report(PartitionState.ACTIVE, "draining", owned)
        self._log.info("partition_drained", sealed=owned.is_drained, cursor=owned.ledger.committed.cursor)

    def _is_to_be_drained(self) -> bool:
        return is_drained(self._shared.policies.table, self._topic.name)

    def _replay(self, owned: Owned, rounds: Rounds) -> None:
        while owned.ledger.replaying and not self._stopping.is_set():
            rounds.replay()
            left = owned.ledger.committed.cursor - owned.ledger.indexed_to
            self._report(PartitionState.REPLAYING, f"{max(left, 0)} records to index again", owned)

    def _serve(self, owned: Owned, rounds: Rounds) -> None:
        report_s = 0.0
        while not self._stopping.is_set() and not self._again.is_set() and not owned.settings.drained:
            rounds.once()
            now_s = time.monotonic()
            if now_s >= report_s:
                owned.serve_client()
                owned.maintain()
                if owned.settings.paused:
                    self._report(PartitionState.PAUSED, "paused by a policy", owned)
                else:
                    full = "" if owned.gate.room_records else "as many records wait for their targets as can be held"
                    self._report(PartitionState.ACTIVE, full, owned)
                report_s = now_s + REPORT_EVERY_S
                self._pause_s = FIRST_PAUSE_S

    def _became_active(self, owned: Owned, seconds: float) -> None:
        self._shared.metrics.recovery.labels(self._topic.name).observe(seconds)
        committed = owned.ledger.committed
        self._log.info(
            "partition_active",
            seconds=round(seconds, 3),
            cursor=committed.cursor,
            watermark=list(committed.watermark),
            pending=owned.ledger.pending,
        )

    def _alarm_about_lost(self, origin: Origin) -> None:
        if origin.lost:
            self._shared.metrics.lost.labels(self._topic.name).inc(origin.lost)
            self._log.error(
                "records_lost",
                at_most=origin.lost,
                needed_from=origin.progress.sealed_to - origin.lost,
                log_starts_at=origin.progress.sealed_to,
                remedy=f"raise the retention of {self._topic.name} above its longest delay",
            )

    def _after(self, exception: KafkaException) -> None:
        error = error_of(exception)
        self._log.warning("partition_interrupted", error=error.str(), code=error.name(), verdict=classify(error).name)
        self._shared.metrics.transactions.labels(self._topic.name, "abandoned").inc()
        self._pause_longer(f"{error.name()}: {error.str()}")

    def _pause_longer(self, why: str) -> None:
        self._pause(PartitionState.WAITING, why, self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _refuse(self, error: RefusedError) -> None:
        # Whoever was fenced without knowing it may miss what the new owner has removed: no reason for an alarm.
        try:
            ours = self._shared.still_ours(self._topic.name, self._partition)
        except KafkaException:
            ours = True
        if ours:
            self._log.error("partition_refused", why=str(error))
            self._pause(PartitionState.REFUSED, str(error), LOOK_AGAIN_S)
        else:
            self._pause(PartitionState.WAITING, "the group has given it to another member", self._pause_s)

    def _pause(self, state: PartitionState, why: str, seconds: float) -> None:
        self._report(state, why)
        self._stopping.wait(seconds)

    def _report(self, state: PartitionState, why: str = "", owned: Owned | None = None) -> None:
        if owned is None and state is PartitionState.DRAINED:
            # Nothing moves any more: what was last reported still holds.
            self.status = replace(self.status, state=state, why=why, reported_s=time.monotonic())
            return
        if owned is None:
            self.status = PartitionStatus(self._topic.name, self._partition, state, why)
            return
        ledger, needs = owned.ledger, owned.upkeep.needs()
        self.status = PartitionStatus(
            self._topic.name,
            self._partition,
            state,
            why,
            pending=ledger.pending + ledger.owed + owned.gate.records,
            held=owned.gate.records,
            next_due_ms=ledger.next_due_ms(),
            furthest_due_ms=ledger.furthest_due_ms(),
            lag=owned.lag(),
            cursor=ledger.committed.cursor,
            sealed_to=ledger.committed.sealed_to,
            buckets=len(ledger.parts.buckets),
            snapshot_bytes=owned.upkeep.survey.snapshot_bytes,
            by_due=owned.upkeep.survey.by_due,
            by_target=owned.upkeep.survey.by_target,
            watermark=None if ledger.committed.watermark == BEFORE_ALL else ledger.committed.watermark,
            needed_from=needs.from_offset,
            needed_since_ms=needs.since_ms,
            retention_ms=owned.upkeep.retention.keeps_ms,
        )
