"""Computes the tables of capacities in OPERATIONS.md from the formulas above it.

``python -m tests.docs.capacity`` writes them anew, and a test fails if they are old.
"""

import math
from typing import Final

from sidecar.cluster.topics.retention import DEFAULT_MAX_MESSAGE_BYTES
from sidecar.config.model import RouterConfig
from sidecar.operations.asking.container_memory import MIB, MOST_TIMES, PARTITION_BYTES, PROCESS_BYTES
from tests.docs.documents import table_of, with_table
from tests.support.paths import ROOT

FILE: Final = ROOT / "OPERATIONS.md"

DUE_A_SECOND: Final = 152_000
INCOMING_A_SECOND: Final = 194_000
OVERDUE_A_SECOND: Final = 209_000
"""Rates of one process in BENCHMARKS.md: fixed delay, index + seal, catch-up."""

PENDING_BYTES: Final = 8
SCATTERED_BYTES: Final = 4.61
"""Bytes of a pending record in memory, and in a snapshot with pointers."""

VALUE_BYTES: Final = 200
INLINE_BYTES: Final = VALUE_BYTES + 30
"""Bytes of a record in the delay topic, and in a segment with its columns."""

REPLICAS: Final = 3
WHILE_MERGING: Final = 2
PARTITIONS: Final = 4
OUTAGE_S: Final = 600

RATES: Final = (1_000, 10_000, 50_000)
PENDING: Final = (1_000_000, 10_000_000, 100_000_000)

_PAYLOAD_BYTES: Final[int] = RouterConfig.model_fields["payload_memory_bytes"].default
_DAY_S: Final = 86_400


def processes(rate: int) -> int:
    """Return how many processes a rate of due and incoming records takes, with one to fail."""
    return math.ceil(max(rate / DUE_A_SECOND, rate / INCOMING_A_SECOND) * 2) + 1


def memory_mib(pending: int) -> int:
    """Return the memory of a process that has all partitions, with the largest fetch of a topic with default limits."""
    own = _PAYLOAD_BYTES + PROCESS_BYTES + PARTITION_BYTES * PARTITIONS + PENDING_BYTES * pending
    return math.ceil((own + DEFAULT_MAX_MESSAGE_BYTES * MOST_TIMES) / MIB)


def tables() -> str:
    """Return a table with a line for each rate, and one with a line for each number of pending records."""
    of_rates = [
        (
            f"{rate:,}",
            str(processes(rate)),
            _size(rate * VALUE_BYTES * _DAY_S * REPLICAS),
            _duration(OUTAGE_S * rate / (OVERDUE_A_SECOND - rate)),
        )
        for rate in RATES
    ]
    of_pending = [
        (
            f"{pending // 1_000_000} M",
            f"{memory_mib(pending):,} MiB",
            _size(pending * SCATTERED_BYTES * WHILE_MERGING * REPLICAS),
            _size(pending * INLINE_BYTES * WHILE_MERGING * REPLICAS),
            ", ".join(_duration(pending / rate) for rate in RATES),
        )
        for pending in PENDING
    ]
    rates = (
        "due and incoming records/s",
        "processes",
        "delay topic, for each day it keeps",
        "to catch up after 10 minutes",
    )
    delays = f"mean delay at {RATES[0]:,}, {RATES[1]:,} and {RATES[2]:,} records/s"
    kept = ("pending", "memory of a process", "snapshots with `pointer`", "snapshots with `inline`", delays)
    return f"{table_of(rates, of_rates)}\n{table_of(kept, of_pending)}"


def _duration(seconds: float) -> str:
    for unit, length in (("d", _DAY_S), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _size(size_bytes: float) -> str:
    for unit, length in (("TB", 1e12), ("GB", 1e9)):
        if size_bytes >= length:
            return (
                f"{size_bytes / length:.2g} {unit}"
                if size_bytes < 10 * length
                else f"{size_bytes / length:,.0f} {unit}"
            )
    return f"{size_bytes / 1e6:.0f} MB"


def updated(text: str) -> str:
    """Return the document with these tables in place of its own."""
    return with_table(text, "capacity", tables())


if __name__ == "__main__":
    FILE.write_text(updated(FILE.read_text(encoding="utf-8")), encoding="utf-8")
