"""Measures the cost of an idle partition: memory, threads and CPU of one process with few and with many of them."""

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

import psutil

from tests.bench import router
from tests.bench.context import Context
from tests.bench.machine import cpu_s
from tests.bench.results import MIB, Row, at_most

# After the last partition became active: connections are made, the first collections have run.
SETTLE_S: Final = 5.0

MEMORY_LIMIT_MIB: Final = 4
CPU_LIMIT_PERCENT: Final = 0.5


class Cost(NamedTuple):
    """The cost of one process at rest."""

    partitions: int
    resident_mib: float
    threads: int
    cpu_percent: float


def partitions(context: Context) -> Iterator[Row]:
    """Measure processes of different size; an idle partition costs the difference divided by their number."""
    costs: list[Cost] = []
    for count in context.sizes.partitions:
        cost = _cost(context, count)
        costs.append(cost)
        detail = f"{cost.threads} threads, {cost.cpu_percent:.1f} % of a core"
        what = f"process with {count}: resident"
        yield Row("partitions", what, cost.resident_mib, "MiB", detail=detail)
    least, most = costs[0], costs[-1]
    more = most.partitions - least.partitions
    basis = f"from {least.partitions} to {most.partitions} partitions"
    memory_mib = (most.resident_mib - least.resident_mib) / more
    cpu_percent = (most.cpu_percent - least.cpu_percent) / more
    yield Row(
        "partitions", "an idle partition: memory", memory_mib, "MiB", goal=at_most(MEMORY_LIMIT_MIB), detail=basis
    )
    yield Row(
        "partitions",
        "an idle partition: CPU",
        cpu_percent,
        "% of a core",
        goal=at_most(CPU_LIMIT_PERCENT),
        detail=basis,
    )
    yield Row("partitions", "an idle partition: threads", (most.threads - least.threads) / more, "", detail=basis)


def _cost(context: Context, count: int) -> Cost:
    with router.running(context.bootstrap, partitions=count) as running:
        time.sleep(SETTLE_S)
        process = psutil.Process(running.process.pid)
        began_s, cpu_before_s = time.monotonic(), cpu_s(process)
        time.sleep(context.sizes.partitions_s)
        share = (cpu_s(process) - cpu_before_s) / (time.monotonic() - began_s)
        return Cost(count, process.memory_info().rss / MIB, process.num_threads(), share * 100)
