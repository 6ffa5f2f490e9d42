"""Measures many records pending for long: memory, lateness, and the restart time of a killed router."""

from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader, lateness_between, restart
from tests.bench.results import MIB, Row, at_most
from tests.bench.router import Router

SETTLE_MS: Final = 5_000

# The last bucket is not full: it is sealed when it is a minute old (the default of ``seal_age``).
SEALED_BY_AGE_MS: Final = 65_000
AFTER_RESTART_MS: Final = 10_000

MEMORY_BYTES: Final = 10
RESTART_MS: Final = 3_000
LATE_MS: Final = 15


def large(context: Context) -> Iterator[Row]:
    """Measure memory before and after, and lateness while some records are due; then kill and restart the router."""
    sizes = context.sizes
    count, spread_ms = sizes.large_records, sizes.large_records * 1_000 // sizes.large_per_s
    with router.running(context.bootstrap, router={"instance_id": "bench"}) as running:
        empty = running.settled_bytes(SETTLE_MS)
        due_times_ms, first_ms = _filled(context, running, spread_ms)
        standing = running.standing()
        full = running.settled_bytes(SETTLE_MS)
        measured_to_ms = first_ms + sizes.large_s * 1_000
        context.say(f"S at {standing.sealed_to:,}; {(full - empty) / MIB:.0f} MiB more than empty; now waiting")
        workload.sleep_until(first_ms - SETTLE_MS)
        at_rest = running.resident_bytes()
        workload.sleep_until(measured_to_ms + 1_000)
        context.say("killing the router")
        running.process.kill()
        started_ms = running.start()
        ready_ms = workload.now_ms()
        back = running.settled_bytes(SETTLE_MS)
        workload.sleep_until(started_ms + AFTER_RESTART_MS)
        until_ms = workload.now_ms()
        workload.sleep_until(until_ms + SETTLE_MS)
        running.process.stop()
        reader = TargetReader(context.bootstrap, running.delay_topic, running.target)
        appended_ms = reader.append_times(due_times_ms, until_ms=until_ms)
    what = f"{count / 1e6:g} M pending"
    for name, resident in (("once sealed", full), ("at rest", at_rest), ("after a restart", back)):
        detail = f"{resident / MIB:.0f} MiB, empty {empty / MIB:.0f} MiB; S at {standing.sealed_to:,}"
        each = (resident - empty) / count
        yield Row("large", f"{what}: memory for each, {name}", each, "B", goal=at_most(MEMORY_BYTES), detail=detail)
    lateness = lateness_between(due_times_ms, appended_ms, first_ms, measured_to_ms)
    yield _late(f"{what}, {sizes.large_per_s / 1000:g} k/s due: p99", lateness)
    yield restart("large", what, appended_ms, started_ms, ready_ms, RESTART_MS)


def _filled(context: Context, running: Router, spread_ms: int) -> tuple[Sequence[int], int]:
    count = context.sizes.large_records
    first_ms = workload.now_ms() + scatter.lead_ms(count) + SEALED_BY_AGE_MS + 2 * SETTLE_MS
    due_times_ms = scatter.due_times(context, count, first_ms, spread_ms)
    began_ms = workload.now_ms()
    scatter.write(context, running, due_times_ms)
    context.say(f"{count:,} records written in {(workload.now_ms() - began_ms) / 1_000:.0f} s")
    ready_by_ms = first_ms - 2 * SETTLE_MS
    # The measurement must exclude the memory of records that are still being sealed, which is freed in the end.
    standing = scatter.wait_sealed(context, running, count, ready_by_ms)
    scatter.wait_indexed(running, count, ready_by_ms)
    seconds = (workload.now_ms() - began_ms) / 1_000
    context.say(f"sealed to {standing.sealed_to:,} {seconds:.0f} s after the first was written")
    return due_times_ms, first_ms


def _late(what: str, lateness: Lateness) -> Row:
    return Row("large", what, lateness.percentile(99), "ms", goal=at_most(LATE_MS), detail=lateness.text())
