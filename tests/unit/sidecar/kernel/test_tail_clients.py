"""Tails that share a consumer: each gets the records of its own partition, from its own offset on."""

import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sidecar.kafka.reading import tail_clients
from sidecar.kafka.reading.tail_clients import TailClient, TailClients
from sidecar.kafka.reading.tails import NativeTail
from sidecar.kernel.librdkafka import WatchedConsumer
from tests.support.kernel import native_kernel
from tests.support.mock_broker import PARTITIONS, MockBroker

KERNEL = native_kernel()
LIMITS: Final = (1_000_000, 1_000_000)


class Made:
    """Makes consumers and notes them."""

    def __init__(self, broker: MockBroker) -> None:
        self._broker = broker
        self.consumers: list[WatchedConsumer] = []
        self.tails = TailClients(self._make)

    def _make(self, _limits: object) -> WatchedConsumer:
        made = WatchedConsumer(
            {
                "bootstrap.servers": self._broker.bootstrap,
                "group.id": "tail",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self.consumers.append(made)
        return made

    def tail(self, topic: str, partition: int, offset: int = 0) -> NativeTail:
        """Return a tail of a partition from an offset on."""
        at = TopicPartition(topic, partition, offset)
        return NativeTail(self.tails.lend(LIMITS, at), KERNEL, at, 1_000_000)

    @property
    def open(self) -> int:
        """The number of consumers that are not closed."""
        return sum(bool(each.watch and each.watch.client) for each in self.consumers)


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker() as broker:
        yield broker


@pytest.fixture
def made(broker: MockBroker) -> Made:
    return Made(broker)


def _write(broker: MockBroker, topic: str, count: int, partitions: int = 2) -> None:
    """Write records to each partition; their values name the partition and count from 0 in each call."""
    broker.producer.begin_transaction()
    for partition in range(partitions):
        for number in range(count):
            broker.producer.produce(topic, b"%d/%d" % (partition, number), None, partition)
    broker.producer.commit_transaction()


def _values(tail: NativeTail, count: int, wait_s: float = 20.0) -> list[bytes]:
    """Read until there are so many records, or for some time, and return their values."""
    found: list[bytes] = []
    until_s = time.monotonic() + wait_s
    while len(found) < count and time.monotonic() < until_s:
        read = tail.read(0.05, 100)
        if read is not None:
            found += [message.value() or b"" for message, _ in read.fetch.some(0, 100) if message.error() is None]
    return found


def _of(partition: int, count: int) -> list[bytes]:
    return [b"%d/%d" % (partition, number) for number in range(count)]


def test_two_partitions_share_a_consumer_and_no_record(broker: MockBroker, made: Made) -> None:
    _write(broker, "shared", 50)
    tails = [made.tail("shared", partition) for partition in range(2)]
    assert [_values(tail, 50) for tail in tails] == [_of(0, 50), _of(1, 50)]
    assert len(made.consumers) == 1
    assert [tail.log_end() for tail in tails] == [51, 51], "the last offset is the marker of the transaction"
    for tail in tails:
        tail.close()
    assert made.open == 0


def test_a_partition_reads_on_when_another_one_ends(broker: MockBroker, made: Made) -> None:
    _write(broker, "ends", 50)
    first, second = (made.tail("ends", partition) for partition in range(2))
    assert _values(second, 50) == _of(1, 50)
    first.close()
    _write(broker, "ends", 5)
    assert _values(second, 5) == _of(1, 5)
    assert made.open == 1
    second.close()
    assert made.open == 0


@pytest.mark.parametrize("offset", [0, 20, 45])
def test_a_partition_that_comes_back_has_another_consumer(broker: MockBroker, made: Made, offset: int) -> None:
    topic = f"back-{offset}"
    _write(broker, topic, 50)
    first, other = made.tail(topic, 0), made.tail(topic, 1)
    assert first.read(20.0, 10) is not None, "the consumer has more of its records by now"
    first.close()
    again, last = made.tail(topic, 0, offset), made.tail(topic, 2)
    assert _values(again, 50 - offset) == _of(0, 50)[offset:]
    assert len(made.consumers) == 2
    assert _values(other, 50) == _of(1, 50)
    for tail in (again, other, last):
        tail.close()
    assert made.open == 0


def test_a_consumer_with_an_error_of_its_own_is_left_by_all(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    tails = [made.tail("error", partition) for partition in range(2)]
    event = type("Event", (), {"error": lambda _: KafkaError(KafkaError._FATAL, "gone")})()
    with monkeypatch.context() as failing:
        failing.setattr(WatchedConsumer, "poll", lambda *_: event)
        with pytest.raises(KafkaException, match="gone"):
            tails[0].read(0.0, 10)
    with pytest.raises(KafkaException, match="gone"):
        tails[1].read(0.0, 10)
    next_one = made.tail("error", 2)
    assert len(made.consumers) == 2
    assert next_one.read(0.0, 10) is None
    for tail in (*tails, next_one):
        tail.close()
    assert made.open == 0


def test_other_limits_need_another_consumer(made: Made) -> None:
    one, other = (made.tails.lend((size, size), TopicPartition("limits", size, 0)) for size in (1, 2))
    assert one is not other
    for client in (one, other):
        client.leave()


def test_no_thread_gets_records_of_another_partition_or_time(broker: MockBroker, made: Made) -> None:
    """Partitions that begin and end in any order always read all their records from their offset on."""
    count, failed = 200, list[str]()
    _write(broker, "threads", count, PARTITIONS)

    def read(partition: int, rng: Random) -> None:
        for _ in range(8):
            offset = rng.randrange(count)
            tail = made.tail("threads", partition, offset)
            most = rng.choice([1, 50, count])
            found = _values(tail, min(most, count - offset))
            tail.close()
            if found != _of(partition, count)[offset : offset + len(found)] or not found:
                failed.append(f"{partition} from {offset}: {found[:3]}")

    threads = [threading.Thread(target=read, args=(number, Random(number))) for number in range(PARTITIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert made.open == 0


def test_a_consumer_that_is_idle_admits_no_partition() -> None:
    closed: list[TailClient] = []
    client = TailClient(_Closing(), closed.append)
    assert client.admits(TopicPartition("d", 0, 0))
    assert not client.admits(TopicPartition("d", 0, 9)), "it has read the partition before"
    client.leave()
    assert closed == [client]
    assert not client.admits(TopicPartition("d", 1, 0))


class _Closing(WatchedConsumer):
    """A consumer without a broker."""

    def __init__(self) -> None:
        super().__init__({"group.id": "none", "log_level": 0})


def test_a_consumer_whose_first_partition_cannot_begin_is_closed(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no broker"))

    with monkeypatch.context() as failing:
        failing.setattr(tail_clients, "learn_leaders", fail)
        with pytest.raises(KafkaException, match="no broker"):
            made.tail("begins", 0)
    assert made.open == 0
    made.tail("begins", 0).close()
    assert made.open == 0
