"""Measures how often a merge writes a pending record again, and how many buckets there are, by the longest delay."""

import time
from collections.abc import Iterator
from typing import Final

from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.results import Row, at_most

HOUR_MS: Final = 3_600_000

HORIZONS_MS: Final = {"an hour": HOUR_MS, "a day": 24 * HOUR_MS, "7 days": 168 * HOUR_MS, "30 days": 720 * HOUR_MS}
"""The longest delays; each record is due at a random moment from ``SOONEST_MS`` on, so that none leaves meanwhile."""

SOONEST_MS: Final = 10 * 60_000

PER_S: Final = 1_000
TOPIC: Final = {"seal_age": "1s", "max_delay": "31d"}
"""A seal a second in place of one a minute, so that a minute has about as many seals as an hour."""

SETTLE_S: Final = 5
MOST_REWRITES: Final = 8
MOST_BUCKETS: Final = 24


def horizons(context: Context) -> Iterator[Row]:
    """Measure each longest delay with a router of its own."""
    for name, horizon_ms in HORIZONS_MS.items():
        with router.running(context.bootstrap, topic=TOPIC) as running:
            _send(context, running, horizon_ms)
            time.sleep(SETTLE_S)
            indexed = running.metric("delay_router_records_indexed_total")
            rewrites = running.metric("delay_router_entries_merged_total") / indexed
            buckets = running.metric("delay_router_buckets")
        detail = f"{indexed:.0f} records in {context.sizes.horizons_s} s"
        what = f"delays of up to {name}, a seal a second"
        yield Row(
            "horizons", f"{what}: rewrites of a record", rewrites, "x", goal=at_most(MOST_REWRITES), detail=detail
        )
        yield Row("horizons", f"{what}: buckets", buckets, "buckets", goal=at_most(MOST_BUCKETS))


def _send(context: Context, running: router.Router, horizon_ms: int) -> None:
    """Write ``PER_S`` records in each second, with random due times up to the longest delay."""
    producer = workload.ordered_producer(context.bootstrap, workload.FILL_LINGER_MS)
    began_ms = workload.now_ms()
    for second in range(context.sizes.horizons_s):
        workload.sleep_until(began_ms + second * 1_000)
        for _ in range(PER_S):
            due_ms = workload.now_ms() + context.random.randint(SOONEST_MS, horizon_ms)
            workload.produce(producer, running.delay_topic, workload.headers(due_ms, running.target))
        workload.flush(producer)
