"""Handles Kafka for the demo: creates the target topics, sends the orders, watches their arrival, cleans up."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from sidecar.dev.demo.board import Board, BoardRow
from sidecar.dev.demo.orders import DemoOrder, Header, Topics

_TIMEOUT_S: Final = 30.0
_PARTITIONS: Final = 3
_BROKER_DEFAULT: Final = -1
POLL_RECORDS: Final = 100
_POLL_S: Final = 0.05


def create_targets(bootstrap: str, topics: Topics) -> None:
    """Create the target topics with append times, so that the broker's clock measures lateness."""
    config = {"message.timestamp.type": "LogAppendTime"}
    wanted = [NewTopic(name, _PARTITIONS, _BROKER_DEFAULT, config=config) for name in (topics.orders, topics.billing)]
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
    # Idempotent, and so in order: a control lies behind the order that it takes back.
    producer = Producer(
        {**_client(bootstrap), "linger.ms": 0, "partitioner": "murmur2_random", "enable.idempotence": True}
    )
    failed: list[KafkaError] = []

    def enter(order: DemoOrder) -> Callable[[KafkaError | None, Message], None]:
        def entered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)
                return
            place = f"{message.topic()}/{message.partition()}/{message.offset()}"
            board.sent(place, order, message.timestamp()[1])

        return entered

    for order in orders:
        producer.produce(
            topics.delay,
            order.value,
            key=order.key,
            headers=list(order.headers),
            on_delivery=enter(order),
        )
    producer.flush(_TIMEOUT_S)
    if failed:
        raise KafkaException(failed[0])


@contextmanager
def watching(bootstrap: str, topics: Topics, board: Board) -> Iterator["Watch"]:
    """Watch the target, rejected and receipts topics for the length of the ``with`` block."""
    with reading(bootstrap, [*topics[1:], topics.receipts]) as consumer:
        yield Watch(consumer, topics.receipts, board)


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
    """Enters arrivals on the board."""

    def __init__(self, consumer: Consumer, receipts: str, board: Board) -> None:
        self._consumer = consumer
        self._receipts = receipts
        self._board = board

    def poll(self) -> Iterator[BoardRow]:
        """Wait a moment, and yield the rows of orders that have finished now."""
        for message in self._consumer.consume(POLL_RECORDS, _POLL_S):
            topic = message.topic()
            if message.error() is not None or topic is None:
                raise KafkaException(message.error())
            headers = cast("list[Header]", message.headers() or [])
            if topic == self._receipts:
                yield from self._board.answered(message.value() or b"", headers)
                continue
            row = self._board.arrived(topic, message.timestamp()[1], headers)
            if row is not None:
                yield row
