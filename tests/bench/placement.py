"""Compares the placement that ``auto`` chooses with the cost of the other one.

Due times are woven: ``gap`` neighbours in the delay topic are due in different parts of the time, so that consecutive
due records lie ``gap`` offsets apart: 1 is a fixed delay; a larger gap means more scattered.
"""

from collections.abc import Iterator
from typing import Final

import psutil

from snapshots.segments.manifest import MANIFEST_PREFIX, decode_manifest
from tests.bench import router, workload
from tests.bench.compacted import contents
from tests.bench.context import Context
from tests.bench.machine import cpu_s
from tests.bench.results import Row, at_most
from tests.bench.router import Router

GAPS: Final = (1, 2, 4, 8, 32)
SPREAD_MS: Final = 1_000
LEAD_MS: Final = 10_000
TIMEOUT_MS: Final = 120_000
BUCKETS: Final = 4

NOT_WORTH_IT: Final = 1.25
"""Measurements differ by as much from run to run; near the switch either placement is right."""


def placement(context: Context) -> Iterator[Row]:
    """Measure for each gap the costs of both placements from indexing to release, and the choice of ``auto``."""
    for gap in GAPS:
        costs_us = {each: _cost_us(context, gap, each) for each in ("inline", "pointer")}
        chosen = _chosen(context, gap)
        other = "pointer" if chosen == "inline" else "inline"
        yield Row(
            "placement",
            f"due neighbours {gap} offsets apart: auto takes {chosen}",
            costs_us[chosen] / costs_us[other],
            f"x {other}",
            goal=at_most(NOT_WORTH_IT),
            detail=", ".join(f"{each} {cost_us:.1f} us a record" for each, cost_us in costs_us.items()),
        )


def woven(count: int, gap: int, first_ms: int) -> list[int]:
    """Return due times within a second: the n-th belongs to the record at offset n."""
    lane = SPREAD_MS / gap
    return [first_ms + int(number % gap * lane + number * lane / count) for number in range(count)]


def _cost_us(context: Context, gap: int, rule: str) -> float:
    """Return the cost per record in us: CPU of indexing and sealing, plus time of the release after an outage."""
    count = context.sizes.placement_records
    with router.prepared(context.bootstrap, topic=_topic(count, rule)) as made:
        first_ms = workload.now_ms() + LEAD_MS
        _seal(context.bootstrap, made, woven(count, gap, first_ms))
        busy_s = cpu_s(psutil.Process(made.process.pid))
        made.process.stop()
        workload.sleep_until(first_ms + SPREAD_MS + 1)
        made.start()
        ready_ms = workload.now_ms()
        made.wait_standing("released", lambda at: at.pending == 0, ready_ms + TIMEOUT_MS)
        released_ms = workload.now_ms() - ready_ms
    return (busy_s * 1e6 + released_ms * 1e3) / count


def _chosen(context: Context, gap: int) -> str:
    count = context.sizes.placement_records
    with router.prepared(context.bootstrap, topic=_topic(count, "auto")) as made:
        _seal(context.bootstrap, made, woven(count, gap, workload.now_ms() + TIMEOUT_MS))
        made.process.stop()
        state = contents(context.bootstrap, f"{made.delay_topic}.delay-state")
    manifests = [decode_manifest(key, value) for key, value in state.items() if key.startswith(MANIFEST_PREFIX)]
    names = [segment.placement.name.lower() for manifest in manifests for segment in manifest.segments]
    return max(set(names), key=names.count)


def _topic(count: int, rule: str) -> dict[str, object]:
    return {"placement": rule, "seal_records": count // BUCKETS, "seal_age": "1s", "seal_beyond": "0ms"}


def _seal(bootstrap: str, made: Router, due_times_ms: list[int]) -> None:
    workload.fill(
        bootstrap,
        made.delay_topic,
        len(due_times_ms),
        lambda number: workload.headers(due_times_ms[number], made.target),
    )
    made.start()
    until_ms = workload.now_ms() + TIMEOUT_MS
    made.wait_standing("sealed", lambda at: at.sealed_to >= len(due_times_ms), until_ms)
