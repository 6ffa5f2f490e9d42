"""Handles Kafka for the demo: creates topics, sends orders, watches their arrival, sends failed ones back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sidecar.dev.demo.board import Board, BoardRow
from sidecar.dev.demo.orders import ATTEMPTS, DemoOrder, Header, Topics

_TIMEOUT_S: Final = 30.0
_PARTITIONS: Final = 3
_BROKER_DEFAULT: Final = -1
POLL_RECORDS: Final = 100
_POLL_S: Final = 0.05


def create_targets(bootstrap: str, names: Sequence[str]) -> None:
    """Create target topics with append times, so that the broker's clock measures lateness."""
    config = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(name, _PARTITIONS, _BROKER_DEFAULT, config=config) for name in names]
    admin = AdminClient(_client(bootstrap))
    for created in admin.create_topics(wanted).values():
        created.result(_TIMEOUT_S)


def delete_topics(bootstrap: str, prefix: str) -> None:
    """Delete every topic whose name starts with the prefix of this demo."""
    admin = AdminClient(_client(bootstrap))
    names = [name for name in admin.list_topics(timeout=_TIMEOUT_S).topics if name.startswith(prefix)]
    for deleted in admin.delete_topics(names).values() if names else ():
        deleted.result(_TIMEOUT_S)


def send(bootstrap: str, topics: Topics, orders: list[DemoOrder], board: Board) -> None:
    """Write the orders to the delay topic and enter them on the board; raise KafkaException if one is not written."""
    writing = _Writing(bootstrap)

    def enter(order: DemoOrder) -> Callable[[str, int], None]:
        return lambda place, at_ms: board.sent(place, order, at_ms)

    for order in orders:
        topic = topics.retry if order.fails else topics.delay
        writing.write(topic, order.key, order.value, order.headers, enter(order))
    writing.finish()


class _Writing:
    """Writes records in order: it is idempotent, so a control lies behind the order that it takes back."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {**_client(bootstrap), "linger.ms": 0, "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        self._failed: list[KafkaError] = []

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header],
        entered: Callable[[str, int], None],
    ) -> None:
        """Write a record; ``entered`` is told its place and its timestamp."""

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self._failed.append(error)
            else:
                entered(f"{message.topic()}/{message.partition()}/{message.offset()}", message.timestamp()[1])

        self._producer.produce(topic, value, key=key, headers=list(headers), on_delivery=delivered)

    def finish(self) -> None:
        """Wait until all records are written; raise KafkaException if one is not."""
        self._producer.flush(_TIMEOUT_S)
        if self._failed:
            raise KafkaException(self._failed[0])


@contextmanager
def watching(bootstrap: str, topics: Topics, board: Board, say: Callable[[str], None]) -> Iterator["Watch"]:
    """Watch where orders may arrive, for the length of the ``with`` block; ``say`` tells of those that fail."""
    with reading(bootstrap, [*topics[1:], topics.dead, topics.receipts]) as consumer:
        yield Watch(consumer, topics, board, _Writing(bootstrap), say)


@contextmanager
def reading(bootstrap: str, topics: Sequence[str]) -> Iterator[Consumer]:
    """Read the committed records of whole topics for the length of the ``with`` block."""
    consumer = Consumer(
        {
            **_client(bootstrap),
            "group.id": "delay-router-demo-watch",  # required by the client; partitions are assigned by hand
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 50,
        }
    )
    try:
        found = {name: consumer.list_topics(name, timeout=_TIMEOUT_S).topics[name] for name in topics}
        places = [TopicPartition(name, number, 0) for name, topic in found.items() for number in topic.partitions]
        consumer.assign(places)
        yield consumer
    finally:
        consumer.close()


def _client(bootstrap: str) -> dict[str, str | int | float | bool]:
    # 4 = warnings: lines of librdkafka below that level do not help the reader of a demo.
    return {"bootstrap.servers": bootstrap, "log_level": 4}


class Watch:
    """Enters arrivals on the board, and sends back the orders that their consumer cannot handle."""

    def __init__(
        self, consumer: Consumer, topics: Topics, board: Board, writing: _Writing, say: Callable[[str], None]
    ) -> None:
        self._consumer = consumer
        self._topics = topics
        self._board = board
        self._writing = writing
        self._say = say

    def poll(self) -> Iterator[BoardRow]:
        """Wait a moment, and yield the rows of orders that have finished now."""
        for message in self._consumer.consume(POLL_RECORDS, _POLL_S):
            topic = message.topic()
            if message.error() is not None or topic is None:
                raise KafkaException(message.error())
            headers = cast("list[Header]", message.headers() or [])
            if topic == self._topics.receipts:
                yield from self._board.answered(message.value() or b"", headers)
                continue
            row = self._board.arrived(topic, message.timestamp()[1], headers)
            if row is not None:
                yield row
            elif (failed := self._board.failed(headers)) is not None:
                self._send_back(failed, message, headers)

    def _send_back(self, row: BoardRow, message: Message, headers: Sequence[Header]) -> None:
        """Do as a consumer does that fails: write the record, with the headers that it has, to the retry topic."""
        self._writing.write(
            self._topics.retry,
            message.key(),
            message.value(),
            headers,
            lambda place, at_ms: self._board.sent_back(place, row, at_ms),
        )
        self._writing.finish()
        self._say(f"{row.order.name} failed in attempt {row.attempt} of {ATTEMPTS}, and was sent back")
