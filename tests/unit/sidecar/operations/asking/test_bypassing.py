"""Targets that get records which producers should write to the delay topic, as ``check`` reports them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import IsolationLevel, KafkaError
from confluent_kafka.admin import OffsetSpec

from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset
from sidecar.operations.asking import bypassing
from sidecar.operations.asking.bypassing import targets_of, told
from sidecar.operations.status import target_tails
from sidecar.operations.status.target_tails import NEWEST, TargetTail, bypassed_by, tails

CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "b:1"},
        "delay_topics": [
            {"name": "audit.delay", "default_target": "audit", "allowed_targets": ["orders", "eu.*"]},
            {"name": "orders.delay", "default_target": "orders"},
        ],
    }
)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize(
    ("headers", "header"),
    [
        ([], ""),
        ([("trace", b"1"), ("delivery", b"x")], ""),
        ([("trace", b"1"), ("DELIVER-After", None)], "deliver-after"),
        ([("deliver-at", b"1"), ("deliver-to", b"x")], "deliver-at"),
        ([("deliver-at", b"1"), ("delay-source", b"orders.delay/0/1")], ""),
        ([("Delay-Source", b"orders.delay/0/1"), ("deliver-at", b"1")], ""),
    ],
)
def test_only_control_headers_without_the_mark_of_a_router_tell(headers: Any, header: str) -> None:
    assert bypassed_by(headers) == header


def test_targets_are_all_that_records_may_be_released_to() -> None:
    existing = ["orders", "orders.delay", "orders.delay.delay-state", "audit", "eu.a", "eu.b", "eu.b.delay-state", "x"]
    assert targets_of(CONFIG, existing) == {
        "audit": ["audit.delay"],
        "eu.a": ["audit.delay"],
        "orders": ["orders.delay", "audit.delay"],
    }


def test_what_was_written_past_the_delay_topic_is_warned_of_with_the_topic_to_write_to() -> None:
    read = {
        "audit": TargetTail(5),
        "orders": TargetTail(90, 7, "deliver-at", "orders/2/17", 5),
        "eu.a": TargetTail(3, 1, "deliver-to", "eu.a/0/1", 5, "not all of them came within 5 s"),
    }
    targets = {"audit": ["audit.delay"], "orders": ["orders.delay", "audit.delay"], "eu.a": ["audit.delay"]}
    bypassed, other, unread = told(targets, read)
    assert (bypassed.level, bypassed.thing, bypassed.topic) == (Level.WARN, "target topic orders", "orders.delay")
    assert bypassed.message == (
        "producers write deliver-at to orders itself, where it delays nothing: 7 of the newest 90 records that were"
        " read have such a header and no delay-source, the last one at orders/2/17"
    )
    assert bypassed.remedy == "write to orders.delay or audit.delay"
    assert (other.level, other.thing) == (Level.WARN, "target topic eu.a")
    assert unread.level is Level.OK
    assert unread.message == (
        "its newest records could not all be read (not all of them came within 5 s), so it is not known whether"
        " producers write deliver-* headers to it"
    )


class Message:
    """A message of a consumer: a record, or an event of its partition."""

    def __init__(self, topic: str, partition: int, offset: int, headers: Any = (), error: int | None = None) -> None:
        self._at, self._headers = (topic, partition, offset), list(headers)
        self._error = None if error is None else KafkaError(error)

    def topic(self) -> str:
        return self._at[0]

    def partition(self) -> int:
        return self._at[1]

    def offset(self) -> int:
        return self._at[2]

    def headers(self) -> Any:
        return self._headers

    def error(self) -> KafkaError | None:
        return self._error

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000 + self._at[2]


class Consumer:
    """Hands over the messages of a test, once."""

    def __init__(self, messages: list[Message]) -> None:
        self.messages = messages
        self.assigned: dict[tuple[str, int], int] = {}
        self.is_closed = False

    def assign(self, places: Any) -> None:
        self.assigned = {(each.topic, each.partition): each.offset for each in places}

    def poll(self, _: float) -> Message | None:
        return self.messages.pop(0) if self.messages else None

    def pause(self, _: Any) -> None:
        """Do nothing: there is no prefetched message to drop."""

    def consume(self, _: int, __: float) -> list[Message]:
        given, self.messages = self.messages, []
        return given

    def close(self) -> None:
        self.is_closed = True


def read(
    monkeypatch: pytest.MonkeyPatch, partitions: dict[str, int], ends: dict[tuple[str, int], Any], *messages: Message
) -> tuple[dict[str, TargetTail], Consumer]:
    """Read targets whose partitions have these ends or errors, with a consumer that hands over these messages."""
    consumer = Consumer([*messages])

    def offsets(_: Any, wanted: dict[Any, OffsetSpec], __: IsolationLevel) -> dict[Any, LogOffset | KafkaError]:
        told: dict[Any, LogOffset | KafkaError] = {}
        for place, spec in wanted.items():
            end = ends.get(place, 0)
            told[place] = (
                end if isinstance(end, KafkaError) else LogOffset(end if spec is OffsetSpec.latest() else 0, None)
            )
        return told

    monkeypatch.setattr(target_tails, "offsets", offsets)
    monkeypatch.setattr(clients, "bulk_reader", lambda _: consumer)
    monkeypatch.setattr(target_tails, "READ_S", 0.2)
    return tails(CONFIG, cast("Any", None), partitions), consumer


AT = ("deliver-at", b"1900000000000")
RELEASED = ("delay-source", b"orders.delay/0/1")
EOF = KafkaError._PARTITION_EOF


def test_the_newest_records_of_each_partition_are_read_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {("orders", 0): 1_000, ("orders", 1): 3}
    messages = [
        Message("orders", 0, 900, [RELEASED]),
        Message("orders", 0, 950, [AT]),
        Message("orders", 1, 2, [("trace", b"1"), AT]),
        Message("orders", 0, 1_000, error=EOF),
    ]
    found, consumer = read(monkeypatch, {"orders": 3, "audit": 1}, ends, *messages)
    assert consumer.assigned == {("orders", 0): 1_000 - NEWEST, ("orders", 1): 0}, "what is empty is not read"
    assert found == {"orders": TargetTail(3, 2, "deliver-at", "orders/0/950", 1_950), "audit": TargetTail()}
    assert consumer.is_closed


def test_what_may_not_be_read_is_told_and_the_others_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = {("orders", 0): 5, ("audit", 0): DENIED, ("eu.a", 0): 5, ("eu.b", 0): 5}
    messages = [
        Message("eu.a", 0, 0, error=KafkaError.TOPIC_AUTHORIZATION_FAILED),
        Message("orders", 0, 4, [AT]),
        Message("eu.b", 0, 0, []),
    ]
    found, _ = read(monkeypatch, dict.fromkeys(("orders", "audit", "eu.a", "eu.b"), 1), ends, *messages)
    assert (found["orders"].bypassing, found["orders"].unread) == (1, "")
    assert "authorization failed" in found["audit"].unread
    assert "authorization failed" in found["eu.a"].unread
    assert found["eu.b"].unread == "not all of them came within 0 s"


def test_no_more_partitions_are_read_than_a_person_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_tails, "MOST_PARTITIONS", 3)
    found, consumer = read(monkeypatch, {"orders": 4, "audit": 1}, {("orders", number): 1 for number in range(4)})
    assert sorted(consumer.assigned) == [("orders", 0), ("orders", 1)], "each target is begun with"
    assert found["orders"].unread
    assert found["audit"].unread == ""


def test_all_targets_that_exist_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"orders": 2, "orders.delay": 2, "audit": 1}
    there = {name: SimpleNamespace(partitions=dict.fromkeys(range(count))) for name, count in counts.items()}
    admin = SimpleNamespace(list_topics=lambda timeout: SimpleNamespace(topics=there if timeout else {}))
    asked: list[dict[str, int]] = []

    def tails_of(_: Any, __: Any, partitions: dict[str, int]) -> dict[str, TargetTail]:
        asked.append(partitions)
        return {name: TargetTail(1, 1, "deliver-at", f"{name}/0/0") for name in partitions}

    monkeypatch.setattr(bypassing, "tails", tails_of)
    found = [*bypassing.findings(CONFIG, cast("Any", admin))]
    assert asked == [{"audit": 1, "orders": 2}]
    assert [each.thing for each in found] == ["target topic audit", "target topic orders"]
