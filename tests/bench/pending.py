"""Measures the memory of one process with many pending records in many partitions: coming in, sealed, restarted."""

import time
from collections.abc import Iterator
from typing import Final

from tests.bench import growth, router, scatter, workload
from tests.bench.context import Context
from tests.bench.results import MIB, BenchmarkFailed, Row, at_most

SETTLE_MS: Final = 15_000
"""A router gives free memory back every ten seconds."""

SEALED_MS: Final = 75_000
"""The last bucket of a partition is sealed when it is a minute old."""

AT_REST_MS: Final = 180_000
INDEXED_WITHIN_S: Final = 600.0
MEMORY_BYTES: Final = 12


def pending(context: Context) -> Iterator[Row]:
    """Measure the records of ``large``, in the partitions of ``growth`` with two lanes; none is due meanwhile."""
    count, partitions = context.sizes.large_records, growth.many(context)
    settings = {"instance_id": "one", "lanes": growth.LANES}
    with router.running(context.bootstrap, partitions=partitions, router=settings) as running:
        empty = running.settled_bytes(SETTLE_MS)
        first_ms = workload.now_ms() + scatter.HOUR_MS
        between_ms = [first_ms, first_ms + scatter.HOUR_MS]
        growth.fill(context, running.delay_topic, running.target, between_ms, range(partitions), count)
        most = _until_indexed(running, count)
        sealed = running.settled_bytes(SEALED_MS)
        at_rest = running.settled_bytes(AT_REST_MS)
        running.process.kill()
        running.start()
        back = running.settled_bytes(SETTLE_MS)
        if running.pending() != count:
            raise BenchmarkFailed(f"{running.pending():,} of {count:,} records are pending after a restart")
    what = f"{count / 1e6:g} M pending in {partitions} partitions"
    yield Row("pending", f"{what}: memory of the process at most, while they come in", most / MIB, "MiB")
    for name, resident in (("once sealed", sealed), ("at rest", at_rest), ("after a restart", back)):
        detail = f"{resident / MIB:.0f} MiB, empty {empty / MIB:.0f} MiB"
        each = (resident - empty) / count
        yield Row("pending", f"{what}: memory for each, {name}", each, "B", goal=at_most(MEMORY_BYTES), detail=detail)


def _until_indexed(running: router.Router, count: int) -> int:
    """Wait until all records are pending, and return the most memory on the way."""
    most, until_s = 0, time.monotonic() + INDEXED_WITHIN_S
    while running.pending() < count:
        if time.monotonic() > until_s:
            raise BenchmarkFailed(
                f"{running.pending():,} of {count:,} records are pending, {INDEXED_WITHIN_S:.0f} s on"
            )
        most = max(most, running.resident_bytes())
        time.sleep(0.5)
    return most
