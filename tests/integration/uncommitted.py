"""Looks for lost records among those that no reader of committed records sees: aborted ones, and open transactions.

A lost record that is there was written, and its transaction has ended otherwise in its partition than in the state. A
lost record that is not there was never written, or the brokers have lost it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition

TIMEOUT_S = 10.0


def written(kafka: Mapping[str, str], topics: Sequence[str], sources: Collection[str]) -> list[str]:
    """Return the place, leader epoch and time of every record of these sources, committed or not."""
    return [
        f"{source} is at {message.topic()}/{message.partition()}/{message.offset()}, leader epoch"
        f" {message.leader_epoch()}, appended at {message.timestamp()[1]}"
        for message in _all(kafka, topics)
        if (source := _source_of(message)) in sources
    ]


def _source_of(message: Message) -> str:
    headers = cast("Sequence[tuple[str, bytes | None]]", message.headers() or ())
    return (dict(headers).get("delay-source") or b"").decode()


def _all(kafka: Mapping[str, str], topics: Sequence[str]) -> Iterator[Message]:
    settings = {"group.id": "uncommitted", "isolation.level": "read_uncommitted", "enable.partition.eof": True}
    consumer = Consumer({**kafka, **settings})
    try:
        found = consumer.list_topics(timeout=TIMEOUT_S).topics
        left = {(topic, number) for topic in topics for number in found[topic].partitions}
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in left])
        while left and (message := consumer.poll(TIMEOUT_S)) is not None:
            if message.error() is None:
                yield message
            else:
                left.discard((message.topic(), message.partition()))
    finally:
        consumer.close()
