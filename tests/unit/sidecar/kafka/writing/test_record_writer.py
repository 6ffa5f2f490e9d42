"""Writing single records: the broker's answer is reported, and after an error another producer is made."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.config.model import Config
from sidecar.kafka.writing import record_writer
from sidecar.kafka.writing.record_writer import OutcomeUnknownError, RecordWriter, WrittenRecord

CONFIG = Config.model_validate({"kafka": {"bootstrap.servers": "x:1"}, "delay_topics": [{"name": "d"}]})


class Delivered:
    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 17

    def timestamp(self) -> tuple[int, int]:
        return 2, 1_000


class Broker:
    """Producers that answer a record at the next poll; the error of each, None for a success."""

    def __init__(self, *answers: KafkaError | None) -> None:
        self.answers = list(answers)
        self.made = 0
        self.flushed = 0
        self.sent: list[Any] = []

    def __call__(self, _: Config) -> "Broker":
        self.made += 1
        return self

    def produce(self, *record: Any, headers: Any, on_delivery: Callable[[Any, Any], None]) -> None:
        self.sent.append((*record, headers))
        self.tell = on_delivery

    def poll(self, _: float) -> None:
        if self.answers:
            self.tell(self.answers.pop(0), Delivered())

    def flush(self, _: float) -> None:
        self.flushed += 1


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(record_writer, "record_producer", lambda config, *_: made(config))
    return made


def test_a_record_that_was_taken(broker: Broker) -> None:
    broker.answers = [None, None]
    writer = RecordWriter(CONFIG)
    assert writer.write("d", None, b"v", [("h", None)]) == WrittenRecord(3, 17, 1_000)
    assert writer.write("d", b"k", None, []) == WrittenRecord(3, 17, 1_000)
    assert broker.sent == [("d", b"v", None, [("h", None)]), ("d", None, b"k", [])]
    writer.close()
    assert (broker.made, broker.flushed) == (1, 1)


def test_after_an_error_there_is_another_producer(broker: Broker) -> None:
    broker.answers = [KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), KafkaError(KafkaError._MSG_TIMED_OUT), None]
    writer = RecordWriter(CONFIG)
    with pytest.raises(KafkaException):
        writer.write("d", None, None, [])
    with pytest.raises(OutcomeUnknownError):
        writer.write("d", None, None, [])
    writer.write("d", None, None, [])
    assert broker.made == 3


def test_no_word_at_all_is_no_answer(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_writer, "TIMEOUT_MS", 0)
    monkeypatch.setattr(record_writer, "FLUSH_S", 0.0)
    with pytest.raises(OutcomeUnknownError):
        RecordWriter(CONFIG).write("d", None, None, [])


def test_without_a_record_there_is_no_producer(broker: Broker) -> None:
    RecordWriter(CONFIG).close()
    assert broker.made == 0
