"""A search of the rejected topic: from a time on, to its end, and with a limit; no Kafka."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from index.protocol.schedule import Reason
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset
from sidecar.operations.status import searching
from sidecar.operations.status.rejected_search import FoundRejection, rejected_code
from sidecar.operations.status.searching import NotFinished

CONFIG = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}})
FROM_MS = 1_000


@dataclass
class Message:
    """A message of a consumer."""

    place: int
    at: int
    failure: KafkaError | None = None
    given: list[tuple[str, bytes | None]] = field(default_factory=list)

    def topic(self) -> str:
        return "d.rejected"

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def error(self) -> KafkaError | None:
        return self.failure

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self.given

    def key(self) -> None:
        return None

    def value(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, FROM_MS


@dataclass
class Rejected:
    """Two partitions of a rejected topic, each ending in the mark of a transaction; and a consumer of them."""

    logs: dict[int, list[Message]]
    starts: dict[int, int]
    begins: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    unsettled: int = 0
    closed: bool = False
    _rest: Iterator[Message] = field(default_factory=lambda: iter(()))

    def list_topics(self, name: str, _: float) -> Any:
        return SimpleNamespace(topics={name: SimpleNamespace(error=None, partitions=dict.fromkeys(self.logs))})

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        assert {each.offset for each in asked} == {FROM_MS}
        return [TopicPartition(each.topic, each.partition, self.starts[each.partition]) for each in asked]

    def end(self, partition: int) -> int:
        return len(self.logs[partition]) + 1

    def offsets(
        self, _: object, wanted: dict[Place, OffsetSpec], isolation: IsolationLevel
    ) -> dict[Place, LogOffset | KafkaError]:
        hidden = self.unsettled if isolation is IsolationLevel.READ_COMMITTED else 0
        return {
            place: LogOffset(
                self.begins[place[1]] if spec is OffsetSpec.earliest() else self.end(place[1]) - hidden, None
            )
            for place, spec in wanted.items()
        }

    def assign(self, places: list[TopicPartition]) -> None:
        eof = KafkaError(KafkaError._PARTITION_EOF)
        read = [message for each in places for message in self.logs[each.partition][each.offset :]]
        ends = [Message(each.partition, self.end(each.partition), eof) for each in places]
        self._rest = iter([*read, *ends])

    def poll(self, _: float) -> Message | None:
        return next(self._rest, None)

    def consume(self, count: int, _: float) -> list[Message]:
        return [message for _, message in zip(range(count), self._rest, strict=False)]

    def close(self) -> None:
        self.closed = True


def rejected(partition: int, *sources: tuple[bytes, bytes]) -> list[Message]:
    return [
        Message(partition, number, None, [("delay-error", code), ("delay-source", source)])
        for number, (source, code) in enumerate(sources)
    ]


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Rejected:
    """Make a topic with some rejected records."""
    made = Rejected(
        {
            0: rejected(0, (b"d/0/1", b"EXPIRED"), (b"d/0/2", b"EXPIRED"), (b"d/0/3", b"TARGET_DENIED")),
            1: rejected(1, (b"d/0/4", b"NEWER_CODE"), (b"e/0/1", b"EXPIRED")),
        },
        {0: 1, 1: 0},
    )
    # Producers may send any headers: only the last of a name is the router's.
    made.logs[1][1].given.insert(0, ("delay-source", b"d/0/5"))
    monkeypatch.setattr(clients, "bulk_reader", lambda _: made)
    monkeypatch.setattr(searching, "offsets", made.offsets)
    return made


def find(source: str) -> FoundRejection | None:
    client: Any = None
    return rejected_code(CONFIG, client, "d.rejected", source, FROM_MS)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("d/0/3", FoundRejection(Reason.TARGET_DENIED)),
        ("e/0/1", FoundRejection(Reason.EXPIRED)),
        ("d/0/1", None),
        ("d/0/5", None),
        ("d/0/30", None),
    ],
    ids=["there", "in another partition", "before that time", "forged", "not there"],
)
def test_it_is_found_by_where_it_came_from(topic: Rejected, source: str, found: FoundRejection | None) -> None:
    assert find(source) == found
    assert topic.closed


def test_a_code_of_a_newer_router_is_still_a_rejection(topic: Rejected) -> None:
    assert find("d/0/4") is not None


def test_nothing_since_then_is_an_answer(topic: Rejected) -> None:
    topic.starts = {0: -1, 1: -1}
    assert find("d/0/3") is None


@pytest.mark.parametrize(
    ("begins", "starts"),
    [
        ({0: 1, 1: 0}, {0: 1, 1: 0}),
        ({0: 2, 1: 0}, {0: 1, 1: 0}),
        ({0: 0, 1: 3}, {0: 1, 1: -1}),
    ],
    ids=["the first record is as late", "it went meanwhile", "no record is left"],
)
def test_a_topic_that_begins_later_is_no_witness(
    topic: Rejected, begins: dict[int, int], starts: dict[int, int]
) -> None:
    topic.begins, topic.starts = begins, starts
    with pytest.raises(NotFinished, match=r"^d\.rejected no longer reaches back to 1970-01-01T00:00:01Z$"):
        find("d/0/30")
    assert find("d/0/3") is not None
    assert topic.closed


@pytest.mark.parametrize("starts", [{0: 2, 1: 2}, {0: -1, 1: -1}])
def test_a_topic_that_has_an_earlier_record_is_a_witness(topic: Rejected, starts: dict[int, int]) -> None:
    topic.begins, topic.starts = {0: 1, 1: 1}, starts
    assert find("d/0/30") is None


def test_records_of_an_open_transaction_count_although_no_time_finds_them(topic: Rejected) -> None:
    topic.starts, topic.unsettled = {0: -1, 1: -1}, 2
    assert find("d/0/3") == FoundRejection(Reason.TARGET_DENIED)


def test_a_partition_that_gives_no_offset_is_no_answer(topic: Rejected, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = SimpleNamespace(topic="d.rejected", partition=0, offset=-1001, error=KafkaError(KafkaError._TIMED_OUT))
    monkeypatch.setattr(topic, "offsets_for_times", lambda *_, **__: [failed])
    with pytest.raises(KafkaException):
        find("d/0/3")


@pytest.mark.parametrize(("bound", "value"), [("MOST_RECORDS", 2), ("SEARCH_S", 0.0)])
def test_too_much_is_told(topic: Rejected, monkeypatch: pytest.MonkeyPatch, bound: str, value: float) -> None:
    monkeypatch.setattr(searching, bound, value)
    with pytest.raises(NotFinished, match=r"records of d\.rejected were looked through, and there are more"):
        find("d/0/30")
    assert topic.closed


def test_an_error_is_not_the_end(topic: Rejected) -> None:
    topic.logs[0].append(Message(0, 3, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)))
    with pytest.raises(KafkaException):
        find("d/0/30")
