"""Finds the recurring schedules of a delay partition whose state is lost or given up.

The key that signs their occurrences comes from the state if its progress can still be read, otherwise from the copy in
the snapshots topic (:mod:`snapshots.state.series_key`).
"""

from collections.abc import Iterator
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from index.errors import FormatError
from index.named.series_in_log import SeriesInLog, series_in_log
from index.protocol.record import Record
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import log_range
from sidecar.kafka.reading.scan import PartitionScan, read_settled
from snapshots.state.series_key import COPY_KEY, decode_copy
from snapshots.state.state import PROGRESS_KEY, series_key_of


def kept_key(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> bytes:
    """Return the key that signs the occurrences of a partition; empty if neither state nor snapshots topic has it.

    If the state does not have the key, this reads the whole partition of the snapshots topic.
    """
    progress: bytes | None = None
    for record in read_settled(config, topic.state, partition, admin):
        if record.key == PROGRESS_KEY:
            progress = record.value
    return (series_key_of(progress) if progress else b"") or _copy(config, topic, partition, admin)


def series_of(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient, key: bytes) -> SeriesInLog:
    """Find the series in the log of a delay partition; this reads the whole log, unless the partition has no series."""
    if not key and not topic.recurring:
        return SeriesInLog()
    start, _ = log_range(admin, topic.name, partition)
    read = _read(config, topic.name, partition, admin)
    return series_in_log(((each.offset() or 0, _record_of(each)) for each in read), key, start)


def _copy(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> bytes:
    found = b""
    for message in _read(config, topic.snapshots, partition, admin):
        if message.key() == COPY_KEY:
            try:
                found = decode_copy(message.value() or b"")
            except FormatError:
                # A damaged copy signs nothing; an older copy may still be there, and a newer one may follow.
                continue
    return found


def _read(config: Config, name: str, partition: int, admin: AdminClient) -> Iterator[Message]:
    start, end = log_range(admin, name, partition)
    if start >= end:
        return
    consumer = clients.bulk_reader(config)
    try:
        yield from PartitionScan(consumer, {(name, partition): range(start, end)}).records()
    finally:
        consumer.close()


def _record_of(message: Message) -> Record:
    """Return a message of the client as a record, without headers if the name of one is no UTF-8."""
    try:
        # The stubs also allow values that only produce() takes.
        headers: Any = message.headers() or ()
    except (UnicodeDecodeError, SystemError):
        # No router writes such a record.
        headers = ()
    return Record(message.key(), message.value(), headers, message.timestamp()[1])
