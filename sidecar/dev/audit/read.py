"""Reads topics by position, committed records only, up to the ends they had: silence never counts as an end."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, cast

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition

from sidecar.dev.audit.record import AuditedRecord, Header

STALL_S: Final = 60.0
"""The audit fails when no record arrives for this long in front of the end of a topic."""

_READ_RECORDS: Final = 10_000
_REQUEST_TIMEOUT_S: Final = 30.0
_PAUSE_S: Final = 0.1
_NOT_LED_YET: Final = frozenset(
    {KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE}
)

Ranges = dict[tuple[str, int], tuple[int, int]]
"""Maps (topic, partition) to (first offset, end of the committed records)."""


class AuditError(Exception):
    """The audit could not read the topics to their ends; the message names topic and cause."""


def ranges(kafka: Mapping[str, str], topics: Iterable[str]) -> Ranges:
    """Return the first offset and the end of every partition of `topics`; raise AuditError for a missing topic."""
    with _consumer(kafka) as consumer:
        found: Ranges = {}
        for topic in dict.fromkeys(topics):
            metadata = consumer.list_topics(topic, timeout=_REQUEST_TIMEOUT_S).topics[topic]
            if metadata.error is not None:
                raise AuditError(f"topic {topic}: {metadata.error.str()}")
            for partition in metadata.partitions:
                found[topic, partition] = _edges(consumer, topic, partition)
        return found


def _edges(consumer: Consumer, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset and the end of the committed records, control records included."""
    deadline = time.monotonic() + _REQUEST_TIMEOUT_S
    while True:
        try:
            edges = consumer.get_watermark_offsets(TopicPartition(topic, partition), _REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            # A broker that has just started is in the metadata before it leads its partitions, and a new leader does
            # not know its end at once (KIP-207).
            if exception.args[0].code() not in _NOT_LED_YET or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_S)
        else:
            if edges is None:
                raise AuditError(f"{topic}/{partition}: no end offset within {_REQUEST_TIMEOUT_S:.0f} s")
            return edges


def read(kafka: Mapping[str, str], within: Ranges) -> Iterator[AuditedRecord]:
    """Yield the committed records of these ranges, by offset in each partition; raise AuditError if they stall."""
    open_ends = {place: end for place, (start, end) in within.items() if start < end}
    with _consumer(kafka) as consumer:
        consumer.assign([TopicPartition(*place, within[place][0]) for place in open_ends])
        deadline = time.monotonic() + STALL_S
        while open_ends:
            messages = consumer.consume(_READ_RECORDS, 0.05)
            if messages:
                deadline = time.monotonic() + STALL_S
            elif time.monotonic() > deadline:
                raise AuditError(f"nothing for {STALL_S:.0f} s, yet not at the end of {sorted(open_ends)}")
            yield from _records(messages, open_ends)


@contextmanager
def _consumer(kafka: Mapping[str, str]) -> Iterator[Consumer]:
    settings = {
        "group.id": "delay-audit",  # required by the client; partitions are assigned by hand
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "check.crcs": True,
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer({**kafka, **settings})
    try:
        yield consumer
    finally:
        consumer.close()


def _records(messages: Iterable[Message], open_ends: dict[tuple[str, int], int]) -> Iterator[AuditedRecord]:
    """Yield the records in front of the ends; a partition ends with its last record or its end-of-partition event.

    A partition whose last offsets are control records or aborted records ends only with the event.
    """
    for message in messages:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        error = message.error()
        if topic is None or partition is None or offset is None:
            raise AuditError(f"the consumer failed: {error}")
        if error is not None and error.name() != "_PARTITION_EOF":
            raise AuditError(f"{topic}/{partition}: {error.str()}")
        end = open_ends.get((topic, partition))
        if end is None:
            continue
        if error is None and offset < end:
            kind, timestamp_ms = message.timestamp()
            headers = cast("Sequence[Header]", message.headers() or ())
            appended = kind == TIMESTAMP_LOG_APPEND_TIME
            yield AuditedRecord(
                topic, partition, offset, message.key(), message.value(), headers, timestamp_ms, appended
            )
        if offset >= end - (error is None):
            del open_ends[topic, partition]
