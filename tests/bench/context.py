"""Holds the inputs of every benchmark: the broker, the sizes, and the ceiling once it is known."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.bench.results import BenchmarkFailed


@dataclass(frozen=True, slots=True)
class Sizes:
    """The amounts to measure."""

    loop_records: int
    burst_records: int
    burst_runs: int
    steady_s: int
    idle_s: int
    idle_rates: tuple[int, ...]
    partitions: tuple[int, ...]
    partitions_s: int
    growing: tuple[int, ...]
    growing_s: int
    isolated_s: int
    horizons_s: int
    overdue_records: int
    overdue_spread_s: int
    dense_per_s: int
    dense_s: int
    sustained_s: int
    sparse_records: int
    sparse_per_s: int
    sparse_s: int
    sealed_records: int
    stall_records: int
    snapshot_records: int
    placement_records: int
    large_records: int
    large_per_s: int
    large_s: int
    huge_records: int
    policy_changes: int
    admin_window_s: int
    page_records: int
    limited_window_s: int
    rolling_per_s: int
    named_window_s: int
    named_series: int
    named_occurrences: int
    named_ids: int
    named_unnamed: int
    retry_per_s: int
    retry_s: int
    retry_records: int


FULL: Final = Sizes(
    loop_records=500_000,
    burst_records=100_000,
    burst_runs=3,
    steady_s=25,
    idle_s=20,
    idle_rates=(5, 100),
    partitions=(1, 10, 100),
    partitions_s=20,
    growing=(1, 10, 100, 300),
    growing_s=30,
    isolated_s=60,
    horizons_s=300,
    overdue_records=1_000_000,
    overdue_spread_s=60,
    dense_per_s=20_000,
    dense_s=20,
    sustained_s=10,
    sparse_records=1_000_000,
    sparse_per_s=1_000,
    sparse_s=30,
    sealed_records=1_000_000,
    stall_records=200_000,
    snapshot_records=400_000,
    placement_records=200_000,
    large_records=10_000_000,
    large_per_s=2_800,
    large_s=60,
    huge_records=100_000_000,
    policy_changes=60,
    admin_window_s=15,
    page_records=10_000_000,
    limited_window_s=8,
    rolling_per_s=1_000,
    named_window_s=10,
    named_series=10_000,
    named_occurrences=40,
    named_ids=100_000,
    named_unnamed=1_000_000,
    retry_per_s=5_000,
    retry_s=45,
    retry_records=500_000,
)

QUICK: Final = Sizes(
    loop_records=60_000,
    burst_records=20_000,
    burst_runs=1,
    steady_s=5,
    idle_s=5,
    idle_rates=(5, 100),
    partitions=(1, 10),
    partitions_s=5,
    growing=(1, 10),
    growing_s=10,
    isolated_s=10,
    horizons_s=30,
    overdue_records=250_000,
    overdue_spread_s=5,
    dense_per_s=5_000,
    dense_s=10,
    sustained_s=4,
    sparse_records=250_000,
    sparse_per_s=1_000,
    sparse_s=10,
    sealed_records=250_000,
    stall_records=30_000,
    snapshot_records=250_000,
    placement_records=40_000,
    large_records=250_000,
    large_per_s=2_800,
    large_s=10,
    huge_records=1_000_000,
    policy_changes=6,
    admin_window_s=4,
    page_records=100_000,
    limited_window_s=3,
    rolling_per_s=200,
    named_window_s=3,
    named_series=500,
    named_occurrences=5,
    named_ids=10_000,
    named_unnamed=300_000,
    retry_per_s=1_000,
    retry_s=18,
    retry_records=40_000,
)


@dataclass(slots=True)
class Context:
    """One run; the rates are 0 until they are measured, and ``say`` takes a progress line."""

    bootstrap: str
    sizes: Sizes
    random: random.Random
    say: Callable[[str], None]
    ceiling_per_s: float = 0.0
    consume_per_s: float = 0.0

    def of_ceiling(self, rate_per_s: float) -> float:
        """Return a rate as a ratio to the ceiling."""
        if not self.ceiling_per_s:
            raise BenchmarkFailed("the ceiling is not known: it could not be measured in this run")
        return rate_per_s / self.ceiling_per_s

    def of_consume(self, rate_per_s: float) -> float:
        """Return a rate as a ratio to the raw consume loop."""
        if not self.consume_per_s:
            raise BenchmarkFailed("the raw consume rate is not known: it could not be measured in this run")
        return rate_per_s / self.consume_per_s
