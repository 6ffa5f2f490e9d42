"""Steady load with a fixed delay: the highest share of the ceiling at which lateness does not grow."""

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from tests.bench import child, router, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import Row, at_least

DELAY_MS: Final = 5_000
FIRST_SHARE: Final = 0.5
# Tried one after the other as long as the first share was sustained, or until a lower one is.
HIGHER_SHARES: Final = (0.65, 0.8)
LOWER_SHARES: Final = (0.35, 0.25, 0.15)

# Sustained: the producer kept its rate, lateness stayed bounded, and nothing was left behind in the end.
KEPT_SHARE: Final = 0.98
BOUND_MS: Final = 1_000


class Load(NamedTuple):
    """One run at one rate."""

    share: float
    wanted_per_s: float
    rate_per_s: float
    lateness: Lateness

    @property
    def drained_ms(self) -> int:
        """From the last due time to the last append."""
        return self.lateness.last_append_ms - self.lateness.last_due_ms

    @property
    def sustained(self) -> bool:
        """Whether the producer kept its rate and the router kept up with it."""
        kept = self.rate_per_s >= KEPT_SHARE * self.wanted_per_s
        return kept and self.lateness.percentile(99) <= BOUND_MS and self.drained_ms <= BOUND_MS

    def text(self) -> str:
        """Return the run in words."""
        kept = "sustained" if self.sustained else "not sustained"
        rates = f"{self.rate_per_s / 1000:.0f} of {self.wanted_per_s / 1000:.0f} k/s sent"
        return (
            f"{self.share:g} x ({rates}) {kept}: {self.lateness.text()}, "
            f"drained {self.drained_ms} ms after the last due time"
        )


def steady(context: Context) -> Iterator[Row]:
    """Measure the sustained rate, and lateness at each rate that was tried."""
    loads = [_load(context, FIRST_SHARE)]
    if loads[0].sustained:
        for share in HIGHER_SHARES:
            loads.append(_load(context, share))
            if not loads[-1].sustained:
                break
    else:
        for share in LOWER_SHARES:
            loads.append(_load(context, share))
            if loads[-1].sustained:
                break
    sustained = max((load.rate_per_s for load in loads if load.sustained), default=0.0)
    yield Row(
        "steady",
        f"fixed delay of {DELAY_MS // 1000} s, sustained for {context.sizes.steady_s} s",
        sustained,
        "records/s",
        context.of_ceiling(sustained),
        "ceiling",
        at_least(FIRST_SHARE),
        "; ".join(load.text() for load in loads),
    )


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
