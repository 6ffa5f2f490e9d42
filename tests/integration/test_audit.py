"""Tests of the auditor on a real broker: it finds planted errors, and reads to the very end and no further."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from sidecar.dev import local_kafka
from sidecar.dev.audit import AuditError, AuditReport, audit, ranges, read
from sidecar.dev.audit.__main__ import main
from sidecar.dev.audit.record import Header
from tests.conftest import MakeTopic

APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
AFTER: Header = ("deliver-after", b"1")


class Stage:
    """A delay, a target and a rejected topic, which the test writes to like a router, with or without errors."""

    def __init__(self, bootstrap: str, make_topic: MakeTopic) -> None:
        self.kafka = {"bootstrap.servers": bootstrap}
        self.delay = make_topic("audit.delay", 2)
        self.target = make_topic("audit.target", 2, APPEND_TIME)
        self.rejected = make_topic("audit.rejected", 1, APPEND_TIME)
        self.producer = Producer({**self.kafka, "linger.ms": 0})
        self.router = Producer({**self.kafka, "linger.ms": 0, "transactional.id": self.delay})
        self.router.init_transactions()

    def send(self, *headers: Header, value: bytes = b"v") -> str:
        """Write to the delay topic and return the place of the record."""
        places: list[str] = []
        self.producer.produce(
            self.delay,
            value,
            key=b"k",
            headers=list(headers),
            on_delivery=lambda _, sent: places.append(f"{sent.topic()}/{sent.partition()}/{sent.offset()}"),
        )
        self.producer.flush()
        return places[0]

    def release(self, source: str, *, value: bytes = b"v", partition: int = 0, commit: bool = True) -> None:
        """Write a released record in a transaction of its own."""
        self.router.begin_transaction()
        headers: list[tuple[str, str | bytes | None]] = [("delay-source", source.encode())]
        self.router.produce(self.target, value, key=b"k", partition=partition, headers=headers)
        self.router.flush()
        if commit:
            self.router.commit_transaction()
        else:
            self.router.abort_transaction()

    def audit(self) -> AuditReport:
        time.sleep(0.01)  # past the due times, which are 1 ms after sending
        return audit(self.kafka, delay=[self.delay], targets=[self.target], rejected=[self.rejected], receipts=[])


@pytest.fixture
def stage(kafka: local_kafka.Cluster, make_topic: MakeTopic) -> Stage:
    return Stage(kafka.bootstrap, make_topic)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_nothing_wrong_is_found_where_nothing_is_wrong(stage: Stage) -> None:
    assert stage.audit().summary() == "sent 0, released once 0, rejected 0, duplicated 0, early 0, lost 0"
    for number in range(10):
        source = stage.send(AFTER, ("n", b"%d" % number))
        time.sleep(0.002)
        stage.router.begin_transaction()
        headers: list[tuple[str, str | bytes | None]] = [("n", b"%d" % number), ("delay-source", source.encode())]
        stage.router.produce(stage.target, b"v", key=b"k", headers=headers)
        stage.router.commit_transaction()
    wait_for(lambda: stage.audit().lost == 0)
    report = stage.audit()
    assert report.ok
    assert (report.sent, report.released_once, report.create_time) == (10, 10, 0)
    assert all(0 <= late_ms < 60_000 for late_ms in report.lateness_ms)


def test_what_is_planted_is_found(stage: Stage) -> None:
    good, lost, doubled, altered = (stage.send(AFTER) for _ in range(4))
    early = stage.send(("deliver-after", b"PT1H"))
    pending = stage.send(("deliver-after", b"PT1H"))
    time.sleep(0.01)
    for source in (good, doubled, doubled, early):
        stage.release(source)
    stage.release(altered, value=b"w")
    stage.release(f"{stage.delay}/0/999")
    wait_for(lambda: stage.audit().foreign == 1)
    report = stage.audit()
    assert (report.sent, report.released_once, report.rejected) == (6, 3, 0)
    assert (report.lost, report.duplicated, report.early, report.altered, report.pending) == (1, 1, 1, 1, 1)
    assert not report.ok
    for count, place in (("lost", lost), ("duplicated", doubled), ("early", early), ("altered", altered)):
        assert [line.split(": ")[0] for line in report.samples[count]] == [place]
    assert pending not in str(report.samples)


def test_a_copy_in_an_aborted_transaction_does_not_count(stage: Stage) -> None:
    source = stage.send(AFTER)
    stage.release(source, commit=False)
    assert stage.audit().lost == 1
    stage.release(source)
    stage.release(source, commit=False)
    wait_for(lambda: stage.audit().lost == 0)
    report = stage.audit()
    assert report.ok
    assert report.released_once == 1


def test_an_open_transaction_is_neither_counted_nor_waited_for(stage: Stage) -> None:
    source = stage.send(AFTER)
    stage.release(source)
    stage.router.begin_transaction()
    headers: list[tuple[str, str | bytes | None]] = [("delay-source", source.encode())]
    stage.router.produce(stage.target, b"v", key=b"k", partition=0, headers=headers)
    stage.router.flush()
    wait_for(lambda: stage.audit().lost == 0)
    assert stage.audit().ok
    stage.router.commit_transaction()
    wait_for(lambda: stage.audit().duplicated == 1)


def test_markers_and_aborted_records_at_the_end_are_read_past(stage: Stage) -> None:
    source = stage.send(AFTER)
    stage.release(source, partition=1)
    for _ in range(3):
        stage.release(source, partition=1, commit=False)
    wait_for(lambda: ranges(stage.kafka, [stage.target])[stage.target, 1] == (0, 8))
    found = list(read(stage.kafka, ranges(stage.kafka, [stage.target])))
    assert [(record.partition, record.offset, record.appended) for record in found] == [(1, 0, True)]


def test_what_comes_after_the_ends_is_not_read(stage: Stage) -> None:
    stage.send(AFTER, value=b"before")
    edges = ranges(stage.kafka, [stage.delay])
    stage.send(AFTER, value=b"after")
    assert [record.value for record in read(stage.kafka, edges)] == [b"before"]


def test_a_target_of_create_times_is_named(stage: Stage, make_topic: MakeTopic) -> None:
    source = stage.send(AFTER)
    stage.target = make_topic("audit.create-time")
    stage.release(source)
    wait_for(lambda: stage.audit().lost == 0)
    assert stage.audit().create_time == 1


def test_a_missing_topic_is_named(stage: Stage) -> None:
    with pytest.raises(AuditError, match="no-such-topic"):
        audit(stage.kafka, delay=[stage.delay], targets=["no-such-topic"], rejected=[], receipts=[])


def test_from_the_shell(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    source = stage.send(AFTER)
    call = ["--bootstrap", stage.kafka["bootstrap.servers"], "--delay", f"{stage.delay}={stage.target}"]
    call += ["--targets", stage.target, "--rejected", stage.rejected, "--grace-ms", "0"]
    time.sleep(0.01)
    assert main(call) == 1
    shown = capsys.readouterr()
    assert shown.out == "sent 1, released once 0, rejected 0, duplicated 0, early 0, lost 1\n"
    assert source in shown.err
    stage.release(source)
    wait_for(lambda: main(call) == 0)
    assert capsys.readouterr().out.endswith("released once 1, rejected 0, duplicated 0, early 0, lost 0\n")
