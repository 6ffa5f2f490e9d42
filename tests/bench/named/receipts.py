"""Measures the time from a cancel to its receipt, beside a steady release and in an idle partition.

Beside a release, scattered records are due all the time; in every second window schedules that are due in an hour are
cancelled one by one. Windows with and without cancels take turns in one run, which shows the lateness that they add.

In the idle partition all schedules lie in buckets, and each cancel makes the router read pages of their ids.
"""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.named import schedules
from tests.bench.named.schedules import receipts_of
from tests.bench.released import Lateness, TargetReader, lateness_in
from tests.bench.results import Row, at_most

RELEASED_PER_S: Final = 10_000
CANCELS_PER_S: Final = 50
WINDOWS: Final = 6
TIMEOUT_S: Final = 60.0

P50_MS: Final = 20
P99_MS: Final = 100
ADDED_MS: Final = 10

SEALED: Final = 200_000
IDLE_CANCELS: Final = 200
IDLE_EVERY_MS: Final = 100
SEALED_WITHIN_MS: Final = 120_000


def receipts(context: Context) -> Iterator[Row]:
    """Measure the time from the write of a cancel to the read of its receipt, in a busy and in an idle partition."""
    yield from _beside_releases(context)
    yield from _in_idle_partition(context)


def _in_idle_partition(context: Context) -> Iterator[Row]:
    with router.running(context.bootstrap, topic={"seal_age": "10s"}) as under:
        far_ms = workload.now_ms() + scatter.HOUR_MS
        workload.fill(
            context.bootstrap,
            under.delay_topic,
            SEALED,
            lambda number: schedules.named(far_ms + number, under.target, number),
        )
        scatter.wait_sealed(context, under, SEALED, workload.now_ms() + SEALED_WITHIN_MS)
        with receipts_of(context.bootstrap, under.delay_topic) as heard:
            taken_ms = _cancelled_one_by_one(context, under.delay_topic, heard)
        under.process.stop()
    yield from _rows_of(f"an idle partition, {SEALED // 1_000} k in buckets", taken_ms)


def _cancelled_one_by_one(context: Context, delay_topic: str, heard: schedules.Receipts) -> list[float]:
    """Cancel schedules, each after the previous receipt; the first one creates clients, and does not count."""
    producer = workload.ordered_producer(context.bootstrap, 0)
    taken_ms: list[float] = []
    for turn in range(1 + IDLE_CANCELS):
        number, began_ms = turn * (SEALED // (1 + IDLE_CANCELS)), time.time() * 1_000
        workload.produce(producer, delay_topic, schedules.cancel(number))
        until_s = time.monotonic() + TIMEOUT_S
        while schedules.id_of(number) not in heard.heard_ms and time.monotonic() < until_s:
            heard.poll(0.001)
        heard.wait(1 + turn, 0)
        taken_ms.append(heard.heard_ms[schedules.id_of(number)] - began_ms)
        time.sleep(IDLE_EVERY_MS / 1_000)
    return taken_ms[1:]


def _rows_of(what: str, taken_ms: Sequence[float]) -> Iterator[Row]:
    told = Lateness(sorted(map(math.ceil, taken_ms)), 0, 0)
    detail = f"{len(taken_ms)} cancels; ms: min {min(taken_ms):.1f}, max {max(taken_ms):.1f}"
    for percent, goal_ms in ((50, P50_MS), (99, P99_MS)):
        taken = told.percentile(percent)
        yield Row("receipts", f"{what}: receipt, p{percent}", taken, "ms", goal=at_most(goal_ms), detail=detail)


def _beside_releases(context: Context) -> Iterator[Row]:
    window_ms = context.sizes.named_window_s * 1_000
    count = RELEASED_PER_S * WINDOWS * context.sizes.named_window_s
    of_window = CANCELS_PER_S * context.sizes.named_window_s
    busy_windows = range(1, WINDOWS, 2)
    with router.running(context.bootstrap) as under:
        far_ms = workload.now_ms() + scatter.HOUR_MS
        due_times_ms, first_ms = scatter.write_ahead(context, under, count, WINDOWS * window_ms)
        workload.fill(
            context.bootstrap,
            under.delay_topic,
            of_window * len(busy_windows) + 1,
            lambda number: schedules.named(far_ms, under.target, number),
        )
        windows = [(first_ms + n * window_ms, first_ms + (n + 1) * window_ms - 1) for n in range(WINDOWS)]
        asked_ms: dict[int, float] = {}
        producer = workload.ordered_producer(context.bootstrap, 0)
        with receipts_of(context.bootstrap, under.delay_topic) as heard:
            # The first cancel makes the router read the ids of its buckets.
            workload.produce(producer, under.delay_topic, schedules.cancel(0))
            heard.wait(1, TIMEOUT_S)
            for turn, window in enumerate(busy_windows):
                for number in range(of_window):
                    due_ms = windows[window][0] + number * window_ms // of_window
                    while workload.now_ms() < due_ms:
                        heard.poll(0.001)
                    cancelled = 1 + turn * of_window + number
                    asked_ms[cancelled] = time.time() * 1_000
                    workload.produce(producer, under.delay_topic, schedules.cancel(cancelled))
            heard.wait(1 + len(asked_ms), TIMEOUT_S)
        workload.sleep_until(windows[-1][1] + 1_000)
        # A cancelled record in a bucket counts as pending until it is due.
        under.wait_pending(lambda pending: pending <= len(heard.heard_ms), until_ms=workload.now_ms() + 60_000)
        under.process.stop()
        reader = TargetReader(context.bootstrap, under.delay_topic, under.target)
        appended_ms = reader.append_times(due_times_ms)
    taken_ms = [heard.heard_ms[schedules.id_of(number)] - began_ms for number, began_ms in asked_ms.items()]
    beside = f"{CANCELS_PER_S} cancels/s beside {RELEASED_PER_S // 1_000} k/s released"
    yield from _rows_of(beside, taken_ms)
    calm, busy = (lateness_in(due_times_ms, appended_ms, some) for some in (windows[::2], windows[1::2]))
    yield Row("receipts", "p99 of lateness without cancels", calm.percentile(99), "ms", detail=calm.text())
    added_ms = busy.percentile(99) - calm.percentile(99)
    name = f"{beside}: what they add to p99 of lateness"
    yield Row("receipts", name, added_ms, "ms", goal=at_most(ADDED_MS), detail=busy.text())
