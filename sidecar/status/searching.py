"""Looking through a topic for what it says about one record, from a time on and not for ever."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import uncommitted_end
from sidecar.kafka.errors import is_end

MOST_RECORDS: Final = 50_000
SEARCH_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
_AT_ONCE: Final = 1_000
_PAST_ALL_OFFSETS: Final = 1 << 62

T = TypeVar("T")


class NotFinished(DelayRouterError):
    """There is more in the topic than is read for one answer."""


def look_through(
    config: Config,
    admin: AdminClient,
    topic: str,
    from_ms: int,
    look: Callable[[Message], T | None],
    partition: int | None = None,
) -> T | None:
    """The first thing that ``look`` finds in a message; None when there is nothing, KafkaException as usual.

    NotFinished when too much was written since ``from_ms`` to be looked through. ``partition``: there only.
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
    starts = [start for start in starts if start.offset >= 0]
    # Up to what there is now, committed or not: what was written with the state that was read is among it.
    left = {start.partition: uncommitted_end(admin, topic, start.partition) for start in starts}
    left = {start.partition: left[start.partition] for start in starts if start.offset < left[start.partition]}
    consumer.assign([start for start in starts if start.partition in left])
    deadline_s, seen = time.monotonic() + SEARCH_S, 0
    while left:
        if seen >= MOST_RECORDS or time.monotonic() > deadline_s:
            raise NotFinished(f"{seen} records of {topic} were looked through, and there are more")
        for message in consumer.consume(_AT_ONCE, POLL_S):
            number, at = message.partition() or 0, message.offset() or 0
            if not is_end(message):
                seen, at = seen + 1, at + 1
                told = look(message)
                if told is not None:
                    return told
            # The event of the end tells how far it is also where the last ones are marks of transactions.
            if at >= left.get(number, _PAST_ALL_OFFSETS):
                del left[number]
    return None
