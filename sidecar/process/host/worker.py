"""The worker of one delay partition: a thread that alone owns the state of the partition.

The worker takes the partition over (:mod:`sidecar.engine.ownership.takeover`), indexes [S, C) again, and then does
rounds (:mod:`sidecar.engine.ownership.rounds`). Producer, index and open batch live and die together
(:mod:`sidecar.engine.ownership.owned_partition`). After any error but a clean verdict of the broker about a record,
they are thrown away, and the partition is taken over again: the log decides the next step, and not the memory.
"""

import sys
import threading
import traceback
from contextlib import ExitStack, suppress
from dataclasses import replace

import structlog

from index.errors import ClusterError, ClusterTrouble, NotYetError, RefusedError
from index.partition.transaction_size import TransactionSize
from sidecar import failpoints
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.retention import Retention
from sidecar.engine.ownership.owned_partition import OwnedPartition, take_over
from sidecar.engine.ownership.rounds import Rounds
from sidecar.engine.ownership.status import PartitionState, PartitionStatus, ToldStatus
from sidecar.engine.release.transaction import MAX_BATCH_BYTES
from sidecar.kafka.client.connections import ConnectionLostError
from sidecar.kafka.client.errors import cluster_errors
from sidecar.kafka.client.throttling import Throttling
from sidecar.logs.events import Trouble
from sidecar.policies.table import is_drained
from sidecar.process.host.kafka_host import KafkaHost
from sidecar.process.host.shared import Shared

FIRST_PAUSE_S = 0.2
LONGEST_PAUSE_S = 10.0
LOOK_AGAIN_S = 15.0
"""The pause of a refused partition before its next take-over; a mended cause needs no restart."""

DRAINED_LOOK_S = 0.5
"""The time between two looks of a drained partition at its policy; it is taken over again once it may be."""

DRAIN_WITHIN_S = 15.0
"""The longest time to drain a partition. The next owner indexes unsealed records again, such as records in segments
that a broker refuses."""

REPORT_EVERY_S = 0.25


class Worker(threading.Thread):
    """Runs one delay partition until it is told to stop."""

    def __init__(self, shared: Shared, topic: DelayTopicConfig, partition: int) -> None:
        super().__init__(name=f"{topic.name}/{partition}", daemon=True)
        self._shared = shared
        self._topic = topic
        self._partition = partition
        self._clock = shared.clock
        self._stopping = threading.Event()
        self._again = threading.Event()
        self._log = structlog.get_logger().bind(topic=topic.name, partition=partition)
        self._trouble = Trouble(self._log)
        self._pause_s = FIRST_PAUSE_S
        # No other member can have the partition if it was assigned a moment ago, or if this worker itself let it go.
        self._ours = True
        self._size = TransactionSize(MAX_BATCH_BYTES, shared.config.router.transaction_timeout_ms / 1_000)
        self._throttling = Throttling(shared.clock, shared.metrics.throttled.labels(topic.name).inc, self._throttled)
        self.told = ToldStatus(shared.clock, PartitionStatus(topic.name, partition, PartitionState.FENCING))
        self.topic_ids: dict[str, str] = {}
        """The ids of the topics of the partition, by name; empty until the partition is restored."""
        self.retention: Retention | None = None
        """The retention of the delay topic; None until it was looked at after the take-over."""
        self._after_what = ""

    @property
    def status(self) -> PartitionStatus:
        """The last status that the worker reported."""
        return self.told.last

    def stop(self) -> None:
        """Ask the worker to finish its transaction and end; join it to know when it has."""
        self._stopping.set()

    def take_over_again(self) -> None:
        """Ask the worker to begin anew: its knowledge of its topics no longer holds."""
        self._again.set()

    def run(self) -> None:
        """Take over and serve; after an error, pause, ask the group whether to go on, and take over again."""
        while not self._stopping.is_set():
            try:
                self._go_on()
            except:  # noqa: E722 - confluent-kafka was seen to raise a KafkaError, which no class of exceptions catches
                # Or the code that handles an error has met another one, as it does without memory. If the thread ended
                # here, its partition would have no owner, in silence.
                with suppress(Exception):
                    _, error, trace = sys.exc_info()
                    at = "".join(traceback.format_tb(trace))
                    self._trouble.tell("partition_failed", repr(error), level="error", at=at)
                self._clock.sleep(FIRST_PAUSE_S)
        self._report(PartitionState.STOPPED, "given back to the group")

    def _go_on(self) -> None:
        while not self._stopping.is_set():
            try:
                with cluster_errors():
                    self._turn()
            except NotYetError as error:
                self._trouble.tell("partition_waits", str(error))
                self._pause_longer(str(error))
            except RefusedError as error:
                self._refuse(error)
            except ClusterError as error:
                self._after(error)
            except Exception as exception:  # noqa: BLE001 - see below
                # A defect of the router. It must not end the thread in silence: report it, and take over again.
                self._trouble.tell("partition_failed", repr(exception), level="error", exc_info=True)
                self._pause(PartitionState.WAITING, f"internal error: {exception!r}", LOOK_AGAIN_S)

    def _turn(self) -> None:
        # A fenced worker must not fence the new owner in turn: only the group says which member has the partition.
        if self._is_to_be_drained():
            self._pause(PartitionState.DRAINED, "drained by a policy", DRAINED_LOOK_S)
        elif self._ours or self._shared.still_ours(self._topic.name, self._partition):
            self._ours = False
            self._ours = self._own()
        else:
            self._pause(PartitionState.WAITING, "the group has given it to another member", self._pause_s)

    def _own(self) -> bool:
        """Take over and serve; return whether to take over again at once, without asking the group.

        The parts of an ownership refer to each other in circles, and Python looks for circles seldom
        (:mod:`sidecar.process.garbage`). They are taken apart here. A client that stayed would keep its threads, its
        connections and one of the 1,024 thread-local keys that a process has.
        """
        began_s = self._clock.running_s()
        self._report(PartitionState.FENCING, self._after_what)
        with ExitStack() as closing:
            try:
                host = KafkaHost(self._shared, self._topic, self._partition, self._throttling.note)
                closing.callback(vars(host).clear)
                closing.callback(host.close)
                host.fence(self._stopping.is_set)
                self._report(PartitionState.RESTORING, self._after_what)
                self._again.clear()
                self.retention = None
                owned = take_over(host)
                closing.callback(vars(owned).clear)
                closing.callback(owned.close)
                self.topic_ids = host.topic_ids
                self._serve(host, owned, began_s)
            except ConnectionLostError as error:
                self._renew(error)
                # A worker that has committed a moment ago was not fenced, and its session had not ended.
                return error.since_commit_s < self._shared.config.router.session_timeout_ms / 2_000
        return False

    def _serve(self, host: KafkaHost, owned: OwnedPartition, began_s: float) -> None:
        batch_records = self._shared.config.router.batch_records
        rounds = Rounds(host.context, owned, self._size, batch_records, self.told.asking)
        self._replay(owned, rounds)
        failpoints.passing("recovery.replayed")
        if not self._stopping.is_set():
            self._became_active(owned, self._clock.running_s() - began_s)
        self._go_round(host, owned, rounds)
        if owned.settings.drained and not self._stopping.is_set():
            self._drain(owned, rounds)
        owned.give_back()

    def _drain(self, owned: OwnedPartition, rounds: Rounds) -> None:
        """Seal the records in memory, so that the next owner finds them in buckets; give up after DRAIN_WITHIN_S."""
        owned.drain()
        deadline_s = self._clock.running_s() + DRAIN_WITHIN_S
        while not owned.is_drained and not self._stopping.is_set() and self._clock.running_s() < deadline_s:
            rounds.once()
            self._report(PartitionState.ACTIVE, "draining", owned)
        self._log.info("partition_drained", sealed=owned.is_drained, cursor=owned.ledger.committed.cursor)

    def _is_to_be_drained(self) -> bool:
        return is_drained(self._shared.policies.table, self._topic.name)

    def _replay(self, owned: OwnedPartition, rounds: Rounds) -> None:
        while owned.ledger.replaying and not self._stopping.is_set():
            rounds.replay()
            left = owned.ledger.committed.cursor - owned.ledger.indexed_to
            self._report(PartitionState.REPLAYING, f"{max(left, 0)} records to index again", owned)

    def _go_round(self, host: KafkaHost, owned: OwnedPartition, rounds: Rounds) -> None:
        report_s = 0.0
        while not (self._stopping.is_set() or self._again.is_set() or owned.settings.drained or host.is_apart):
            rounds.once()
            host.serve_client()
            now_s = self._clock.running_s()
            if now_s >= report_s:
                if self.retention is not None:
                    owned.use_retention(self.retention)
                owned.maintain()
                if owned.settings.paused:
                    self._report(PartitionState.PAUSED, owned.settings.why_paused, owned)
                else:
                    full = "" if owned.gate.room_records else "as many records wait for their targets as can be held"
                    slow = full or self._throttling.why(now_s) or owned.upkeep.hidden.why(now_s)
                    doubts = owned.gate.aside.why(self._shared.config.bootstrap)
                    told = "; ".join(filter(None, (owned.settings.why_paused, doubts, slow)))
                    self._report(PartitionState.ACTIVE, told, owned)
                report_s = now_s + REPORT_EVERY_S
                self._pause_s, self._after_what = FIRST_PAUSE_S, ""

    def _throttled(self, why: str) -> None:
        """Tell at once, in the middle of a transaction: brokers that throttle have answered."""
        if self.status.state is PartitionState.ACTIVE:
            self.told.tell(replace(self.status, why=why))

    def _became_active(self, owned: OwnedPartition, seconds: float) -> None:
        self._shared.metrics.recovery.labels(self._topic.name).observe(seconds)
        committed = owned.ledger.committed
        self._log.info(
            "partition_active",
            seconds=round(seconds, 3),
            cursor=committed.cursor,
            watermark=list(committed.watermark),
            pending=owned.ledger.pending,
        )
        self._trouble.is_over()

    def _renew(self, error: ConnectionLostError) -> None:
        # No pause follows: if connections are cut all the time, each take-over is worth a transaction.
        self._log.info("partition_renewed", why=str(error))
        self._shared.metrics.renewals.labels(self._topic.name).inc()
        self._pause_s = FIRST_PAUSE_S

    def _after(self, error: ClusterError) -> None:
        self._trouble.tell("partition_interrupted", error=str(error), code=error.code, verdict=error.verdict)
        self._shared.metrics.transactions.labels(self._topic.name, "abandoned").inc()
        if error.kind is not ClusterTrouble.UNANSWERED:
            self._shared.topics_doubted.set()
        self._pause_longer(f"{error.code}: {error}")

    def _pause_longer(self, why: str) -> None:
        self._pause(PartitionState.WAITING, why, self._pause_s)
        self._pause_s = min(self._pause_s * 2, LONGEST_PAUSE_S)

    def _refuse(self, error: RefusedError) -> None:
        # A worker that was fenced unawares may miss records that the new owner has removed: no reason for an alarm.
        try:
            with cluster_errors():
                ours = self._shared.still_ours(self._topic.name, self._partition)
        except ClusterError:
            ours = True
        if ours:
            self._shared.topics_doubted.set()
            self._trouble.tell("partition_refused", str(error), level="error")
            self._pause(PartitionState.REFUSED, str(error), LOOK_AGAIN_S)
        else:
            self._pause(PartitionState.WAITING, "the group has given it to another member", self._pause_s)

    def _pause(self, state: PartitionState, why: str, seconds: float) -> None:
        # The next state may last, too, and end by the same error, so its report names the error.
        self._after_what = f"again, after: {why}"
        self._report(state, why)
        self._stopping.wait(seconds)

    def _report(self, state: PartitionState, why: str = "", owned: OwnedPartition | None = None) -> None:
        if owned is not None:
            self.told.tell(owned.status(state, why))
        elif state is PartitionState.DRAINED:
            # A drained partition does not move: the numbers of the last report still hold.
            self.told.tell(replace(self.status, state=state, why=why))
        else:
            self.told.tell(PartitionStatus(self._topic.name, self._partition, state, why))
