"""Measures recurring schedules with a short period on one partition: each occurrence is released, the next written.

Every series ends after a number of occurrences, so all of them can be counted: none is skipped, none comes twice.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.named.schedules import CHUNK
from tests.bench.released import CONSUMER, Lateness
from tests.bench.results import BenchmarkFailed, Row, at_most

PERIOD_MS: Final = 1_000
LEAD_MS: Final = 10_000
TIMEOUT_MS: Final = 120_000

LATE_MS: Final = 50


def series(context: Context) -> Iterator[Row]:
    """Measure the lateness of every occurrence, except in the first second, when all series begin."""
    count, times = context.sizes.named_series, context.sizes.named_occurrences
    topic = {"recurring": True, "min_period": f"{PERIOD_MS}ms"}
    with router.running(context.bootstrap, topic=topic) as under:
        first_ms = workload.now_ms() + LEAD_MS
        begins_ms = [first_ms + number * PERIOD_MS // count for number in range(count)]

        def headers_of(number: int) -> workload.Headers:
            recurs: workload.Headers = [("deliver-every", b"%d" % PERIOD_MS), ("deliver-times", b"%d" % times)]
            return [*workload.headers(begins_ms[number], under.target), *recurs, ("deliver-missed", b"all")]

        workload.fill(context.bootstrap, under.delay_topic, count, headers_of)
        late_ms = _late_ms(context, under, count * times, first_ms)
        under.process.stop()
    lateness = Lateness(sorted(late_ms), 0, 0)
    name = f"{count // 1_000} k series, each every second: p99 of lateness"
    detail = f"{count * times:,} occurrences; {lateness.text()}"
    yield Row("series", name, lateness.percentile(99), "ms", goal=at_most(LATE_MS), detail=detail)


def _late_ms(context: Context, under: router.Router, count: int, first_ms: int) -> list[int]:
    """Return the lateness in ms of each occurrence after the first.

    Raise BenchmarkFailed if one is missing, early or comes twice.
    """
    consumer = Consumer({"bootstrap.servers": context.bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(under.target, 0, 0)])
    seen: Counter[tuple[bytes, bytes]] = Counter()
    late_ms: list[int] = []
    until_ms = first_ms + context.sizes.named_occurrences * PERIOD_MS + TIMEOUT_MS
    at_end = False
    try:
        while len(seen) < count or not at_end:
            if workload.now_ms() > until_ms:
                raise BenchmarkFailed(f"{len(seen)} of {count} occurrences came in time")
            for message in consumer.consume(CHUNK, 0.5):
                error = message.error()
                at_end = error is not None
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise BenchmarkFailed(f"{under.target}: {error}")
                    continue
                # The stubs also allow the header types of produce; headers that were read are a list of pairs.
                headers: dict[str, Any] = dict(message.headers() or ())
                number, due_ms = headers["delay-occurrence"], int(headers["delay-due"])
                seen[headers["delay-series"], number] += 1
                late_ms += [message.timestamp()[1] - due_ms] if number != b"1" else []
    finally:
        consumer.close()
    if len(seen) > count or max(seen.values()) > 1 or min(late_ms) < 0:
        raise BenchmarkFailed(f"{len(seen)} occurrences of {count}, {max(seen.values())} times, {min(late_ms)} ms late")
    return late_ms
