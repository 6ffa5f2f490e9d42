"""Measures the cost of named schedules for records without an id: the rates of indexing and sealing.

Two routers index the same records. One of them also holds named schedules, some of them cancelled, and therefore has to
keep ids and a mask. They take turns.
"""

from collections.abc import Iterator
from statistics import median
from typing import Final

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.named import schedules
from tests.bench.named.schedules import receipts_of
from tests.bench.results import Row, at_least

TURNS: Final = 3
SEAL_RECORDS: Final = 100_000
TIMEOUT_S: Final = 60.0
TIMEOUT_MS: Final = 300_000
KEPT: Final = 0.95


def without_id(context: Context) -> Iterator[Row]:
    """Measure how fast a router indexes and seals records without an id, with and without named schedules."""
    rates: dict[int, list[float]] = {names: [] for names in (0, context.sizes.named_ids)}
    for _ in range(TURNS):
        for names, measured in rates.items():
            measured.append(_rate_per_s(context, names))
    bare, beside = (median(measured) for measured in rates.values())
    told = "; ".join(", ".join(f"{rate / 1_000:.0f}" for rate in measured) for measured in rates.values())
    name = f"index and seal without ids, beside {context.sizes.named_ids // 1_000} k named schedules"
    yield Row(
        "without-id",
        name,
        beside,
        "/s",
        ratio=beside / bare,
        ratio_of="the same where nothing has an id",
        goal=at_least(KEPT),
        detail=f"k/s in turn, without and beside: {told}",
    )


def _rate_per_s(context: Context, names: int) -> float:
    count = context.sizes.named_unnamed
    with router.prepared(context.bootstrap, topic={"seal_age": "1s", "seal_records": SEAL_RECORDS}) as under:
        far_ms = workload.now_ms() + scatter.HOUR_MS
        written = _name(context, under, names, far_ms) if names else 0
        scatter.write(context, under, scatter.due_times(context, count, far_ms, scatter.HOUR_MS))
        under.start()
        until_ms = workload.now_ms() + TIMEOUT_MS
        # The measurement begins now, because it must exclude the read of ids in buckets, which each owner does once.
        begun = under.wait_standing("begun", lambda at: at.pending >= names + count // 10, until_ms)
        began_ms = workload.now_ms()
        most = written + count - SEAL_RECORDS
        ended = under.wait_standing("sealed", lambda at: at.sealed_to >= most, until_ms)
        elapsed_ms = workload.now_ms() - began_ms
    return (ended.sealed_to - written - (begun.pending - names)) * 1_000 / elapsed_ms


def _name(context: Context, under: router.Router, names: int, far_ms: int) -> int:
    """Write schedules with ids until they are sealed, cancel some, write one more cancel. Return the record count."""
    cancelled = names // 10
    under.start()
    workload.fill(
        context.bootstrap,
        under.delay_topic,
        names,
        lambda number: schedules.named(far_ms + number, under.target, number),
    )
    with receipts_of(context.bootstrap, under.delay_topic) as receipts:
        workload.fill(context.bootstrap, under.delay_topic, cancelled, schedules.cancel)
        receipts.wait(cancelled, TIMEOUT_S)
    scatter.wait_sealed(context, under, names, workload.now_ms() + TIMEOUT_MS)
    under.process.stop()
    workload.fill(context.bootstrap, under.delay_topic, 1, lambda _: schedules.cancel(names - 1))
    return names + cancelled + 1
