"""Measures scattered due times in normal operation: the lateness, and the highest sustained rate."""

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import BenchmarkFailed, Row, at_most
from tests.bench.shares import BOUND_MS, kept_up, rows, tried

HIGHER_SHARES: Final = (0.65,)
DRAIN_TIMEOUT_MS: Final = 120_000


class Load(NamedTuple):
    """The result of one run at one rate."""

    share: float
    rate_per_s: float
    lateness: Lateness

    @property
    def sustained(self) -> bool:
        """Says whether the router kept up."""
        return kept_up(self.lateness)

    def text(self) -> str:
        """Return the run in words."""
        kept = "sustained" if self.sustained else "not sustained"
        return f"{self.share:g} x ({self.rate_per_s / 1000:.0f} k/s) {kept}: {self.lateness.text()}"


def dense(context: Context) -> Iterator[Row]:
    """Measure lateness while all pending records are due within seconds."""
    rate_per_s, seconds = context.sizes.dense_per_s, context.sizes.dense_s
    count = rate_per_s * seconds
    lateness = _all(context, count, seconds * 1_000)
    what = f"{count // 1000} k pending, {rate_per_s // 1000} k/s due"
    yield Row("dense", f"{what}: p50", lateness.percentile(50), "ms", goal=at_most(10), detail=lateness.text())
    yield Row("dense", f"{what}: p99", lateness.percentile(99), "ms", goal=at_most(25))


def sustained(context: Context) -> Iterator[Row]:
    """Measure the highest share of the ceiling at which lateness does not grow."""
    loads = tried(partial(_load, context), HIGHER_SHARES)
    what = f"scattered due times, sustained for {context.sizes.sustained_s} s"
    yield from rows(context, "scattered", what, loads)


def sparse(context: Context) -> Iterator[Row]:
    """Measure lateness while few of many pending records are due."""
    count, rate_per_s, seconds = context.sizes.sparse_records, context.sizes.sparse_per_s, context.sizes.sparse_s
    with router.running(context.bootstrap) as running:
        due_times_ms, first_ms = scatter.write_ahead(context, running, count, count * 1_000 // rate_per_s)
        sealed_to = running.standing().sealed_to
        until_ms = first_ms + seconds * 1_000
        lateness = stopped_after(context, running, due_times_ms, until_ms)
    what = f"{count // 1000} k pending, {rate_per_s / 1000:g} k/s due"
    detail = f"{lateness.text()}; S at {sealed_to:,} when the first was due"
    yield Row("sparse", f"{what}: p50", lateness.percentile(50), "ms", goal=at_most(5), detail=detail)
    yield Row("sparse", f"{what}: p99", lateness.percentile(99), "ms", goal=at_most(15))


def stopped_after(context: Context, running: router.Router, due_times_ms: Sequence[int], until_ms: int) -> Lateness:
    """Run a router until an instant and a moment longer, stop it, and return the lateness of records due by then."""
    workload.sleep_until(until_ms + BOUND_MS)
    running.process.stop()
    reader = TargetReader(context.bootstrap, running.delay_topic, running.target)
    return reader.lateness(due_times_ms, until_ms=until_ms)


def _load(context: Context, share: float) -> Load:
    rate_per_s = share * context.ceiling_per_s
    if not rate_per_s:
        raise BenchmarkFailed("the ceiling is not known: it could not be measured in this run")
    seconds = context.sizes.sustained_s
    return Load(share, rate_per_s, _all(context, int(rate_per_s * seconds), seconds * 1_000))


def _all(context: Context, count: int, spread_ms: int) -> Lateness:
    with router.running(context.bootstrap) as running:
        due_times_ms, _ = scatter.write_ahead(context, running, count, spread_ms)
        last_ms = max(due_times_ms)
        # No requests during the release: the two cores belong to the router and the broker.
        workload.sleep_until(last_ms + BOUND_MS)
        while running.pending():
            if workload.now_ms() > last_ms + DRAIN_TIMEOUT_MS:
                raise BenchmarkFailed(f"{running.pending()} records are still pending, {DRAIN_TIMEOUT_MS} ms late")
            time.sleep(1)
        return TargetReader(context.bootstrap, running.delay_topic, running.target).lateness(due_times_ms)
