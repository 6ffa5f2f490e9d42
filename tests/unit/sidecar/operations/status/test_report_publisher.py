"""The times at which a router reports, and its reaction to failures; no Kafka."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError
from structlog.testing import capture_logs

from sidecar.config.model import Config
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import Denied, TopicFacts
from sidecar.operations.status import report_publisher, reports
from sidecar.operations.status.report_publisher import ReportPublisher, instance_name
from sidecar.operations.status.reports import Vitals

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "b:1"}, "router": {"instance_id": "r/1", "status_topic": "s"}}
)
FACTS = TopicFacts("s", "id", 1, 1, frozenset(), {})


class Broker:
    """A producer that notes written records, and fails when the test says so."""

    def __init__(self) -> None:
        self.found: TopicFacts | Denied | None = FACTS
        self.fails = False
        self.last_states: list[str] = []
        self.last_vitals: dict[str, Any] = {}
        self.written: list[tuple[float, bytes, list[int]]] = []
        self._waiting: list[Callable[..., None]] = []

    def produce(self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Callable[..., None]) -> None:
        assert (topic, partition) == ("s", 0)
        told = json.loads(value)["partitions"]
        self.last_vitals = json.loads(value)["vitals"]
        numbers = [each["partition"] for each in told]
        self.last_states = [each["state"] for each in told]
        self.written.append((time.monotonic(), key, numbers))
        self._waiting.append(on_delivery)

    def flush(self, _: float) -> int:
        for each in self._waiting:
            each(KafkaError(KafkaError._TIMED_OUT) if self.fails else None, None)
        self._waiting = []
        return 0

    def purge(self) -> None:
        """Do nothing: no record waits."""


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Make a broker, and set pauses that a test can wait for."""
    made = Broker()
    monkeypatch.setattr(report_publisher, "topic_facts", lambda *_: {"s": made.found})
    monkeypatch.setattr(clients, "report_writer", lambda *_: made)
    for name, seconds in (("CHANGED_EVERY_S", 0.05), ("AT_LEAST_EVERY_S", 0.5), ("LOOK_AGAIN_S", 0.05)):
        monkeypatch.setattr(report_publisher, name, seconds)
    return made


class Running:
    """A publisher and the statuses it reports."""

    def __init__(self) -> None:
        self.statuses = [PartitionStatus("d", 0, PartitionState.ACTIVE)]
        self.ends = False
        self.vitals = Vitals("0.2.0", "one", 5, 0.25, 7)
        client: Any = None
        asked = (lambda: self.statuses), "r", "native", (lambda: self.ends), (lambda: self.vitals)
        self.publisher = ReportPublisher(CONFIG, client, *asked)


@pytest.fixture
def running() -> Iterator[Running]:
    """Yield a publisher, and stop it at the end of the test."""
    made = Running()
    yield made
    made.publisher.stop()
    assert not made.publisher.is_alive()


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        threading.Event().wait(0.01)


def test_it_reports_what_changes_at_once_and_what_does_not_now_and_then(broker: Broker, running: Running) -> None:
    running.publisher.start()
    until(lambda: len(broker.written) >= 3)
    times = [at for at, _, _ in broker.written]
    assert min(two - one for one, two in pairwise(times)) > 0.4
    before = len(broker.written)
    # Vitals, which always differ, are no news by themselves.
    running.vitals = Vitals("0.2.0", "one", 5, 0.75, 7)
    until(lambda: broker.last_vitals["cpu_cores"] == 0.75)
    assert len(broker.written) <= before + 2
    before = len(broker.written)
    running.statuses = [PartitionStatus("d", number, PartitionState.ACTIVE) for number in (0, 1)]
    until(lambda: broker.written[-1][2] == [0, 1])
    assert len(broker.written) <= before + 2
    running.publisher.stop()
    assert broker.last_states == ["stopped", "stopped"], "the last report gives everything up"
    assert {key for _, key, _ in broker.written} == {b"delay-router/r/0"}


@pytest.mark.parametrize(("ends", "states"), [(True, ["stopped"]), (False, [])])
def test_the_last_report_tells_only_of_partitions_that_were_held_to_the_end(
    broker: Broker, running: Running, ends: bool, states: list[str]
) -> None:
    running.publisher.start()
    until(lambda: broker.last_states == ["active"])
    running.ends, running.statuses = ends, []
    until(lambda: broker.last_states == [])
    running.publisher.stop()
    assert broker.last_states == states


def test_a_part_that_is_no_more_is_emptied(broker: Broker, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "PARTITIONS_A_PART", 1)
    running.statuses = [PartitionStatus("d", number, PartitionState.ACTIVE) for number in (0, 1)]
    running.publisher.start()
    until(lambda: len(broker.written) >= 2)
    running.statuses = running.statuses[1:]
    until(lambda: broker.written[-1][1:] == (b"delay-router/r/1", []))
    assert broker.written[-2][1:] == (b"delay-router/r/0", [1])


@pytest.mark.parametrize(
    ("found", "event"), [(None, "status_topic_missing"), (Denied("s"), "status_topic_denied")], ids=["gone", "denied"]
)
def test_without_the_topic_it_says_so_once_and_writes_nothing(
    broker: Broker, running: Running, found: Denied | None, event: str
) -> None:
    broker.found = found
    with capture_logs() as logs:
        running.publisher.start()
        time.sleep(0.5)
        assert broker.written == []
        broker.found = FACTS
        until(lambda: bool(broker.written))
    assert [each["event"] for each in logs] == [event]


def test_what_fails_is_told_once_and_tried_again(broker: Broker, running: Running) -> None:
    broker.fails = True
    with capture_logs() as logs:
        running.publisher.start()
        until(lambda: len(broker.written) >= 2)
        broker.fails = False
        tried = len(broker.written)
        until(lambda: len(broker.written) >= tried + 3)
    assert [each["event"] for each in logs] == ["status_not_reported"]


def test_a_router_has_a_name_without_slashes() -> None:
    assert instance_name(CONFIG) == "r_1"
    unnamed = CONFIG.model_copy(update={"router": CONFIG.router.model_copy(update={"instance_id": ""})})
    assert instance_name(unnamed)
    assert "/" not in instance_name(unnamed)
