"""Computes the tables of capacities in OPERATIONS.md and in the chart's README, as ``delay-router plan`` does.

``python -m tests.docs.capacity`` writes them anew, and a test fails if they are old.
"""

from typing import Final

from sidecar.cli.output import format_bytes
from sidecar.operations.sizing.capacity import Load, catch_up_s, delay_topic_bytes, disk, memory, processes
from sidecar.operations.sizing.memory import MIB
from tests.docs.documents import table_of, with_table
from tests.support.paths import ROOT

FILE: Final = ROOT / "OPERATIONS.md"
CHART_FILE: Final = ROOT / "helm" / "delay-router" / "README.md"

VALUE_BYTES: Final = 200
PARTITIONS: Final = 4
BROKERS: Final = 3
OUTAGE_S: Final = 600

RATES: Final = (1_000, 10_000, 50_000)
PENDING: Final = (1_000_000, 10_000_000, 100_000_000, 1_000_000_000)

_STEP_BYTES: Final = 256 * MIB
"""Requests and limits of memory are multiples of it."""

_MS_PER_S: Final = 1_000
_DAY_S: Final = 86_400


def tables() -> str:
    """Return a table with a line for each rate, and one with a line for each number of pending records."""
    of_rates = [
        (
            f"{rate:,}",
            str(processes(rate)),
            _size(delay_topic_bytes(_load(rate, 1), _DAY_S * _MS_PER_S)),
            _duration(catch_up_s(OUTAGE_S, rate)),
        )
        for rate in RATES
    ]
    of_pending = []
    for pending in PENDING:
        load = _load(RATES[0], pending // RATES[0])
        kept = disk(load)
        of_pending.append(
            (
                _count(pending),
                f"{-(-memory(load, PARTITIONS).total_bytes // MIB):,} MiB",
                _size(kept.pointer_snapshots_bytes),
                _size(kept.inline_snapshots_bytes),
                ", ".join(_duration(pending / rate) for rate in RATES),
            )
        )
    rates = (
        "due and incoming records/s",
        "processes",
        "delay topic, for each day it keeps",
        "to catch up after 10 minutes",
    )
    delays = f"mean delay at {RATES[0]:,}, {RATES[1]:,} and {RATES[2]:,} records/s"
    of_each = ("pending", "memory of a process", "snapshots with `pointer`", "snapshots with `inline`", delays)
    return f"{table_of(rates, of_rates)}\n{table_of(of_each, of_pending)}"


def resources() -> str:
    """Return a table of the chart's value ``resources`` for each number of pending records.

    The request leaves out the largest fetch, which unpacks to so much only if a producer intends it.
    """
    rows = []
    for pending in PENDING:
        need = memory(_load(RATES[0], pending // RATES[0]), PARTITIONS)
        request, limit = need.total_bytes - need.fetch_bytes, need.total_bytes
        line = f"resources: {{requests: {{cpu: 500m, memory: {_mi(request)}}}, limits: {{memory: {_mi(limit)}}}}}"
        rows.append((_count(pending), f"{-(-limit // MIB):,} MiB", f"`{line}`"))
    return table_of(("pending records of a process", "at most", "value"), rows)


def with_hundred_partitions(pending: int) -> str:
    """Return the memory of a process that has 100 partitions and so many pending records, as ``plan`` prints it."""
    load = _load(RATES[0], pending // RATES[0], partitions=100)
    return format_bytes(memory(load, load.partitions).total_bytes)


def _mi(size_bytes: int) -> str:
    return f"{-(-size_bytes // _STEP_BYTES) * _STEP_BYTES // MIB}Mi"


def _load(rate_s: int, delay_s: int, partitions: int = PARTITIONS) -> Load:
    return Load(rate_s, delay_s * _MS_PER_S, VALUE_BYTES, partitions, BROKERS)


def _count(records: int) -> str:
    return f"{records // 1_000_000_000} G" if records >= 1_000_000_000 else f"{records // 1_000_000} M"


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


def chart_updated(text: str) -> str:
    """Return the chart's README with this table in place of its own."""
    return with_table(text, "memory", resources())


if __name__ == "__main__":
    FILE.write_text(updated(FILE.read_text(encoding="utf-8")), encoding="utf-8")
    CHART_FILE.write_text(chart_updated(CHART_FILE.read_text(encoding="utf-8")), encoding="utf-8")
