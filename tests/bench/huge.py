"""Measures 100 M pending records in one process: memory, lateness of other records, and the restart time after a kill.

The router adopts the records as buckets that are staged for it, since it would index them for half an hour by itself.
They are due in hours. Probes are due every 20 ms, so the broker's append time shows the lateness, and the restart.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from tests.bench import adoption, router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import TargetReader, lateness_between, restart
from tests.bench.results import MIB, Row, at_most

LEAD_MS: Final = 3 * scatter.HOUR_MS
"""Longer than the benchmark: none of the records is due before its end."""

SETTLE_MS: Final = 10_000
PROBE_EVERY_MS: Final = 20
FIRST_PROBE_MS: Final = 5_000
BEFORE_KILL_MS: Final = 30_000
AFTER_KILL_MS: Final = 30_000

MEMORY_MIB: Final = 2_048
RESTART_MS: Final = 5_000


def huge(context: Context) -> Iterator[Row]:
    """Measure the memory with nothing pending and with all, and the lateness of probes before and after a kill."""
    # 100 M records at this rate are due in ten hours.
    count, due_per_s = context.sizes.huge_records, context.sizes.large_per_s
    with router.prepared(context.bootstrap, router={"instance_id": "bench"}) as made:
        made.start()
        empty_mib = made.settled_bytes(SETTLE_MS) / MIB
        made.process.stop()
        staged = adoption.stage(context, made, count, LEAD_MS, count * 1_000 // due_per_s)
        made.start()
        steps_s, detail = adoption.adopt(context, made, staged)
        context.say(f"adopted in {steps_s[-1]:.1f} s")
        full_mib = made.settled_bytes(SETTLE_MS) / MIB
        first_ms = workload.now_ms() + FIRST_PROBE_MS
        kill_ms = first_ms + BEFORE_KILL_MS
        probes_ms = array("q", range(first_ms, kill_ms + AFTER_KILL_MS, PROBE_EVERY_MS))
        scatter.write(context, made, probes_ms)
        workload.sleep_until(kill_ms)
        made.process.kill()
        started_ms = made.start()
        ready_ms = workload.now_ms()
        workload.sleep_until(probes_ms[-1] + 1_000)
        back_mib = made.settled_bytes(SETTLE_MS) / MIB
        made.process.stop()
        reader = TargetReader(context.bootstrap, made.delay_topic, made.target)
        appended_ms = reader.append_times(probes_ms, count)
    what = f"{count / 1e6:g} M pending"
    yield Row("huge", f"{what}: adopted", steps_s[-1], "s", detail=detail)
    for name, mib in (("once adopted", full_mib), ("after a restart", back_mib)):
        told = f"empty {empty_mib:.0f} MiB, so {(mib - empty_mib) * MIB / count:.1f} B for each record"
        yield Row("huge", f"{what}: memory of the process, {name}", mib, "MiB", goal=at_most(MEMORY_MIB), detail=told)
    lateness = lateness_between(probes_ms, appended_ms, first_ms, kill_ms - SETTLE_MS)
    yield Row("huge", f"{what}: p99 of 50 other records/s", lateness.percentile(99), "ms", detail=lateness.text())
    yield restart("huge", what, appended_ms, started_ms, ready_ms, RESTART_MS)
