"""Reading one partition of a compacted topic from its beginning to its end."""

from typing import NamedTuple

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient

from index.errors import NotYetError, RefusedError, changed_on_disk
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S, log_range, uncommitted_end
from sidecar.kafka.errors import error_of
from sidecar.kafka.scan import PartitionScan, ScanError, Why


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


def learn_leaders(consumer: Consumer, topic: str) -> None:
    """Ask who leads a topic: a client that does not know it waits half a second before it looks for the beginning."""
    consumer.list_topics(topic, REQUEST_TIMEOUT_S)


def read_part(consumer: Consumer, name: str, partition: int, start: int, end: int) -> list[Stored]:
    """Read every committed record of [start, end), and leave the consumer without an assignment.

    RefusedError when a batch is damaged, ScanError when the end is not reached.
    """
    try:
        scan = PartitionScan(consumer, {(name, partition): range(start, end)})
        return [Stored(each.offset() or 0, each.key(), each.value()) for each in scan.records()]
    except ScanError as error:
        if error.why is not Why.UNREADABLE:
            raise
        raise RefusedError(
            f"{changed_on_disk(f'{name}/{partition}', error_of(error).str())}, or restore {name}; see OPERATIONS,"
            " DelayRouterPartitionRefused, 'state damaged'"
        ) from error
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
