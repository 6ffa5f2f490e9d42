"""Computes the tables of capacities in OPERATIONS.md from the formulas above it.

``python -m tests.docs.capacity`` writes them anew, and a test fails if they are old.
"""

from typing import Final

from sidecar.operations.sizing.capacity import Load, catch_up_s, delay_topic_bytes, disk, memory, processes
from sidecar.operations.sizing.memory import MIB
from tests.docs.documents import table_of, with_table
from tests.support.paths import ROOT

FILE: Final = ROOT / "OPERATIONS.md"

VALUE_BYTES: Final = 200
PARTITIONS: Final = 4
BROKERS: Final = 3
OUTAGE_S: Final = 600

RATES: Final = (1_000, 10_000, 50_000)
PENDING: Final = (1_000_000, 10_000_000, 100_000_000)

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
                f"{pending // 1_000_000} M",
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


def _load(rate_s: int, delay_s: int) -> Load:
    return Load(rate_s, delay_s * _MS_PER_S, VALUE_BYTES, PARTITIONS, BROKERS)


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
