"""The broker that librdkafka brings along for tests: in this process, started at once, without read_committed."""

from typing import Any, NamedTuple, Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sidecar.kernel.librdkafka import WatchedProducer

PARTITIONS = 4
"""Partitions of each topic; the first write creates a topic."""

_WAIT_S = 10.0


class Seen(NamedTuple):
    """A record as it was written; ``kind_of_time`` tells whether it has a timestamp."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    kind_of_time: int
    timestamp_ms: int


class MockBroker:
    """A context with a broker, or several, and a producer within a transaction. Settings are the producer's."""

    def __init__(self, **settings: object) -> None:
        self.producer = WatchedProducer(
            {
                "test.mock.num.brokers": 1,
                "transactional.id": "mock",
                "partitioner": "murmur2_random",
                "linger.ms": 0,
                "log_level": 0,
                **settings,
            }
        )
        self.producer.init_transactions(_WAIT_S)
        broker, *_ = self.producer.list_topics(timeout=_WAIT_S).brokers.values()
        self.bootstrap = f"{broker.host}:{broker.port}"
        self._consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "mock",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 5,
                "log_level": 0,
            }
        )
        self._read_to: dict[tuple[str, int], int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def written(self, *topics: str) -> list[Seen]:
        """Return the records written since the last call, by topic and partition and in order."""
        for topic in topics:
            # The request creates a missing topic.
            self.producer.list_topics(topic, timeout=_WAIT_S)
        places = [(topic, partition) for topic in topics for partition in range(PARTITIONS)]
        self._consumer.assign([TopicPartition(*place, self._read_to.get(place, 0)) for place in places])
        found: dict[tuple[str, int], list[Message]] = {place: [] for place in places}
        ended = 0
        while ended < len(places):
            message = self._consumer.poll(_WAIT_S)
            assert message is not None, "the mock broker is silent"
            error = message.error()
            if error is None:
                place = (str(message.topic()), message.partition() or 0)
                found[place].append(message)
                self._read_to[place] = (message.offset() or 0) + 1
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended += 1
        return [_seen(message) for place in places for message in found[place]]


def _seen(message: Message) -> Seen:
    given: Any = message.headers() or ()
    kind, timestamp_ms = message.timestamp()
    place = str(message.topic()), message.partition() or 0
    return Seen(*place, message.key(), message.value(), tuple(given), kind, timestamp_ms)
