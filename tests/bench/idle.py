"""Lateness of a router with next to nothing to do: what one record experiences."""

import time
from array import array
from collections.abc import Iterator
from typing import Final

from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import Row, at_most, never_below

DELAY_MS: Final = 2_000
SPREAD_MS: Final = 1_000


def idle(context: Context) -> Iterator[Row]:
    """Measure p50, p99 and minimum of lateness at a few records a second, due at steady intervals.

    Due at random instants they come in clusters, and wait for each other's transactions; that is shown beside it.
    """
    for rate_per_s in context.sizes.idle_rates:
        steady = _at(context, rate_per_s, spread_ms=0)
        what = f"{rate_per_s}/s"
        yield Row("idle", f"{what}: p50", steady.percentile(50), "ms", goal=at_most(3), detail=steady.text())
        yield Row("idle", f"{what}: p99", steady.percentile(99), "ms", goal=at_most(10))
        yield Row("idle", f"{what}: earliest", steady.percentile(0), "ms", goal=never_below(0))
        random = _at(context, rate_per_s, spread_ms=SPREAD_MS)
        yield Row("idle", f"{what} at random: p50", random.percentile(50), "ms", detail=random.text())
        yield Row("idle", f"{what} at random: p99", random.percentile(99), "ms")


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
