"""Searches a topic for records about one record, from a given time on or from the end back, within limits."""

import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from index.errors import DelayRouterError
from sidecar.config.model import Config
from sidecar.config.units import format_instant
from sidecar.engine.ports import Place
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import LogOffset, offsets
from sidecar.kafka.reading.scan import PartitionScan, ScanError, Why

MOST_RECORDS: Final = 50_000
SEARCH_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0

_OF_ONE_PARTITION: Final = frozenset({Why.REMOVED, Why.UNREADABLE})

T = TypeVar("T")


class NotFinished(DelayRouterError):
    """A search has not seen every record since the given time: there are too many, or some of them may be gone."""


def look_through(
    config: Config,
    admin: AdminClient,
    topic: str,
    from_ms: int,
    look: Callable[[Message], T | None],
    partition: int | None = None,
) -> T | None:
    """Return the first value other than None that ``look`` returns for a message; None when there is no such message.

    With ``partition``, search this partition only. Raise NotFinished when no such message is found, and more records
    were written since ``from_ms`` than are read for one answer, or the topic no longer reaches back to ``from_ms``.
    Raise KafkaException when the cluster does not answer.
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
    places = [(topic, number) for number in (found.partitions if partition is None else [partition])]
    # Search to the end of the log, open transactions included: records that were written in the transaction of the
    # state that was read lie before it.
    settled = _offsets(admin, places, OffsetSpec.latest())
    ends = _offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
    # Where no settled record is as late as that, only open transactions may have one.
    starts = settled | _offsets_by_time(consumer, places, from_ms)
    scan = PartitionScan(consumer, {place: range(starts[place], ends[place]) for place in places})
    seen = 0
    try:
        for seen, message in enumerate(scan.records(time.monotonic() + SEARCH_S), 1):
            told = look(message)
            if told is not None:
                return told
            if seen >= MOST_RECORDS and scan.left:
                break
        else:
            # The offset in front of the first one to search shows that nothing since that time is gone.
            begins = _offsets(admin, places, OffsetSpec.earliest())
            if any(begins[place] > 0 and begins[place] >= starts[place] for place in places):
                raise NotFinished(f"{topic} no longer reaches back to {format_instant(from_ms)}")
            return None
    except ScanError as error:
        if error.why is not Why.OUT_OF_TIME:
            raise
    raise NotFinished(f"{seen} records of {topic} were looked through, and there are more")


def _offsets_by_time(consumer: Consumer, places: Iterable[Place], from_ms: int) -> dict[Place, int]:
    """Return the first offset since a time, for each partition that has a settled record since then."""
    asked = [TopicPartition(*place, from_ms) for place in places]
    found: dict[Place, int] = {}
    for each in consumer.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S):
        if each.error is not None:
            raise KafkaException(each.error)
        if each.offset >= 0:
            found[each.topic, each.partition] = each.offset
    return found


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
    begins = _offsets(admin, places, OffsetSpec.earliest())
    ends = _offsets(admin, places, OffsetSpec.latest())
    share, spans, is_whole = MOST_RECORDS // max(1, len(places)) or 1, dict[Place, range](), True
    for place in places:
        begin, end = begins[place], ends[place]
        spans[place] = range(max(begin, end - share), end)
        is_whole = is_whole and spans[place].start == begin
    return spans, is_whole


def _offsets(
    admin: AdminClient,
    places: Iterable[Place],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[Place, int]:
    found: dict[Place, int] = {}
    for place, told in offsets(admin, dict.fromkeys(places, spec), isolation).items():
        if not isinstance(told, LogOffset):
            raise KafkaException(KafkaError(told.code(), f"{place[0]}/{place[1]}: {told.str()}"))
        found[place] = told.offset
    return found
