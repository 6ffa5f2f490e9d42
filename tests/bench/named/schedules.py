"""Writes the records of the benchmarks of named schedules, and reads their receipts."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.bench import workload
from tests.bench.released import CONSUMER
from tests.bench.results import BenchmarkFailed

CHUNK: Final = 10_000
CANCELLED: Final = frozenset({"cancelled", "cancelled-where"})


def named(due_ms: int, target: str, number: int) -> workload.Headers:
    """Return the headers of a schedule with its own id."""
    return [*workload.headers(due_ms, target), ("deliver-id", id_of(number))]


def cancel(number: int) -> workload.Headers:
    """Return the headers of a record that cancels a schedule."""
    return [("deliver-cancel", id_of(number))]


def cancel_where(due_from_ms: int, due_to_ms: int) -> workload.Headers:
    """Return the headers of a record that cancels the schedules due in a half-open range; its receipt has no id."""
    where = {"due_from": due_from_ms, "due_to": due_to_ms}
    return [("deliver-cancel-where", json.dumps(where).encode())]


def path(topic: str, number: int) -> str:
    """Return the path of a schedule in the admin API."""
    return f"/api/v1/topics/{topic}/schedules?id={id_of(number).decode()}"


def id_of(number: int) -> bytes:
    """Return the id of the n-th schedule."""
    return b"order-%d" % number


class Receipts:
    """Reads the receipts of partition 0 as they arrive."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self.heard_ms: dict[bytes, float] = {}

    def wait(self, count: int, timeout_s: float) -> None:
        """Wait for this number of receipts. Raise BenchmarkFailed after the timeout, or if a cancel found nothing."""
        until_s = time.monotonic() + timeout_s
        while len(self.heard_ms) < count:
            if time.monotonic() > until_s:
                raise BenchmarkFailed(f"{len(self.heard_ms)} of {count} receipts came within {timeout_s:.0f} s")
            self.poll(0.05)

    def poll(self, timeout_s: float) -> None:
        """Read the available receipts."""
        first = self._consumer.poll(timeout_s)
        now_ms = time.time() * 1_000
        for message in [first, *self._consumer.consume(CHUNK, 0)] if first is not None else ():
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise BenchmarkFailed(f"receipts: {error}")
                continue
            key, said = message.key() or b"", json.loads(message.value() or b"{}")
            if said.get("outcome") not in CANCELLED or key in self.heard_ms:
                raise BenchmarkFailed(f"the receipt of {key!r} says {said}, or it has two")
            self.heard_ms[key] = now_ms


@contextmanager
def receipts_of(bootstrap: str, delay_topic: str) -> Iterator[Receipts]:
    """Yield the receipts that are written from now on."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    topic = f"{delay_topic}.receipts"
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), workload.REQUEST_TIMEOUT_S)[1]
    consumer.assign([TopicPartition(topic, 0, end)])
    try:
        yield Receipts(consumer)
    finally:
        consumer.close()
