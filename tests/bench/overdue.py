"""Measures overdue records after an outage, indexed before it or never seen."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import TargetReader
from tests.bench.results import BenchmarkFailed, Row, at_least
from tests.bench.router import Router, Standing

# The time from the write to the first due time: longer than the preparation, so that buckets are also sealed by age.
CATCH_UP_LEAD_MS: Final = 75_000
STOPPED_BEFORE_MS: Final = 3_000
DRAIN_TIMEOUT_MS: Final = 300_000


def catch_up(context: Context) -> Iterator[Row]:
    """Measure the rate from the restart of a router to its last append, with all records indexed and overdue."""
    count, spread_ms = context.sizes.overdue_records, context.sizes.overdue_spread_s * 1_000
    with router.running(context.bootstrap) as running:
        first_ms = workload.now_ms() + max(CATCH_UP_LEAD_MS, scatter.lead_ms(count))
        due_times_ms = scatter.due_times(context, count, first_ms, spread_ms)
        scatter.write(context, running, due_times_ms)
        stopped_ms = first_ms - STOPPED_BEFORE_MS
        scatter.wait_indexed(running, count, stopped_ms)
        standing = scatter.wait_sealed(context, running, count, stopped_ms)
        running.process.stop()
        workload.sleep_until(max(due_times_ms) + 1)
        yield _drained(context, "catch-up", "indexed, then an outage", running, due_times_ms, _sealed(standing))


def never_seen(context: Context) -> Iterator[Row]:
    """Measure the rate from the first start of a router to its last append, with all records overdue before it."""
    count, spread_ms = context.sizes.overdue_records, context.sizes.overdue_spread_s * 1_000
    with router.prepared(context.bootstrap) as made:
        due_times_ms = scatter.due_times(context, count, workload.now_ms() - spread_ms, spread_ms)
        scatter.write(context, made, due_times_ms)
        yield _drained(context, "overdue", "never seen before", made, due_times_ms, "")


def _drained(
    context: Context, benchmark: str, what: str, stopped: Router, due_times_ms: Sequence[int], detail: str
) -> Row:
    """Start a router on overdue records. Return the row with the rate of their release."""
    count = len(due_times_ms)
    started_ms = stopped.start()
    ready_ms = workload.now_ms()
    stopped.wait_standing("released", _all_left(count), workload.now_ms() + DRAIN_TIMEOUT_MS)
    stopped.process.stop()
    reader = TargetReader(context.bootstrap, stopped.delay_topic, stopped.target)
    appended_ms = reader.append_times(due_times_ms)
    first_ms, last_ms = min(appended_ms), max(appended_ms)
    if last_ms == first_ms:
        raise BenchmarkFailed(f"{count} records were released within one millisecond: too few to measure a rate")
    rate_per_s = count * 1_000 / (last_ms - min(ready_ms, first_ms))
    return Row(
        benchmark,
        f"{count // 1000} k scattered, all overdue, {what}",
        rate_per_s,
        "records/s",
        context.of_ceiling(rate_per_s),
        "ceiling",
        at_least(1.0),
        f"first release {first_ms - started_ms} ms after the process started, last {last_ms - started_ms} ms{detail}",
    )


def _all_left(count: int) -> Callable[[Standing], bool]:
    return lambda at: at.cursor >= count and at.pending == 0


def _sealed(standing: Standing) -> str:
    return f"; S was at {standing.sealed_to:,} and C at {standing.cursor:,} before the outage"
