"""Measures how often a merge writes a pending record again, and how many buckets there are, by the longest delay.

Rewrites follow the number of seals in the longest delay. A router seals once a minute, so a run that seals more often
shows a long delay in a short time.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.results import Row, at_most


class Horizon(NamedTuple):
    """A longest delay: its seals, one a minute, and the time for each in the benchmark."""

    name: str
    seals: int
    seal_ms: int

    @property
    def compressed_ms(self) -> int:
        """The longest delay in the benchmark."""
        return self.seals * self.seal_ms


HORIZONS: Final = (
    # Records that are due within ten seconds are not sealed: an hour compressed to six would have no bucket.
    Horizon("an hour", 60, 1_000),
    Horizon("a day", 24 * 60, 100),
    Horizon("7 days", 7 * 24 * 60, 100),
    Horizon("30 days", 30 * 24 * 60, 100),
)

PER_S: Final = 1_000
MOST_REWRITES: Final = 8
MOST_BUCKETS: Final = 24


def horizons(context: Context) -> Iterator[Row]:
    """Measure each longest delay with a router of its own, over the whole delay or ``horizons_s``."""
    for horizon in HORIZONS:
        topic = {"seal_age": f"{horizon.seal_ms}ms", "seal_beyond": "0ms"}
        with router.running(context.bootstrap, topic=topic) as running:
            seconds = min(horizon.compressed_ms // 1_000, context.sizes.horizons_s)
            most_buckets = _send(context, running, horizon.compressed_ms, seconds)
            indexed = running.metric("delay_router_records_indexed_total")
            rewrites = running.metric("delay_router_entries_merged_total") / indexed
            seals = running.metric("delay_router_seal_seconds_count")
        detail = f"{seals:.0f} of {horizon.seals} seals, {indexed:.0f} records in {seconds} s"
        what = f"delays of up to {horizon.name}, a seal each {horizon.seal_ms} ms in place of a minute"
        yield Row(
            "horizons", f"{what}: rewrites of a record", rewrites, "x", goal=at_most(MOST_REWRITES), detail=detail
        )
        yield Row("horizons", f"{what}: most buckets", most_buckets, "buckets", goal=at_most(MOST_BUCKETS))


def _send(context: Context, running: router.Router, longest_ms: int, seconds: int) -> float:
    """Write ``PER_S`` records in each second, with random delays. Return the largest number of buckets."""
    producer = workload.ordered_producer(context.bootstrap, workload.FILL_LINGER_MS)
    began_ms, most_buckets = workload.now_ms(), 0.0
    for second in range(seconds):
        workload.sleep_until(began_ms + second * 1_000)
        for _ in range(PER_S):
            due_ms = workload.now_ms() + context.random.randint(0, longest_ms)
            workload.produce(producer, running.delay_topic, workload.headers(due_ms, running.target))
        workload.flush(producer)
        most_buckets = max(most_buckets, running.metric("delay_router_buckets"))
    return most_buckets
