"""Measures from outside how long releases stop while a bucket is sealed or merged.

Probes are due all the time, one every 20 ms; they are written before anything else. The sealed records are due in an
hour, so only the probes leave. The largest lateness of a probe due between the beginning and the end of a seal or merge
is the length of the stall. The largest lateness without such work comes from client, broker and machine; the goal
limits the excess over it.
"""

from array import array
from collections.abc import Iterator
from typing import Final

from tests.bench import router, scatter, workload
from tests.bench.context import Context
from tests.bench.released import TargetReader, lateness_between
from tests.bench.results import BenchmarkFailed, Row, at_most

PROBE_EVERY_MS: Final = 20
PROBES_FOR_MS: Final = 240_000
FIRST_PROBE_MS: Final = 4_000

# Written last, to set off the seal; so few that indexing them is no stall.
LAST_RECORDS: Final = 500
BUCKETS: Final = 3

# Seldom: an answer takes the router a few milliseconds.
LOOK_EVERY_MS: Final = 500
QUIET_S: Final = 5
LIMIT_MS: Final = 50

Window = tuple[int, int]


def stall(context: Context) -> Iterator[Row]:
    """Measure the latest probe at rest, while each of three buckets is sealed, and while they merge."""
    size = context.sizes.stall_records
    # One bucket more than allowed: the third seal sets off a merge of all three.
    topic = {
        "placement": "inline",
        "seal_records": size,
        "seal_age": "1h",
        # Records that are due soon count as well, since the probes are.
        "seal_beyond": "0ms",
        "max_buckets": BUCKETS - 1,
    }
    with router.running(context.bootstrap, topic=topic) as running:
        first_ms = workload.now_ms() + FIRST_PROBE_MS
        probes_ms = array("q", range(first_ms, first_ms + PROBES_FOR_MS, PROBE_EVERY_MS))
        scatter.write(context, running, probes_ms)
        scatter.wait_indexed(running, len(probes_ms), first_ms)
        quiet = (first_ms, first_ms + QUIET_S * 1_000)
        workload.sleep_until(quiet[1])
        seals = [_seal(context, running, size, number) for number in range(1, BUCKETS + 1)]
        merge = (seals[-1][1] - LOOK_EVERY_MS, _count_reaches(running, "merge_seconds", 1))
        if merge[1] > probes_ms[-1]:
            raise BenchmarkFailed(f"sealing and merging took longer than the {PROBES_FOR_MS} ms of probes")
        workload.sleep_until(merge[1] + 1_000)
        running.process.stop()
        reader = TargetReader(context.bootstrap, running.delay_topic, running.target)
        appended_ms = reader.append_times(probes_ms, until_ms=merge[1])

    def measured(window: Window) -> tuple[int, str]:
        lateness = lateness_between(probes_ms, appended_ms, *window)
        return lateness.sorted_ms[-1], f"{(window[1] - window[0]) / 1_000:.1f} s, {lateness.text()}"

    calm_ms, calm = measured(quiet)
    yield Row("stall", "latest probe, nothing going on", calm_ms, "ms", detail=calm)
    sealing = [measured(window) for window in seals]
    yield from _on_top(f"{size // 1000} k are sealed", max(sealing)[0], calm_ms, "; ".join(t for _, t in sealing))
    merging_ms, merging = measured(merge)
    yield from _on_top(f"{BUCKETS * size // 1000} k are merged", merging_ms, calm_ms, merging)


def _on_top(what: str, latest_ms: int, calm_ms: int, detail: str) -> Iterator[Row]:
    yield Row("stall", f"latest probe while {what}", latest_ms, "ms", detail=detail)
    yield Row("stall", f"what that adds while {what}", latest_ms - calm_ms, "ms", goal=at_most(LIMIT_MS))


def _seal(context: Context, running: router.Router, size: int, number: int) -> Window:
    """Fill the mutable bucket, wait for calm, set off the seal. Return its beginning and end."""
    far_ms = workload.now_ms() + scatter.HOUR_MS
    standing = running.standing()
    # The probes still pending are part of the first bucket, and of the first only.
    fill = size - LAST_RECORDS - (standing.pending if number == 1 else 0)
    scatter.write(context, running, scatter.due_times(context, fill, far_ms, scatter.HOUR_MS))
    written = scatter.wait_indexed(running, standing.cursor + fill, workload.now_ms() + 60_000)
    workload.sleep_until(workload.now_ms() + 1_000)
    began_ms = workload.now_ms()
    # Some probes have left meanwhile; more records take their place.
    last = LAST_RECORDS + max(0, standing.pending + fill - written.pending) + LAST_RECORDS
    scatter.write(context, running, scatter.due_times(context, last, far_ms, scatter.HOUR_MS))
    return began_ms, _count_reaches(running, "seal_seconds", number)


def _count_reaches(running: router.Router, metric: str, count: int) -> int:
    """Wait until a seal or merge has ended. Return the approximate time of the end."""
    until_ms = workload.now_ms() + PROBES_FOR_MS
    while running.metric(f"delay_router_{metric}_count") < count:
        if workload.now_ms() > until_ms:
            raise BenchmarkFailed(f"{metric} was not counted {count} times in {PROBES_FOR_MS} ms")
        workload.sleep_until(workload.now_ms() + LOOK_EVERY_MS)
    return workload.now_ms()
