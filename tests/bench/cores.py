"""Measures how many cores one process uses: with 1, 2 and 4 partitions, and shared with a second process.

All records are due at one instant and indexed before it, and each partition has its own target. So the benchmark
measures the release by one worker per partition. A worker that works without the interpreter lock lets the others run
at the same time. Beside the rate stands the CPU usage of the routers, since the broker needs the cores, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psutil

from tests.bench import instances, workload
from tests.bench.context import Context
from tests.bench.instances import Group
from tests.bench.machine import cpu_s
from tests.bench.released import TargetReader
from tests.bench.results import BenchmarkFailed, Row

SHAPES: Final = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4))
"""Pairs of processes, and partitions of all of them."""

RUNS: Final = 2
"""The first run makes connections and learns the leaders of topics."""

LEAD_MS: Final = 15_000
QUIET_MS: Final = 500
"""The values of :mod:`tests.bench.burst`, for twice as many records."""

RELEASED_WITHIN_MS: Final = 5_000


class Release(NamedTuple):
    """The result of one run: records per second from the instant to the last append, and the routers' cores."""

    rate_per_s: float
    cores: float


def cores(context: Context) -> Iterator[Row]:
    """Measure each shape after one release of the same size; ratios are to one partition in one process."""
    count = 2 * context.sizes.burst_records
    alone_per_s = 0.0
    for processes, partitions in SHAPES:
        first, measured = _runs(context, processes, partitions, count)
        alone_per_s = alone_per_s or measured.rate_per_s
        yield Row(
            "cores",
            f"{count // 1_000} k due at one instant; processes {processes}, partitions {partitions}",
            measured.rate_per_s,
            "records/s",
            measured.rate_per_s / alone_per_s,
            "one partition",
            detail=f"routers on {measured.cores:.2f} cores; the first time {first.rate_per_s / 1_000:.0f} k/s",
        )


def _runs(context: Context, processes: int, partitions: int, count: int) -> list[Release]:
    with _targets(context, partitions) as targets:
        topic = {"allowed_targets": targets}
        with instances.running(context.bootstrap, processes, partitions, topic=topic) as group:
            readers = [
                TargetReader(context.bootstrap, group.delay_topic, target, number)
                for number, target in enumerate(targets)
            ]
            each = count // partitions
            return [_released(context, group, readers, targets, each, run * each) for run in range(RUNS)]


@contextmanager
def _targets(context: Context, partitions: int) -> Iterator[list[str]]:
    """Create a target topic for each partition, and yield their names."""
    names = [workload.name("target") for _ in range(partitions)]
    for name in names:
        workload.create(context.bootstrap, name, workload.APPEND_TIME)
    yield names
    workload.delete(context.bootstrap, names)


def _released(
    context: Context, group: Group, readers: list[TargetReader], targets: list[str], each: int, first_offset: int
) -> Release:
    due_ms = workload.now_ms() + LEAD_MS
    for partition, target in enumerate(targets):
        _fill(context, group.delay_topic, partition, each, workload.headers(due_ms, target))
    group.wait_pending(each * len(targets), until_ms=due_ms - QUIET_MS)
    # No requests during the release: the cores belong to the routers and the broker.
    workload.sleep_until(due_ms - QUIET_MS // 10)
    before_s = _cpu_s(group)
    workload.sleep_until(due_ms + RELEASED_WITHIN_MS)
    taken_s = _cpu_s(group) - before_s
    found = [reader.lateness([due_ms] * each, first_offset) for reader in readers]
    took_ms = max(max(lateness.last_append_ms for lateness in found) - due_ms, 1)
    if took_ms > RELEASED_WITHIN_MS:
        raise BenchmarkFailed(f"not released within {RELEASED_WITHIN_MS} ms: it took {took_ms}")
    return Release(each * len(targets) * 1_000 / took_ms, taken_s * 1_000 / took_ms)


def _fill(context: Context, topic: str, partition: int, count: int, headers: workload.Headers) -> None:
    workload.fill(context.bootstrap, topic, count, lambda _: headers, partition)


def _cpu_s(group: Group) -> float:
    """Return the CPU time in s of all routers so far."""
    return sum(cpu_s(psutil.Process(process.pid)) for process in group.routers)
