"""Reading one partition of a topic from its beginning: once to its end, or to follow it."""

from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import NotYetError, RefusedError, changed_on_disk
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S, log_range, uncommitted_end
from sidecar.kafka.errors import error_of, is_unreadable
from sidecar.ports import Stored

POLL_S = 0.5


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


def begin(consumer: Consumer, topic: str, partition: int) -> None:
    """Assign one partition from its first offset on, wherever that is; KafkaException when no broker answers."""
    learn_leaders(consumer, topic)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])


def learn_leaders(consumer: Consumer, topic: str) -> None:
    """Ask who leads a topic: a client that does not know it waits half a second before it looks for the beginning."""
    consumer.list_topics(topic, REQUEST_TIMEOUT_S)


def read_part(consumer: Consumer, name: str, partition: int, start: int, end: int) -> list[Stored]:
    """Read every committed record of [start, end), and leave the consumer without an assignment.

    RefusedError when a batch is damaged.
    """
    if start >= end:
        return []
    try:
        # By its number, for the same reason as in learn_leaders; it is known here.
        consumer.assign([TopicPartition(name, partition, start)])
        return [Stored(each.offset() or 0, each.key(), each.value()) for each in to_end(consumer)]
    except KafkaException as exception:
        error = error_of(exception)
        if not is_unreadable(error):
            raise
        raise RefusedError(
            f"{changed_on_disk(f'{name}/{partition}', error.str())}, or restore {name}; see OPERATIONS,"
            " DelayRouterPartitionRefused, 'state damaged'"
        ) from exception
    finally:
        consumer.unassign()


def _read(config: Config, name: str, partition: int, start: int, end: int) -> list[Stored]:
    if start >= end:
        return []
    consumer = clients.state_reader(config)
    try:
        return read_part(consumer, name, partition, start, end)
    finally:
        consumer.close()


def to_end(consumer: Consumer) -> Iterator[Message]:
    """Every record up to the end of the one partition that is assigned; KafkaException where that cannot be read."""
    while True:
        first = consumer.poll(POLL_S)
        # consume(n, t) returns early only when it has n, so it must not wait here.
        for message in [first, *consumer.consume(10_000, 0)] if first is not None else ():
            error = message.error()
            if error is None:
                yield message
            elif error.code() == KafkaError._PARTITION_EOF:
                # The event, not the last record: compaction and markers leave gaps before the end.
                return
            else:
                raise KafkaException(error)
