"""Reads the reports of routers: a thread follows them in a router, and a command reads them on demand."""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka.admin import AdminClient

from index.errors import FormatError
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import Denied, is_there, topic_facts
from sidecar.kafka.client.errors import error_of, text_of
from sidecar.kafka.reading.following import TopicFollower
from sidecar.logs.events import Trouble
from sidecar.operations.status.report_log import ReportLog
from sidecar.operations.status.reports import GroupReports, Reported, RouterReport, Vitals

POLL_S: Final = 0.1
AFTER_ERROR_S: Final = 1.0
LOOK_AGAIN_S: Final = 5.0
FORGET_EVERY_S: Final = 10.0
CLOSE_WITHIN_S: Final = 2.0
"""Time for the thread to end. A router that exits before it would leave a client half closed."""


class Reports(Protocol):
    """The reports of a group; safe from any thread, but for ``start`` and ``close``."""

    def start(self) -> None:
        """Begin to follow the status topic; do nothing in an implementation that reads on demand."""

    def close(self) -> None:
        """Give the client back."""

    def wait(self, timeout_s: float) -> None:
        """Wait until every report has been read once or none can be read, at most ``timeout_s``."""

    def reported(self) -> tuple[list[Reported], dict[str, str]]:
        """Return the partitions that routers have reported lately, and the kernel of each router by its name."""

    def last_told(self) -> dict[Place, Reported]:
        """Return the last report of each partition, however old it is."""

    def vitals(self) -> dict[str, Vitals]:
        """Return the last vitals that each router has reported, by its name."""


Listener = Callable[[RouterReport, int, int], None]
"""Takes each part of a report that is read, with its time and its offset."""


def _nobody(_report: RouterReport, _at_ms: int, _offset: int) -> None:
    """Do nothing, where nobody listens."""


class _Known:
    """Implements the questions of :class:`Reports`."""

    def __init__(self, config: Config, now_ms: Callable[[], int], listener: Listener = _nobody) -> None:
        self._now_ms = now_ms
        self._reports = GroupReports(config.router.group_id)
        self._listener = listener
        self._lock = threading.Lock()

    def take_in(self, messages: Iterable[Message], trouble: Trouble) -> None:
        with self._lock:
            for each in messages:
                at_ms, offset = each.timestamp()[1], each.offset() or 0
                try:
                    report = self._reports.add(each.key(), each.value(), at_ms, offset)
                except FormatError as failure:
                    trouble.tell("report_unreadable", str(failure))
                else:
                    if report is not None:
                        self._listener(report, at_ms, offset)

    def forget(self) -> None:
        with self._lock:
            self._reports.forget(self._now_ms())

    def reported(self) -> tuple[list[Reported], dict[str, str]]:
        with self._lock:
            now_ms = self._now_ms()
            return list(self._reports.reported(now_ms)), self._reports.kernels(now_ms)

    def last_told(self) -> dict[Place, Reported]:
        with self._lock:
            return self._reports.last_told()

    def vitals(self) -> dict[str, Vitals]:
        with self._lock:
            return self._reports.vitals()


class ReportReader(TopicFollower):
    """Follows the reports in a thread until it is closed; implements :class:`Reports`."""

    def __init__(
        self, config: Config, admin: AdminClient, now_ms: Callable[[], int], listener: Listener = _nobody
    ) -> None:
        self._topic = config.router.status_topic
        log = structlog.get_logger().bind(status_topic=self._topic)
        super().__init__("status_reading", log, stop_within_s=CLOSE_WITHIN_S)
        self._config = config
        self._admin = admin
        self._now_ms = now_ms
        self._known = _Known(config, now_ms, listener)
        self.reported = self._known.reported
        self.last_told = self._known.last_told
        self.vitals = self._known.vitals
        self._read = threading.Event()

    def wait(self, timeout_s: float) -> None:
        """Wait as ``Reports.wait`` says."""
        self._read.wait(timeout_s)

    def close(self) -> None:
        """End the thread."""
        self.stop()

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
        reports = ReportLog(self._config, self._now_ms)
        try:
            reports.look()
            self._read_on(reports)
        finally:
            reports.close()

    def _read_on(self, reports: ReportLog) -> None:
        forget_s = time.monotonic() + FORGET_EVERY_S
        while not self._stopping.is_set():
            if reports.is_read:
                self._read.set()
                self._trouble.is_over()
            self._known.take_in(reports.take(POLL_S), self._trouble)
            if time.monotonic() > forget_s:
                self._known.forget()
                forget_s = time.monotonic() + FORGET_EVERY_S


class ReportsOnDemand:
    """Reads the reports in the calling thread, for a command that ends soon.

    Implements :class:`Reports`, for one thread.
    """

    def __init__(self, config: Config, admin: AdminClient, now_ms: Callable[[], int]) -> None:
        self._config = config
        self._admin = admin
        self._now_ms = now_ms
        self._log: ReportLog | None = None
        self._known = _Known(config, now_ms)
        self.reported = self._known.reported
        self.last_told = self._known.last_told
        self.vitals = self._known.vitals
        self._trouble = Trouble(structlog.get_logger().bind(status_topic=config.router.status_topic))

    def start(self) -> None:
        """Do nothing: ``wait`` reads the reports."""

    def wait(self, timeout_s: float) -> None:
        """Read the reports up to the present end of the topic."""
        until_s = time.monotonic() + timeout_s
        try:
            log = self._up_to_now()
            while log is not None and not log.is_read and time.monotonic() < until_s:
                self._known.take_in(log.take(POLL_S), self._trouble)
        except KafkaException as exception:
            self._trouble.tell("status_not_read", text_of(error_of(exception)))

    def close(self) -> None:
        """Give the client back."""
        if self._log is not None:
            self._log.close()

    def _up_to_now(self) -> ReportLog | None:
        """Return the log with its present end noted; None where the status topic does not exist."""
        if self._log is None:
            if not is_there(self._admin, self._config.router.status_topic):
                return None
            # Keep the log before the first look, so that ``close`` closes it even when the look fails.
            self._log = ReportLog(self._config, self._now_ms)
        self._log.look()
        return self._log
