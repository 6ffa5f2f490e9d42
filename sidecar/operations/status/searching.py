"""Searches a topic for records about one record, from a given time on or from the end back, within limits."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import DelayRouterError
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset, offsets, uncommitted_end
from sidecar.kafka.reading.scan import PartitionScan, ScanError, Why

MOST_RECORDS: Final = 50_000
SEARCH_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0

_OF_ONE_PARTITION: Final = frozenset({Why.REMOVED, Why.UNREADABLE})

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


def look_back(
    config: Config, admin: AdminClient, topic: str, look: Callable[[Message], T | None], until_s: float
) -> tuple[list[T], str]:
    """Return all values other than None that ``look`` returns for the newest records of a topic.

    The text beside them says how far the search has come; it is empty where that is the whole topic. Raise
    KafkaException when the topic cannot be read.
    """
    consumer = clients.bulk_reader(config)
    try:
        spans, is_whole = _newest(consumer, admin, topic)
        found: list[T] = []
        unread = "" if is_whole else f"of {topic} only the newest {MOST_RECORDS:,} records were looked through"
        scan = PartitionScan(consumer, spans)
        while scan.left:
            try:
                # It keeps the values in front of an error.
                found.extend(told for message in scan.records(until_s) if (told := look(message)) is not None)
            except ScanError as error:
                if error.why is Why.OUT_OF_TIME:
                    return found, f"{topic} was not read to its end: the time of one answer is over"
                if error.why not in _OF_ONE_PARTITION:
                    raise
                unread = f"{topic}/{error.place[1]} was not read to its end: {error.why.value}"
                scan.leave(error.place)
        return found, unread
    finally:
        consumer.close()


def _newest(consumer: Consumer, admin: AdminClient, topic: str) -> tuple[dict[Place, range], bool]:
    """Return the newest offsets of each partition, and whether those are all that the topic has."""
    described = consumer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic]
    if described.error is not None:
        raise KafkaException(described.error)
    places = [(topic, number) for number in described.partitions]
    begins = offsets(admin, dict.fromkeys(places, OffsetSpec.earliest()), IsolationLevel.READ_COMMITTED)
    ends = offsets(admin, dict.fromkeys(places, OffsetSpec.latest()), IsolationLevel.READ_COMMITTED)
    share, spans, is_whole = MOST_RECORDS // max(1, len(places)) or 1, dict[Place, range](), True
    for place in places:
        begin, end = begins[place], ends[place]
        if not (isinstance(begin, LogOffset) and isinstance(end, LogOffset)):
            raise KafkaException(begin if isinstance(end, LogOffset) else end)
        spans[place] = range(max(begin.offset, end.offset - share), end.offset)
        is_whole = is_whole and spans[place].start == begin.offset
    return spans, is_whole
