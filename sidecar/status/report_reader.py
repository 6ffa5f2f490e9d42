"""Following the status topic: one thread, from the reports of the last minute on, and some more.

The last ones are read however old they are: where no router runs any more, they tell when that was.
"""

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import FormatError
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import Denied, Place, topic_facts
from sidecar.kafka.errors import text_of
from sidecar.kafka.following import TopicFollower
from sidecar.status.reports import GroupReports, Reported

FROM_MS: Final = 60_000
LAST_REPORTS: Final = 100
"""So many are read at least."""

POLL_S: Final = 0.1
AFTER_ERROR_S: Final = 1.0
LOOK_AGAIN_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0
FORGET_EVERY_S: Final = 10.0
CLOSE_WITHIN_S: Final = 2.0
"""A command that exits under the thread would leave a client half closed."""


class ReportReader(TopicFollower):
    """Keeps what routers report until it is stopped."""

    def __init__(self, config: Config, admin: AdminClient, now_ms: Callable[[], int]) -> None:
        self._topic = config.router.status_topic
        log = structlog.get_logger().bind(status_topic=self._topic)
        super().__init__("status_reading", log, stop_within_s=CLOSE_WITHIN_S)
        self._config = config
        self._admin = admin
        self._now_ms = now_ms
        self._reports = GroupReports(config.router.group_id)
        self._lock = threading.Lock()
        self._read = threading.Event()

    def wait(self, timeout_s: float) -> None:
        """Wait until everything that was there has been read once, or nothing can be; not longer than this."""
        self._read.wait(timeout_s)

    def reported(self) -> tuple[list[Reported], dict[str, str]]:
        """All that routers have reported lately, and the kernel of each by its name."""
        with self._lock:
            now_ms = self._now_ms()
            return list(self._reports.reported(now_ms)), self._reports.kernels(now_ms)

    def last_told(self) -> dict[Place, Reported]:
        """What was told of each partition last, however long ago."""
        with self._lock:
            return self._reports.last_told()

    def _interrupted(self, error: KafkaError) -> float:
        self._trouble.tell("status_not_read", text_of(error))
        self._read.set()
        return AFTER_ERROR_S

    def _is_there(self) -> bool:
        found = topic_facts(self._admin, [self._topic])[self._topic]
        if isinstance(found, Denied):
            self._trouble.tell(
                "status_topic_denied", "this router answers for its own partitions only; see delay-router check"
            )
        return found is not None and not isinstance(found, Denied)

    def _follow(self) -> None:
        if not self._is_there():
            self._read.set()
            self._stopping.wait(LOOK_AGAIN_S)
            return
        consumer = clients.report_reader(self._config)
        try:
            (start,) = consumer.offsets_for_times(
                [TopicPartition(self._topic, 0, self._now_ms() - FROM_MS)], timeout=REQUEST_TIMEOUT_S
            )
            if start.error is not None:
                raise KafkaException(start.error)
            first, end = consumer.get_watermark_offsets(start, timeout=REQUEST_TIMEOUT_S)
            last_ones = max(end - LAST_REPORTS, first)
            start.offset = last_ones if start.offset < 0 else min(start.offset, last_ones)
            consumer.assign([start])
            self._read_on(consumer)
        finally:
            consumer.close()

    def _read_on(self, consumer: Consumer) -> None:
        forget_s = time.monotonic() + FORGET_EVERY_S
        while not self._stopping.is_set():
            first = consumer.poll(POLL_S)
            with self._lock:
                for message in [first, *consumer.consume(500, 0)] if first is not None else ():
                    self._take_in(message)
                if time.monotonic() > forget_s:
                    self._reports.forget(self._now_ms())
                    forget_s = time.monotonic() + FORGET_EVERY_S

    def _take_in(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            self._read.set()
            self._trouble.is_over()
            return
        try:
            self._reports.add(message.key(), message.value(), message.timestamp()[1], message.offset() or 0)
        except FormatError as failure:
            self._trouble.tell("report_unreadable", str(failure))
