"""Measures the lateness of a router with few records: the experience of one record.

Most of the lateness comes from the client and the broker, and depends on the machine. So the router's p99 is given as a
ratio to a bare loop, which writes one record in its own transaction at each due time.
"""

import time
from array import array
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer

from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import Row, never_below, no_more_than

DELAY_MS: Final = 2_000
SPREAD_MS: Final = 1_000
BARE_LOOPS: Final = 1.5


def idle(context: Context) -> Iterator[Row]:
    """Measure p50, p99 and minimum of lateness at a few records a second, due at steady intervals.

    Records due at random instants form clusters, and wait for each other's transactions; further rows show this.
    """
    for rate_per_s in context.sizes.idle_rates:
        what = f"{rate_per_s}/s"
        bare = _bare(context, rate_per_s)
        yield Row("idle", f"{what}, a bare loop: p99", bare.percentile(99), "ms", detail=bare.text())
        steady = _at(context, rate_per_s, spread_ms=0)
        yield Row("idle", f"{what}: p50", steady.percentile(50), "ms", detail=steady.text())
        p99_ms, bare_ms = steady.percentile(99), max(bare.percentile(99), 1)
        yield Row("idle", f"{what}: p99", p99_ms, "ms", p99_ms / bare_ms, "bare loop", no_more_than(BARE_LOOPS))
        yield Row("idle", f"{what}: earliest", steady.percentile(0), "ms", goal=never_below(0))
        random = _at(context, rate_per_s, spread_ms=SPREAD_MS)
        yield Row("idle", f"{what} at random: p50", random.percentile(50), "ms", detail=random.text())
        yield Row("idle", f"{what} at random: p99", random.percentile(99), "ms")


def _bare(context: Context, rate_per_s: int) -> Lateness:
    """Return the lateness of a bare loop, which writes one record in its own transaction at each due time."""
    source, target = workload.name("none"), workload.name("bare")
    workload.create(context.bootstrap, target, workload.APPEND_TIME)
    producer = Producer(
        workload.QUIET | {"bootstrap.servers": context.bootstrap, "transactional.id": target, "linger.ms": 0}
    )
    producer.init_transactions(workload.REQUEST_TIMEOUT_S)
    due_times_ms = array("q")
    began_ms = workload.now_ms() + SPREAD_MS
    for number in range(rate_per_s * context.sizes.idle_s):
        due_times_ms.append(began_ms + number * 1_000 // rate_per_s)
        workload.sleep_until(due_times_ms[-1])
        producer.begin_transaction()
        headers: workload.Headers = [("delay-source", f"{source}/0/{number}")]
        producer.produce(target, workload.VALUE, workload.KEY, 0, headers=headers)
        producer.commit_transaction(workload.REQUEST_TIMEOUT_S)
    lateness = TargetReader(context.bootstrap, source, target).lateness(due_times_ms)
    workload.delete(context.bootstrap, [target])
    return lateness


def _at(context: Context, rate_per_s: int, spread_ms: int) -> Lateness:
    with router.running(context.bootstrap) as running:
        producer = workload.ordered_producer(context.bootstrap, linger_ms=0)
        due_times_ms = array("q")
        began_s, began_ms = time.monotonic(), workload.now_ms()
        for number in range(rate_per_s * context.sizes.idle_s):
            time.sleep(max(0.0, began_s + number / rate_per_s - time.monotonic()))
            due_ms = began_ms + DELAY_MS + number * 1_000 // rate_per_s + context.random.randint(-spread_ms, spread_ms)
            workload.produce(producer, running.delay_topic, workload.headers(due_ms, running.target))
            producer.poll(0)
            due_times_ms.append(due_ms)
        workload.flush(producer)
        workload.sleep_until(max(due_times_ms) + 500)
        return TargetReader(context.bootstrap, running.delay_topic, running.target).lateness(due_times_ms)
