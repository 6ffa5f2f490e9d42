"""What the benchmarks of named schedules write, and how they hear what became of it."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.bench import workload
from tests.bench.released import CONSUMER
from tests.bench.results import BenchmarkFailed

CHUNK: Final = 10_000


def named(due_ms: int, target: str, number: int) -> workload.Headers:
    """A schedule with an id of its own."""
    return [*workload.headers(due_ms, target), ("deliver-id", _id(number))]


def cancel(number: int) -> workload.Headers:
    """What cancels it."""
    return [("deliver-cancel", _id(number))]


def path(topic: str, number: int) -> str:
    """Where the admin API finds it."""
    return f"/api/v1/topics/{topic}/schedules?id={_id(number).decode()}"


def _id(number: int) -> bytes:
    return b"order-%d" % number


class Receipts:
    """Reads the receipts of partition 0 as they come."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.heard_ms: dict[bytes, float] = {}

    def wait(self, count: int, timeout_s: float) -> None:
        """Until there are so many; BenchmarkFailed when there are not in time, or when one cancelled nothing."""
        until_s = time.monotonic() + timeout_s
        while len(self.heard_ms) < count:
            if time.monotonic() > until_s:
                raise BenchmarkFailed(f"{len(self.heard_ms)} of {count} receipts came within {timeout_s:.0f} s")
            self.poll(0.05)

    def poll(self, timeout_s: float) -> None:
        """Take in what there is."""
        messages = self._consumer.consume(CHUNK, timeout_s) if timeout_s else [self._consumer.poll(0.001)]
        now_ms = time.time() * 1_000
        for message in messages:
            if message is None:
                continue
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise BenchmarkFailed(f"receipts: {error}")
                continue
            key, said = message.key() or b"", json.loads(message.value() or b"{}")
            if said.get("outcome") != "cancelled" or key in self.heard_ms:
                raise BenchmarkFailed(f"the receipt of {key!r} says {said}, or it has two")
            self.heard_ms[key] = now_ms


@contextmanager
def receipts_of(bootstrap: str, delay_topic: str) -> Iterator[Receipts]:
    """The receipts that are written from now on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    topic = f"{delay_topic}.receipts"
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), workload.REQUEST_TIMEOUT_S)[1]
    consumer.assign([TopicPartition(topic, 0, end)])
    try:
        yield Receipts(consumer)
    finally:
        consumer.close()


def latest_bytes(bootstrap: str, topic: str) -> int:
    """Bytes of the latest value of each key in partition 0: what a compacted topic comes down to."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(topic, 0, 0)])
    latest: dict[bytes, int] = {}
    try:
        while True:
            for message in consumer.consume(CHUNK, 1.0):
                if message.error() is not None:
                    return sum(latest.values())
                key = message.key() or b""
                latest[key] = len(key) + len(message.value() or b"")
    finally:
        consumer.close()


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest of them that ``percent`` of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(-(-len(ordered) * int(percent) // 100), 1) - 1]
