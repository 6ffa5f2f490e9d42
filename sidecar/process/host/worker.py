"""The worker of one delay partition: a thread that alone owns the state of the partition.

The thread goes through the loop (:mod:`sidecar.engine.ownership.serving`), which decides, and waits where the loop
pauses. It is the process to that loop: it makes the hosts, and asks the group, the policies and the client.
"""

import sys
import threading
import traceback
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import replace

from index.partition.transaction_size import TransactionSize
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.ownership.serving import ServingLoop
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.release.transaction import MAX_BATCH_BYTES
from sidecar.kafka.client.errors import cluster_errors
from sidecar.kafka.client.throttling import Throttling
from sidecar.policies.table import is_drained
from sidecar.process.host.kafka_host import KafkaHost
from sidecar.process.host.shared import Shared
from sidecar.process.host.turnstile import Visitor, VisitorClock


class Worker(threading.Thread):
    """Runs one delay partition until it is told to stop; ``loop`` is the loop of that partition."""

    def __init__(self, shared: Shared, topic: DelayTopicConfig, partition: int) -> None:
        super().__init__(name=f"{topic.name}/{partition}", daemon=True)
        self._shared = shared
        router = shared.config.router
        self._visitor = Visitor(shared.turnstile)
        clock = VisitorClock(shared.clock, self._visitor)
        self._context = PartitionContext(
            topic, partition, router.group_id, shared.metrics, clock, shared.tracing, shared.limits
        )
        self._stopping = threading.Event()
        self.is_stopping = self._stopping.is_set
        self.doubt_topics = shared.topics_doubted.set
        self._size = TransactionSize(MAX_BATCH_BYTES, router.transaction_timeout_ms / 1_000)
        self._throttling = Throttling(shared.clock, shared.metrics.throttled.labels(topic.name).inc, self._throttled)
        self.why_slow = self._throttling.why
        self.loop = ServingLoop(
            self._context,
            self,
            self._size,
            router.batch_records,
            router.session_timeout_ms / 1_000,
            shared.config.bootstrap,
        )

    @property
    def status(self) -> PartitionStatus:
        """The last status that the loop reported."""
        return self.loop.told.last

    def stop(self) -> None:
        """Ask the worker to finish its transaction and end; join it to know when it has."""
        self._stopping.set()

    def run(self) -> None:
        """Go through the loop to its end; begin it anew after an error that it did not survive."""
        after_error_s = 0.0
        while self.status.state is not PartitionState.STOPPED:
            try:
                # Errors come in groups: the pause after one may meet the next, so it is no part of the handler.
                self._shared.clock.sleep(after_error_s)
                after_error_s = self._context.limits.first_pause_s
                with closing(self.loop.steps()) as steps:
                    for pause_s in steps:
                        if pause_s:
                            self._stopping.wait(pause_s)
            except:  # noqa: E722 - confluent-kafka was seen to raise a KafkaError, which no class of exceptions catches
                # Or the code that handles an error has met another one, as it does without memory. If the thread ended
                # here, its partition would have no owner, in silence.
                with suppress(Exception):
                    self._tell_failed()

    def _tell_failed(self) -> None:
        """Report the error being handled; the variables of a frame that goes on would keep it."""
        _, error, trace = sys.exc_info()
        at = "".join(traceback.format_tb(trace))
        self.loop.trouble.tell("partition_failed", repr(error), level="error", at=at)

    def is_drained(self) -> bool:
        """Say whether policies stop the delay topic from being served."""
        return is_drained(self._shared.policies.table, self._context.name)

    def still_ours(self) -> bool:
        """Ask the group whether this process has the partition; raise ClusterError if the group does not answer."""
        with cluster_errors():
            return self._shared.still_ours(*self._context.place)

    def host(self) -> KafkaHost:
        """Make the clients of one ownership."""
        return KafkaHost(self._shared, self._context, self._visitor, self._throttling.note)

    def errors(self) -> AbstractContextManager[None]:
        """Raise a KafkaException as a ClusterError within this context."""
        return cluster_errors()

    def _throttled(self, why: str) -> None:
        """Tell at once, in the middle of a transaction: brokers that throttle have answered."""
        self._size.throttled(self._shared.clock.running_s())
        if self.status.state is PartitionState.ACTIVE:
            self.loop.told.tell(replace(self.status, why=why))
