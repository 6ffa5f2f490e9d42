"""How many cores one process uses: the same records on 1, 2 and 4 partitions of it, and shared with a second one.

All are due at one instant and indexed before it, each partition has a target of its own: what is measured is releasing,
one worker a partition. What a worker does without the lock of the interpreter, others do at the same time. Beside the
rate stands what the routers have taken of the machine, whose cores the broker needs, too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import psutil

from tests.bench import instances, workload
from tests.bench.context import Context
from tests.bench.instances import Group
from tests.bench.released import TargetReader
from tests.bench.results import BenchmarkFailed, Row

SHAPES: Final = ((1, 1), (1, 2), (1, 4), (2, 2), (2, 4))
"""Processes, and partitions of all of them."""

RUNS: Final = 2
"""The first makes connections and learns who leads which topic."""

LEAD_MS: Final = 15_000
QUIET_MS: Final = 500
"""As in :mod:`tests.bench.burst`, for twice as many records."""

RELEASED_WITHIN_MS: Final = 5_000


class Release(NamedTuple):
    """One run: records a second from the instant to the last append, and the cores that the routers used meanwhile."""

    rate_per_s: float
    cores: float


def cores(context: Context) -> Iterator[Row]:
    """Measure each shape once it has released as much before; ratios are to one partition in one process."""
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
    """A target topic for each partition."""
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
    # Nothing looks on while it happens: the cores are the routers' and the broker's.
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
    """What all routers have taken so far."""
    times = [psutil.Process(process.pid).cpu_times() for process in group.routers]
    return float(sum(each.user + each.system for each in times))
