"""Measures a steady load with a fixed delay: the highest share of the ceiling at which lateness does not grow."""

from array import array
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from tests.bench import child, router, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import Row
from tests.bench.shares import BOUND_MS, drained_ms, kept_up, rows, tried

DELAY_MS: Final = 5_000
HIGHER_SHARES: Final = (0.65, 0.8)

# Sustained: the producer kept its rate, and the router kept up with it.
KEPT_SHARE: Final = 0.98


class Load(NamedTuple):
    """The result of one run at one rate."""

    share: float
    wanted_per_s: float
    rate_per_s: float
    lateness: Lateness

    @property
    def sustained(self) -> bool:
        """Says whether the producer kept its rate and the router kept up with it."""
        return self.rate_per_s >= KEPT_SHARE * self.wanted_per_s and kept_up(self.lateness)

    def text(self) -> str:
        """Return the run in words."""
        kept = "sustained" if self.sustained else "not sustained"
        rates = f"{self.rate_per_s / 1000:.0f} of {self.wanted_per_s / 1000:.0f} k/s sent"
        return (
            f"{self.share:g} x ({rates}) {kept}: {self.lateness.text()}, "
            f"drained {drained_ms(self.lateness)} ms after the last due time"
        )


def steady(context: Context) -> Iterator[Row]:
    """Measure the sustained rate, and lateness at each rate that was tried."""
    loads = tried(partial(_load, context), HIGHER_SHARES)
    what = f"fixed delay of {DELAY_MS // 1000} s, sustained for {context.sizes.steady_s} s"
    yield from rows(context, "steady", what, loads)


def _load(context: Context, share: float) -> Load:
    wanted_per_s = share * context.ceiling_per_s
    seconds = context.sizes.steady_s
    with router.running(context.bootstrap) as running:
        sent = child.run(
            "tests.bench.pace",
            seconds * 3 + 60.0,
            bootstrap=context.bootstrap,
            topic=running.delay_topic,
            target=running.target,
            rate_per_s=wanted_per_s,
            seconds=seconds,
            delay_ms=DELAY_MS,
        )
        due_times_ms = array("q")
        for due_ms, count in sent["ticks"]:
            due_times_ms.extend([due_ms] * count)
        workload.sleep_until(max(due_times_ms) + BOUND_MS)
        running.wait_pending(lambda pending: pending == 0, until_ms=workload.now_ms() + 60_000)
        lateness = TargetReader(context.bootstrap, running.delay_topic, running.target).lateness(due_times_ms)
    return Load(share, wanted_per_s, len(due_times_ms) / sent["seconds"], lateness)
