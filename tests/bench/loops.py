"""Runs the two reference loops in a separate process: consume, and consume→produce in transactions.

They schedule, index and remember nothing. Both are tuned as well as this client allows, so that the ratios mean
something. These settings had an effect:

* ``fetch.queue.backoff.ms``: with the default of 1 s the loop stops whenever librdkafka's queue was full once (about
  115 k/s instead of about 200 k/s);
* reading less than a transaction at a time and ``poll(0)`` after each read: reading, batching and delivery reports
  overlap;
* ``linger.ms``: 0 makes small batches and costs CPU (7 instead of 5 us a record); the best other value depends on the
  machine, so several are run (see ``ceiling``).

These had no effect beyond the noise: ``batch.size``, Nagle, ``retry.backoff.ms``, lz4, reports of errors only.
"""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.bench import child, workload

CONSUMER = {
    "group.id": "bench-loop",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 10,
    "fetch.message.max.bytes": 4_194_304,
    "queued.max.messages.kbytes": 65_536,
}

# The raw loop outruns the fetches unless many records are queued ahead.
RAW_CONSUMER = CONSUMER | {"queued.min.messages": 1_000_000, "queued.max.messages.kbytes": 262_144}

CONSUME_TIMEOUT_S = 0.1
RAW_CHUNK = 10_000


def consume(bootstrap: str, source: str, count: int) -> float:
    """Read ``count`` records and their headers. Return records per second after connect and first chunk."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **RAW_CONSUMER})
    consumer.assign([TopicPartition(source, 0, 0)])
    done = timed_from = 0
    started_s = 0.0
    while done < count:
        messages = consumer.consume(RAW_CHUNK, CONSUME_TIMEOUT_S)
        for message in messages:
            message.headers()
        done += len(messages)
        if messages and not timed_from:
            timed_from, started_s = done, time.perf_counter()
    rate = (done - timed_from) / (time.perf_counter() - started_s)
    consumer.close()
    return rate


def producer_settings(bootstrap: str, linger_ms: int) -> dict[str, str | int | float | bool]:
    """Return the settings of a loop's producer, with a new transactional id."""
    return workload.QUIET | {
        "bootstrap.servers": bootstrap,
        "transactional.id": workload.name("loop"),
        "linger.ms": linger_ms,
        "queue.buffering.max.messages": 1_000_000,
    }


def copy(
    bootstrap: str,
    source: str,
    target: str,
    count: int,
    transaction_records: int,
    linger_ms: int,
    chunk: int,
    as_released: bool,
) -> float:
    """Read ``count`` records and write them on. Return records per second after the first transaction.

    The copies have the headers of the records, or, with ``as_released``, the headers that the router adds.
    """
    headers_of: Callable[[Message], Any] = _released_headers if as_released else Message.headers
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    producer = Producer(producer_settings(bootstrap, linger_ms))
    producer.init_transactions()
    consumer.assign([TopicPartition(source, 0, 0)])
    produce = producer.produce
    done = timed_from = 0
    started_s = 0.0
    while done < count:
        producer.begin_transaction()
        end = min(done + transaction_records, count)
        while done < end:
            messages = consumer.consume(min(chunk, end - done), CONSUME_TIMEOUT_S)
            for message in messages:
                produce(target, message.value(), message.key(), 0, headers=headers_of(message))
            producer.poll(0)
            done += len(messages)
        producer.commit_transaction()
        if not timed_from:
            timed_from, started_s = done, time.perf_counter()
    rate = (done - timed_from) / (time.perf_counter() - started_s)
    consumer.close()
    return rate


def _released_headers(message: Message) -> list[tuple[str, bytes]]:
    return [
        ("delay-due", b"%d" % message.timestamp()[1]),
        ("delay-source", b"bench-source/0/%d" % (message.offset() or 0)),
        ("delay-source-timestamp", b"%d" % message.timestamp()[1]),
    ]


if __name__ == "__main__":
    given = child.arguments()
    loop = copy if given.pop("loop") == "copy" else consume
    child.answer(rate=loop(**given))
