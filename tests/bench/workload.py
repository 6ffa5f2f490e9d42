"""Provides the records that every benchmark moves, and their topics.

All records have one shape, so that ratios compare like with like: a value of 200 B, a key of 12 B, and the two headers
of a delay record, ``deliver-at`` and ``deliver-to``.
"""

import time
import uuid
from collections.abc import Callable, Iterable
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from tests.bench.results import BenchmarkFailed
from tests.support.topics import create_topic

VALUE: Final = bytes(range(200))
KEY: Final = b"order-000001"

REQUEST_TIMEOUT_S: Final = 30.0

# Errors only: a fresh broker is still loading its coordinators, which clients report and then wait for.
QUIET: Final[dict[str, str | int | float | bool]] = {"log_level": 3}

# Large batches fill a topic as fast as possible.
FILL_LINGER_MS: Final = 20

# The broker stamps records with the append time, which is the time of release.
APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}

Headers = list[tuple[str, bytes | str | None]]


def headers(due_ms: int, target: str) -> Headers:
    """Return the control headers of a record that is due at ``due_ms`` (epoch) in ``target``."""
    return [("deliver-at", b"%d" % due_ms), ("deliver-to", target.encode())]


def now_ms() -> int:
    """Return the wall clock in epoch ms; the broker on this machine has the same clock."""
    return time.time_ns() // 1_000_000


def name(role: str) -> str:
    """Return a topic or group name that no other run uses."""
    return f"bench-{role}-{uuid.uuid4().hex[:8]}"


def create(bootstrap: str, topic: str, settings: dict[str, str] | None = None) -> None:
    """Create a topic with one partition and the brokers' default of replicas, and wait until it can be used."""
    create_topic(admin(bootstrap), topic, config=settings)


def delete(bootstrap: str, topics: Iterable[str]) -> None:
    """Delete topics, so that one benchmark's log does not fill another one's page cache; ignore missing ones."""
    client = admin(bootstrap)
    for future in client.delete_topics(list(topics)).values():
        try:
            future.result(REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            # This error would hide the reason why the topic was never created.
            if exception.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise


def admin(bootstrap: str) -> AdminClient:
    """Return an admin client; the caller keeps it for the answers: a client that is collected cancels its requests."""
    return AdminClient(QUIET | {"bootstrap.servers": bootstrap})


def ordered_producer(bootstrap: str, linger_ms: int) -> Producer:
    """Return the producer of all records that are sent to be delayed or copied."""
    return Producer(
        QUIET
        | {
            "bootstrap.servers": bootstrap,
            # Order survives retries: the n-th record sent has offset n.
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "queue.buffering.max.messages": 500_000,
        }
    )


def fill(bootstrap: str, topic: str, count: int, headers_of: Callable[[int], Headers], partition: int = 0) -> None:
    """Write ``count`` records to a partition; ``headers_of`` gives the headers of the n-th one."""
    write(ordered_producer(bootstrap, FILL_LINGER_MS), topic, count, headers_of, partition)


def write(producer: Producer, topic: str, count: int, headers_of: Callable[[int], Headers], partition: int = 0) -> None:
    """Write ``count`` records to a partition with a producer that may be connected already."""
    for number in range(count):
        produce(producer, topic, headers_of(number), partition)
    flush(producer)


def flush(producer: Producer) -> None:
    """Wait until everything queued has been written."""
    left = producer.flush(REQUEST_TIMEOUT_S)
    if left:
        raise BenchmarkFailed(f"{left} records could not be written in {REQUEST_TIMEOUT_S:.0f} s")


def produce(producer: Producer, topic: str, record_headers: Headers, partition: int = 0) -> None:
    """Queue one record; wait for room if the queue is full."""
    while True:
        try:
            producer.produce(topic, VALUE, KEY, partition, headers=record_headers)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def sleep_until(moment_ms: int) -> None:
    """Sleep until an instant in epoch milliseconds."""
    time.sleep(max(0.0, (moment_ms - now_ms()) / 1000))
