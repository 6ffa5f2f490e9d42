"""Reading one partition of a compacted topic from its beginning to its end."""

from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import NotYetError
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import log_range, uncommitted_end

POLL_S = 0.5


class Stored(NamedTuple):
    """One record of a compacted topic, as it is stored."""

    offset: int
    key: bytes | None
    value: bytes | None


def read_compacted(config: Config, name: str, partition: int, admin: AdminClient) -> list[Stored]:
    """Every committed record; NotYetError while an open transaction hides some, KafkaException also without a topic."""
    start, settled = log_range(admin, name, partition)
    if settled != uncommitted_end(admin, name, partition):
        raise NotYetError(
            f"an open transaction hides the end of {name}/{partition}; should it last longer than transactions may:"
            " OPERATIONS, 'A transaction that nobody ends'"
        )
    return _read(config, name, partition, start, settled)


def read_settled(config: Config, name: str, partition: int, admin: AdminClient) -> list[Stored]:
    """As ``read_compacted``, up to the first open transaction: all that is committed before it, which agrees."""
    return _read(config, name, partition, *log_range(admin, name, partition))


def _read(config: Config, name: str, partition: int, start: int, end: int) -> list[Stored]:
    if start == end:
        return []
    consumer = clients.state_reader(config)
    try:
        # By its number: to ask for the beginning, a client that does not know the leader yet waits half a second.
        consumer.assign([TopicPartition(name, partition, start)])
        return _to_end(consumer)
    finally:
        consumer.close()


def _to_end(consumer: Consumer) -> list[Stored]:
    records: list[Stored] = []
    while True:
        first = consumer.poll(POLL_S)
        # consume(n, t) returns early only when it has n, so it must not wait here.
        for message in [first, *consumer.consume(10_000, 0)] if first is not None else ():
            error = message.error()
            if error is None:
                records.append(Stored(message.offset() or 0, message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                # The event, not the last record: compaction and markers leave gaps before the end.
                return records
            else:
                raise KafkaException(error)
