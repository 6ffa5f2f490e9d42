"""Looking for a record in the rejected topic, by where it came from, from a time on and not for ever."""

import time
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from index.headers import DELAY_ERROR, DELAY_SOURCE
from index.schedule import Reason
from sidecar.config.model import Config
from sidecar.intake.handed_over import readable_headers
from sidecar.kafka import clients
from sidecar.kafka.admin import uncommitted_end
from sidecar.kafka.errors import is_end

MOST_RECORDS: Final = 50_000
SEARCH_S: Final = 5.0
REQUEST_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.1
_AT_ONCE: Final = 1_000
_PAST_ALL_OFFSETS: Final = 1 << 62


class Found(NamedTuple):
    """A rejected record."""

    reason: Reason


class NotFinished(DelayRouterError):
    """There is more in the rejected topic than is read for one answer."""


def rejected_code(config: Config, admin: AdminClient, rejected: str, source: str, from_ms: int) -> Found | None:
    """The reason of the record that came from ``source``, None when it was not rejected; KafkaException as usual.

    NotFinished when too much was rejected since ``from_ms`` to be looked through.
    """
    consumer = clients.bulk_reader(config)
    try:
        return _search(consumer, admin, rejected, source, from_ms)
    finally:
        consumer.close()


def _search(consumer: Consumer, admin: AdminClient, rejected: str, source: str, from_ms: int) -> Found | None:
    topic = consumer.list_topics(rejected, REQUEST_TIMEOUT_S).topics[rejected]
    if topic.error is not None:
        raise KafkaException(topic.error)
    starts = consumer.offsets_for_times(
        [TopicPartition(rejected, number, from_ms) for number in topic.partitions], timeout=REQUEST_TIMEOUT_S
    )
    starts = [start for start in starts if start.offset >= 0]
    # Up to what there is now, committed or not: what was rejected with the state that was read is among it.
    left = {start.partition: uncommitted_end(admin, rejected, start.partition) for start in starts}
    left = {start.partition: left[start.partition] for start in starts if start.offset < left[start.partition]}
    consumer.assign([start for start in starts if start.partition in left])
    deadline_s, seen = time.monotonic() + SEARCH_S, 0
    while left:
        if seen >= MOST_RECORDS or time.monotonic() > deadline_s:
            raise NotFinished(f"{seen} records of {rejected} were looked through, and there are more")
        for message in consumer.consume(_AT_ONCE, POLL_S):
            partition, at = message.partition() or 0, message.offset() or 0
            if not is_end(message):
                seen, at = seen + 1, at + 1
                headers = _ours(message)
                if headers.get(DELAY_SOURCE) == source.encode():
                    return Found(_reason(headers.get(DELAY_ERROR)))
            # The event of the end tells how far it is also where the last ones are marks of transactions.
            if at >= left.get(partition, _PAST_ALL_OFFSETS):
                del left[partition]
    return None


def _ours(message: Message) -> dict[str, bytes | None]:
    """The last header of each name, which is the router's own; none of what it cannot have written."""
    return dict(readable_headers(message))


def _reason(code: bytes | None) -> Reason:
    try:
        return Reason((code or b"").decode())
    except ValueError:
        # Of a newer router.
        return Reason.INVALID_SCHEDULE
