"""Reading reports: up to the end of the topic, without waiting for reports to come."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, KafkaError, KafkaException, TopicPartition

from sidecar.config.model import Config
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.kafka.client import clients
from sidecar.operations.status import report_reader
from sidecar.operations.status.report_log import FROM_MS, LAST_REPORTS, ReportLog
from sidecar.operations.status.report_reader import ReportReader, ReportsOnDemand
from sidecar.operations.status.reports import RouterReport, encode_report, report_key

NOW_MS = 1_800_000_000_000
CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
)
GROUP = CONFIG.router.group_id


class Message:
    """A record, or an error at an offset."""

    def __init__(self, offset: int, key: bytes = b"", value: bytes = b"", code: int = 0) -> None:
        self._offset, self._key, self._value, self._code = offset, key, value, code

    def topic(self) -> str:
        return CONFIG.router.status_topic

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return TIMESTAMP_CREATE_TIME, NOW_MS

    def error(self) -> KafkaError | None:
        return KafkaError(self._code) if self._code else None


class Log:
    """A status topic whose records begin at ``first``, and its consumer, which gets only queued messages."""

    def __init__(self) -> None:
        self.first = 0
        self.end = 0
        self.of_last_minute = -1
        self.assigned: list[int] = []
        self.queue: deque[Message] = deque()
        self.closed = 0

    def report(self, partition: int) -> None:
        status = PartitionStatus("d", partition, PartitionState.ACTIVE)
        (value,) = encode_report(GROUP, f"r-{partition}", "native", [status])
        self.queue.append(Message(self.end, report_key(GROUP, f"r-{partition}", 0), value))
        self.end += 1

    def fail(self, code: int) -> None:
        self.queue.append(Message(self.end, code=code))

    def offsets_for_times(self, places: Sequence[TopicPartition], timeout: float) -> list[TopicPartition]:
        (place,) = places
        assert (place.topic, place.partition, place.offset) == (CONFIG.router.status_topic, 0, NOW_MS - FROM_MS)
        return [TopicPartition(place.topic, 0, self.of_last_minute)]

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return self.first, self.end

    def assign(self, places: Sequence[TopicPartition]) -> None:
        self.assigned += [place.offset for place in places]

    def poll(self, wait_s: float) -> Message:
        assert self.queue, "it waits for what nobody has written"
        return self.queue.popleft()

    def consume(self, count: int, wait_s: float) -> list[Message]:
        taken, self.queue = [*self.queue][:count], deque([*self.queue][count:])
        return taken

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(clients, "report_reader", lambda _: made)
    monkeypatch.setattr(report_reader, "is_there", lambda *_: True)
    return made


def on_demand() -> ReportsOnDemand:
    client: Any = None
    return ReportsOnDemand(CONFIG, client, lambda: NOW_MS)


def known(reports: ReportsOnDemand) -> set[int]:
    return {each.status.partition for each in reports.reported()[0]}


def test_a_command_reads_what_there_is_and_waits_for_no_more(log: Log) -> None:
    reports = on_demand()
    log.report(0)
    log.report(1)
    reports.wait(10)
    assert known(reports) == {0, 1}
    assert reports.reported()[1] == {"r-0": "native", "r-1": "native"}
    # A second question, as ``--watch`` asks it.
    log.report(2)
    reports.wait(10)
    assert known(reports) == {0, 1, 2}
    reports.wait(10)
    assert log.assigned == [0], "one client reads on"
    reports.close()
    assert log.closed == 1


def test_each_report_that_a_router_reads_is_passed_on(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_reader, "topic_facts", lambda _, names: dict.fromkeys(names, "there"))
    told: list[tuple[str, list[int], int]] = []

    def listener(report: RouterReport, _: int, offset: int) -> None:
        told.append((report.instance, [each.partition for each in report.statuses], offset))

    client: Any = None
    log.report(0)
    log.report(1)
    reader = ReportReader(CONFIG, client, lambda: NOW_MS, listener)
    reader.start()
    reader.wait(10)
    reader.close()
    assert told == [("r-0", [0], 0), ("r-1", [1], 1)]
    assert reader.vitals() == {}


def test_nothing_is_waited_for_where_nobody_has_reported(log: Log) -> None:
    reports = on_demand()
    reports.wait(10)
    assert reports.reported() == ([], {})


def test_the_end_may_lie_behind_the_last_record(log: Log) -> None:
    log.report(0)
    log.end = 7
    log.fail(KafkaError._PARTITION_EOF)
    reports = on_demand()
    reports.wait(10)
    assert known(reports) == {0}


def test_without_the_topic_nothing_is_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_reader, "is_there", lambda *_: False)
    reports = on_demand()
    reports.wait(10)
    reports.close()
    assert (log.assigned, log.closed, known(reports)) == ([], 0, set())


def test_what_cannot_be_read_ends_the_wait_and_the_client_is_given_back(log: Log) -> None:
    log.end = 1
    log.fail(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reports = on_demand()
    reports.wait(10)
    reports.close()
    assert (known(reports), log.closed) == (set(), 1)


@pytest.mark.parametrize(
    ("first", "end", "of_last_minute", "begins"),
    [(0, 5, -1, 0), (900, 1_000, 990, 900), (0, 1_000, -1, 1_000 - LAST_REPORTS), (0, 1_000, 200, 200)],
)
def test_it_begins_a_minute_ago_and_with_the_last_reports(
    log: Log, first: int, end: int, of_last_minute: int, begins: int
) -> None:
    log.first, log.end, log.of_last_minute = first, end, of_last_minute
    reading = ReportLog(CONFIG, lambda: NOW_MS)
    reading.look()
    assert (log.assigned, reading.is_read) == ([begins], False)


def test_an_error_of_the_topic_is_raised(log: Log) -> None:
    log.fail(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reading = ReportLog(CONFIG, lambda: NOW_MS)
    reading.look()
    with pytest.raises(KafkaException):
        reading.take(0)
