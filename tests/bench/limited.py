"""Measures the effect of a flooded target with a rate limit on another target of the same delay partition.

All records go through one partition, so one worker. The *calm* target gets scattered records all the time. The other
target gets none, then a flood without a limit, then the same flood with a limit of a quarter of it. This order runs
twice, so that one disturbance does not decide. Before the second time the limit is removed, and the held records leave
at once. All records are written ahead; only the release goes on during the measurement.

The second run has as many records due at one instant, at the beginning of the window, in place of a steady flood.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from sidecar.policies.policy import Policy, target_scope
from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.instances import PolicyWriter
from tests.bench.released import TargetReader, lateness_in
from tests.bench.results import BenchmarkFailed, Row, at_most

CALM_PER_S: Final = 500
FLOOD_PER_S: Final = 2_000
LIMIT_PER_S: Final = 500
BURST_S: Final = 0.25
"""The largest burst to a target, in seconds of its rate (:mod:`sidecar.engine.release.rates`)."""

CYCLES: Final = 2
DRAIN_MS: Final = 3_000
"""The time from the removal of the limit to the next calm window."""

# The same limit as for the admin API. Windows of one kind also differ; the details show by how much.
UNCHANGED_MS: Final = 10

Window = tuple[int, int]


class Plan(NamedTuple):
    """The windows in epoch ms, one of each kind per cycle."""

    calm: list[Window]
    free: list[Window]
    limited: list[Window]
    until_ms: int


def limited(context: Context) -> Iterator[Row]:
    """Measure the other target's p99 without a flood, with one, and with a limited one."""
    yield from _rows(context, "a steady flood", at_once=False)
    yield from _rows(context, "a burst due at one instant", at_once=True)


def _rows(context: Context, flood: str, *, at_once: bool) -> Iterator[Row]:
    flooded, policies = workload.name("flooded"), workload.name("policies")
    workload.create(context.bootstrap, flooded, workload.APPEND_TIME)
    settings = {"policies_topic": policies}
    try:
        with router.running(context.bootstrap, topic={"allowed_targets": [flooded]}, router=settings) as running:
            plan, calm_ms, flood_ms = _written(context, running, flooded, at_once=at_once)
            _switch_limit(PolicyWriter(context.bootstrap, policies), flooded, plan)
            running.wait_pending(lambda pending: pending == 0, until_ms=plan.until_ms + 60_000)
            calm = TargetReader(context.bootstrap, running.delay_topic, running.target).append_times(calm_ms)
            reader = TargetReader(context.bootstrap, running.delay_topic, flooded)
            given = reader.append_times(flood_ms, first_offset=len(calm_ms))
    finally:
        workload.delete(context.bootstrap, [flooded, policies])
    rates_per_s = [_rate_per_s(given, window) for window in plan.limited]
    # A rate above the limit, its share of the burst and a rounding error means that the limit does not work.
    if max(rates_per_s) > LIMIT_PER_S * (1 + BURST_S / context.sizes.limited_window_s) * 1.05:
        raise BenchmarkFailed(f"a limit of {LIMIT_PER_S}/s let through {max(rates_per_s):.0f}/s")
    without, free, beside = (lateness_in(calm_ms, calm, windows) for windows in (plan.calm, plan.free, plan.limited))
    for what, lateness, windows in (
        ("p99 of another target, no flood", without, plan.calm),
        (f"p99 beside {flood} without a limit", free, plan.free),
        (f"p99 beside {flood} with a limit", beside, plan.limited),
    ):
        each = ", ".join(str(lateness_in(calm_ms, calm, [window]).percentile(99)) for window in windows)
        yield Row(
            "limited", what, lateness.percentile(99), "ms", detail=f"{lateness.text()}; p99 of each window: {each}"
        )
    passed = ", ".join(f"{rate:.0f}" for rate in rates_per_s)
    yield Row(
        "limited",
        f"the limit beside {flood}: what it adds to another target's p99",
        beside.percentile(99) - without.percentile(99),
        "ms",
        goal=at_most(UNCHANGED_MS),
        detail=f"limit {LIMIT_PER_S}/s, let through {passed} records/s of {FLOOD_PER_S}/s",
    )


def _written(
    context: Context, running: router.Router, flooded: str, *, at_once: bool
) -> tuple[Plan, Sequence[int], Sequence[int]]:
    window_ms = context.sizes.limited_window_s * 1_000
    cycle_ms = 3 * window_ms + DRAIN_MS
    calm_count, flood_count = CALM_PER_S * CYCLES * cycle_ms // 1_000, FLOOD_PER_S * window_ms // 1_000
    first_ms = workload.now_ms() + scatter.lead_ms(calm_count + 2 * CYCLES * flood_count)
    begins_ms = [first_ms + cycle * cycle_ms for cycle in range(CYCLES)]
    calm, free, limit = (
        [(begin_ms + number * window_ms, begin_ms + (number + 1) * window_ms - 1) for begin_ms in begins_ms]
        for number in range(3)
    )
    calm_ms = scatter.due_times(context, calm_count, first_ms, CYCLES * cycle_ms)
    flood_ms = array("q")
    for begin_ms, _ in [*free, *limit]:
        # A moment after the policy is written, so that the limit applies from the first record of the flood on.
        flood_ms.extend(scatter.due_times(context, flood_count, begin_ms + 100, 1 if at_once else window_ms - 100))
    scatter.write(context, running, calm_ms)
    workload.fill(
        context.bootstrap,
        running.delay_topic,
        len(flood_ms),
        lambda number: workload.headers(flood_ms[number], flooded),
    )
    scatter.wait_indexed(running, len(calm_ms) + len(flood_ms), first_ms - scatter.QUIET_MS)
    return Plan(calm, free, limit, first_ms + CYCLES * cycle_ms), calm_ms, flood_ms


def _switch_limit(writer: PolicyWriter, flooded: str, plan: Plan) -> None:
    for begin_ms, end_ms in plan.limited:
        workload.sleep_until(begin_ms)
        writer.write(target_scope(flooded), Policy(records_per_second=LIMIT_PER_S))
        workload.sleep_until(end_ms + 1)
        writer.write(target_scope(flooded), None)
    workload.sleep_until(plan.until_ms)


def _rate_per_s(appended_ms: Sequence[int], window: Window) -> float:
    begin_ms, end_ms = window
    return sum(begin_ms <= each <= end_ms for each in appended_ms) * 1_000 / (end_ms - begin_ms)
