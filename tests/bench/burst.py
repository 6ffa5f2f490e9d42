"""Measures a burst: many records due at one instant, all of them indexed before it."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.bench import router, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import Row, at_least

# The time from the first write to the instant: writing and indexing take about 1 s each on 2 cores.
LEAD_MS: Final = 6_000

# The records must be indexed this long before the instant, so that the measurement excludes indexing.
QUIET_MS: Final = 500


class Burst(NamedTuple):
    """The result of one run: records per second from the instant to the last append."""

    rate_per_s: float
    lateness: Lateness


def burst(context: Context) -> Iterator[Row]:
    """Measure the rate from the common due time to the last append in the target topic; the median of the runs."""
    count = context.sizes.burst_records
    with router.running(context.bootstrap) as running:
        reader = TargetReader(context.bootstrap, running.delay_topic, running.target)
        runs = [_once(context, running, reader, count, run * count) for run in range(context.sizes.burst_runs)]
    middle = sorted(runs, key=lambda run: run.rate_per_s)[len(runs) // 2]
    ratios = ", ".join(f"{context.of_ceiling(run.rate_per_s):.2f}" for run in runs)
    yield Row(
        "burst",
        f"{count // 1000} k due at one instant",
        middle.rate_per_s,
        "records/s",
        context.of_ceiling(middle.rate_per_s),
        "ceiling",
        at_least(1.5),
        f"median of {len(runs)} (ratios {ratios}); {middle.lateness.text()}",
    )


def _once(context: Context, running: router.Router, reader: TargetReader, count: int, first_offset: int) -> Burst:
    due_ms = workload.now_ms() + LEAD_MS
    headers = workload.headers(due_ms, running.target)
    workload.fill(context.bootstrap, running.delay_topic, count, lambda _: headers)
    running.wait_pending(lambda pending: pending == count, until_ms=due_ms - QUIET_MS)
    # No requests during the burst: the two cores belong to the router and the broker.
    workload.sleep_until(due_ms + 2_000)
    lateness = reader.lateness([due_ms] * count, first_offset)
    elapsed_ms = max(lateness.last_append_ms - due_ms, 1)
    return Burst(count * 1000 / elapsed_ms, lateness)
