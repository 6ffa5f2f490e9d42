"""Reads a compacted topic to its end."""

from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.bench import workload
from tests.bench.released import CONSUMER
from tests.bench.results import BenchmarkFailed

TIMEOUT_MS: Final = 300_000


def contents(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """Return the last value of each key in partition 0 of a compacted topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    contents: dict[bytes, bytes] = {}
    at_end = False
    until_ms = workload.now_ms() + TIMEOUT_MS
    while not at_end:
        if workload.now_ms() > until_ms:
            raise BenchmarkFailed(f"{topic} could not be read to its end")
        for message in consumer.consume(1_000, 0.1):
            error = message.error()
            key, value = message.key(), message.value()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                at_end = True
            elif error is not None:
                raise BenchmarkFailed(f"{topic}: {error}")
            elif isinstance(key, bytes) and isinstance(value, bytes):
                contents[key] = value
            elif isinstance(key, bytes):
                contents.pop(key, None)
    consumer.close()
    return contents
