"""A scan takes a few fetched records at a time, and waits for more only at the end of the fetch.

The leader of a topic is asked for once.
"""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition

from index.errors import ClusterError
from sidecar.kafka.reading import offset_reader
from sidecar.kafka.reading.offset_reader import FETCHED_RECORDS, OffsetReader
from tests.support.mock_broker import MockBroker

TOPIC, OTHER = "scanned", "other"
FETCHES = 5
COUNT = 1 + FETCHES * FETCHED_RECORDS
"""One record to wait for, and the records that are fetched meanwhile."""

ENOUGH_S = 10.0
_TELLS = {"enable.partition.eof": True, "auto.offset.reset": "error", "log_level": 0}


class Counting(Consumer):
    """Counts its calls, and has always fetched as many records as it is asked for."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.polled = 0
        self.taken = 0
        self.asked: list[str] = []
        self.assigned: list[str] = []

    def list_topics(self, *what: Any, **more: Any) -> Any:
        self.asked.append(what[0])
        return super().list_topics(*what, **more)

    def assign(self, places: list[TopicPartition]) -> None:
        self.assigned += [place.topic for place in places]
        assert set(self.assigned) <= set(self.asked), "before it is assigned"
        super().assign(places)

    def poll(self, *wait_s: Any) -> Message | None:
        self.polled += 1
        return super().poll(*wait_s)

    def consume(self, count: int = 1, *_: Any) -> list[Message]:
        taken = super().consume(count, ENOUGH_S)
        self.taken += len(taken)
        return taken


@pytest.fixture(name="bootstrap", scope="module")
def _bootstrap() -> Iterator[str]:
    with MockBroker() as broker:
        broker.producer.begin_transaction()
        for number in range(COUNT + FETCHED_RECORDS):
            # The records have headers, since records without headers are looked at once more.
            broker.producer.produce(TOPIC, b"%d" % number, partition=0, headers=[("name", b"value")])
        broker.producer.produce(OTHER, b"value", partition=0, headers=[("name", b"value")])
        broker.producer.commit_transaction(ENOUGH_S)
        yield broker.bootstrap


@pytest.fixture(name="consumer")
def _consumer(bootstrap: str) -> Counting:
    return Counting({"bootstrap.servers": bootstrap, "group.id": "scan", "enable.partition.eof": True, "log_level": 0})


def test_it_waits_once_for_what_has_been_fetched(consumer: Counting) -> None:
    reader = OffsetReader(lambda: consumer)
    scanned = [(offset, record.value) for offset, record in reader.scan(TOPIC, 0, 0, COUNT)]
    reader.close()
    assert scanned == [(offset, b"%d" % offset) for offset in range(COUNT)]
    assert consumer.polled == 1


def test_it_takes_nothing_behind_what_is_asked_for(consumer: Counting) -> None:
    reader = OffsetReader(lambda: consumer)
    assert len(list(reader.scan(TOPIC, 0, 0, COUNT))) == COUNT
    assert next(reader.scan(TOPIC, 0, 0, COUNT))[0] == 0
    reader.close()
    assert consumer.taken == FETCHES * FETCHED_RECORDS


def test_it_asks_once_who_leads_a_topic_before_it_reads_from_it(consumer: Counting) -> None:
    reader = OffsetReader(lambda: consumer)
    for topic in (TOPIC, OTHER, TOPIC, OTHER):
        assert reader.read(topic, 0, [0])[0] is not None
    reader.close()
    assert consumer.asked == [TOPIC, OTHER]
    assert consumer.assigned == [TOPIC, OTHER, TOPIC, OTHER]


def test_the_first_timestamp_from_an_offset_on(consumer: Counting, bootstrap: str) -> None:
    reader = OffsetReader(lambda: Consumer({"bootstrap.servers": bootstrap, "group.id": "look", **_TELLS}))
    whole = OffsetReader(lambda: consumer)
    [(_, record)] = whole.scan(TOPIC, 0, 5, 6)
    assert reader.first_timestamp_ms(TOPIC, 0, 5) == record.timestamp_ms > 0
    end = COUNT + FETCHED_RECORDS + 1
    assert reader.first_timestamp_ms(TOPIC, 0, end) is None
    assert reader.first_timestamp_ms(TOPIC, 0, end + 1_000) is None
    assert reader.first_timestamp_ms(TOPIC, 0, 0) is not None
    reader.close()
    whole.close()


def test_what_is_read_one_by_one_is_handed_over_before_more_is_read(
    consumer: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_reader, "STEP_BYTES", 1)
    reader = OffsetReader(lambda: consumer)
    offsets = [0, 1, 2, COUNT]
    with closing(reader.read_each(TOPIC, 0, offsets)) as records:
        for number, (offset, record) in enumerate(records):
            assert offset == offsets[number]
            assert record is not None
            assert record.value == b"%d" % offset
            if offset < COUNT:
                assert consumer.polled == number + 1
    assert {offset: record and record.value for offset, record in reader.read(TOPIC, 0, offsets).items()} == {
        offset: b"%d" % offset for offset in offsets
    }
    reader.close()


END = COUNT + FETCHED_RECORDS + 1
"""The end of the log, behind the marker of its transaction."""


@pytest.mark.parametrize("offset", [END, END + 1_000], ids=["at the end", "behind the end"])
def test_a_record_that_the_log_has_lost_is_told_as_such(
    bootstrap: str, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_reader, "READ_TIMEOUT_S", 1.0)
    asked: list[tuple[str, int]] = []

    def log_end(topic: str, partition: int) -> int:
        asked.append((topic, partition))
        return END

    settings = {"bootstrap.servers": bootstrap, "group.id": "look", **_TELLS}
    reader = OffsetReader(lambda: Consumer(settings), log_end=log_end)
    for read in (reader.read_large, reader.read_apart):
        found = read(TOPIC, 0, [3, offset, offset + 1, offset + 2])
        assert [at for at, record in found.items() if record is not None] == [3]
    assert asked == [(TOPIC, 0)] * 2, "once for each read"
    reader.close()


class Noting(Consumer):
    """Notes the calls by which a reader lets go of its consumer."""

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.calls: list[str] = []

    def unassign(self) -> None:
        self.calls.append("unassign")
        super().unassign()

    def get_watermark_offsets(self, *what: Any, **more: Any) -> tuple[int, int]:
        self.calls.append("get_watermark_offsets")
        return super().get_watermark_offsets(*what, **more)

    def close(self) -> None:
        self.calls.append("close")
        super().close()


def test_no_fetch_behind_the_end_is_under_way_when_its_consumer_is_closed(
    bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_reader, "READ_TIMEOUT_S", 0.5)
    consumer = Noting({"bootstrap.servers": bootstrap, "group.id": "look", **_TELLS})
    reader = OffsetReader(lambda: consumer, log_end=lambda *_: END)
    assert reader.read_large(TOPIC, 0, [END]) == {END: None}
    assert consumer.calls == ["unassign", "get_watermark_offsets", "close"]


def test_a_record_in_front_of_the_end_is_never_taken_for_lost(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_reader, "READ_TIMEOUT_S", 0.5)
    settings = {"bootstrap.servers": bootstrap, "group.id": "look", **_TELLS}
    for log_end in (lambda *_: END + 1, offset_reader.unknown_end):
        reader = OffsetReader(lambda: Consumer(settings), log_end=log_end)
        with pytest.raises(ClusterError, match="not read in time"):
            reader.read_large(TOPIC, 0, [END])
        reader.close()
