"""Publishes the partitions of this router, in a thread and with a producer of its own: releases never wait for it.

A report that fails is not repeated: the next report follows.
"""

import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from sidecar.config.model import Config
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import Denied, topic_facts
from sidecar.kafka.client.errors import text_of
from sidecar.kafka.reading.following import TopicFollower
from sidecar.operations.status.reports import Vitals, encode_report, report_key, with_vitals

CHANGED_EVERY_S: Final = 1.0
AT_LEAST_EVERY_S: Final = 10.0
LOOK_AGAIN_S: Final = 30.0
"""Pause between two looks for a status topic that is missing or that the router may not write to."""

WRITE_TIMEOUT_S: Final = 5.0
LAST_REPORT_S: Final = 2.0
"""Time for the last report, which says that this router holds no partition any more."""


def instance_name(config: Config) -> str:
    """Return the name of this router in answers: the configured one, or its host and process."""
    return (config.router.instance_id or f"{socket.gethostname()}-{os.getpid()}").replace("/", "_")


class ReportPublisher(TopicFollower):
    """Publishes reports until it is stopped; the last one says that it has stopped and where its partitions stood.

    ``ends`` says that the process gives its partitions up to end; before that they have gone to other routers.
    """

    def __init__(
        self,
        config: Config,
        admin: AdminClient,
        statuses: Callable[[], Sequence[PartitionStatus]],
        instance: str,
        kernel: str,
        ends: Callable[[], bool],
        vitals: Callable[[], Vitals],
    ) -> None:
        self._topic = config.router.status_topic
        log = structlog.get_logger().bind(status_topic=self._topic)
        super().__init__("status", log, stop_within_s=LAST_REPORT_S)
        self._config = config
        self._admin = admin
        self._statuses = statuses
        self._instance = instance
        self._kernel = kernel
        self._ends = ends
        self._vitals = vitals
        self._last: list[bytes] = []

    def _follow(self) -> None:
        if self._is_there():
            self._publish_until_stopped()
        else:
            self._stopping.wait(LOOK_AGAIN_S)

    def _interrupted(self, error: KafkaError) -> float:
        self._trouble.tell("status_not_reported", text_of(error))
        return LOOK_AGAIN_S if error.code() in _NOT_SOON else AT_LEAST_EVERY_S

    def _is_there(self) -> bool:
        # A report to a missing topic could make the brokers create the topic with their defaults.
        found = topic_facts(self._admin, [self._topic])[self._topic]
        if found is None:
            self._trouble.tell(
                "status_topic_missing", "others cannot answer for this router; create it: delay-router init"
            )
        elif isinstance(found, Denied):
            self._trouble.tell("status_topic_denied", "others cannot answer for this router; see delay-router check")
        return found is not None and not isinstance(found, Denied)

    def _publish_until_stopped(self) -> None:
        producer = clients.report_writer(self._config, WRITE_TIMEOUT_S)
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failed.append(error)

        def publish(values: Sequence[bytes]) -> None:
            vitals = self._vitals()
            for part in range(max(len(values), len(self._last))):
                # A part that the report no longer has is overwritten with a part without partitions.
                value = values[part] if part < len(values) else self._encoded(())[0]
                key = report_key(group, self._instance, part)
                producer.produce(self._topic, with_vitals(value, vitals), key, 0, on_delivery=delivered)
            left = producer.flush(WRITE_TIMEOUT_S + 1)
            producer.purge()
            if failed or left:
                self._last = []
                raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT, "not written in time"))
            self._last = list(values)
            self._trouble.is_over()

        group = self._config.router.group_id
        published_s = 0.0
        held: Sequence[PartitionStatus] = ()
        while not self._stopping.wait(CHANGED_EVERY_S):
            statuses = self._statuses()
            # The last report must say where the partitions stood that the router gave up to end. It began to end before
            # that. Other routers tell of partitions that have gone to them.
            held = statuses or (held if self._ends() else ())
            values = self._encoded(statuses)
            if values != self._last or time.monotonic() - published_s >= AT_LEAST_EVERY_S:
                publish(values)
                published_s = time.monotonic()
        publish(self._encoded([replace(each, state=PartitionState.STOPPED) for each in held]))

    def _encoded(self, statuses: Sequence[PartitionStatus]) -> list[bytes]:
        return encode_report(self._config.router.group_id, self._instance, self._kernel, statuses)


_NOT_SOON: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART})


def publish(
    config: Config,
    admin: AdminClient,
    statuses: Callable[[], Sequence[PartitionStatus]],
    kernel: str,
    ends: Callable[[], bool],
    vitals: Callable[[], Vitals],
) -> Callable[[], None]:
    """Publish this router's partitions, kernel and vitals from now on; return the function that ends it."""
    if not config.router.status_topic:
        return lambda: None
    publisher = ReportPublisher(config, admin, statuses, instance_name(config), kernel, ends, vitals)
    publisher.start()
    return publisher.stop
