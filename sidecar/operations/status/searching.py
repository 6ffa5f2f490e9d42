"""Searches a topic for records about one record, from a given time on, within a limit of records and of time."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import uncommitted_end
from sidecar.kafka.reading.scan import PartitionScan, ScanError, Why

MOST_RECORDS: Final = 50_000
SEARCH_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class NotFinished(DelayRouterError):
    """The topic holds more records since the given time than a search reads for one answer."""


def look_through(
    config: Config,
    admin: AdminClient,
    topic: str,
    from_ms: int,
    look: Callable[[Message], T | None],
    partition: int | None = None,
) -> T | None:
    """Return the first value other than None that ``look`` returns for a message; None when there is no such message.

    With ``partition``, search this partition only. Raise NotFinished when more records were written since ``from_ms``
    than are read for one answer, and KafkaException when the cluster does not answer.
    """
    consumer = clients.bulk_reader(config)
    try:
        return _search(consumer, admin, topic, from_ms, look, partition)
    finally:
        consumer.close()


def _search(
    consumer: Consumer,
    admin: AdminClient,
    topic: str,
    from_ms: int,
    look: Callable[[Message], T | None],
    partition: int | None,
) -> T | None:
    found = consumer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic]
    if found.error is not None:
        raise KafkaException(found.error)
    numbers = found.partitions if partition is None else [partition]
    starts = consumer.offsets_for_times(
        [TopicPartition(topic, number, from_ms) for number in numbers], timeout=REQUEST_TIMEOUT_S
    )
    # Search to the end of the log, open transactions included: records that were written in the transaction of the
    # state that was read lie before it.
    scan = PartitionScan(
        consumer,
        {
            (topic, start.partition): range(start.offset, uncommitted_end(admin, topic, start.partition))
            for start in starts
            if start.offset >= 0
        },
    )
    seen = 0
    try:
        for seen, message in enumerate(scan.records(time.monotonic() + SEARCH_S), 1):
            told = look(message)
            if told is not None:
                return told
            if seen >= MOST_RECORDS and scan.left:
                break
        else:
            return None
    except ScanError as error:
        if error.why is not Why.OUT_OF_TIME:
            raise
    raise NotFinished(f"{seen} records of {topic} were looked through, and there are more")
