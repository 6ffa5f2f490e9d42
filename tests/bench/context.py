"""What every benchmark gets: the broker, the sizes, and the ceiling once it is known."""

import random
from dataclasses import dataclass
from typing import Final

from tests.bench.results import BenchmarkFailed


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    loop_records: int
    burst_records: int
    burst_runs: int
    steady_s: int
    idle_s: int
    idle_rates: tuple[int, ...]
    partitions: tuple[int, ...]
    partitions_s: int


FULL: Final = Sizes(
    loop_records=500_000,
    burst_records=100_000,
    burst_runs=3,
    steady_s=25,
    idle_s=20,
    idle_rates=(5, 100),
    partitions=(1, 10, 100),
    partitions_s=20,
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
)


@dataclass(slots=True)
class Context:
    """One run; ``ceiling_per_s`` is 0 until the ceiling was measured."""

    bootstrap: str
    sizes: Sizes
    random: random.Random
    ceiling_per_s: float = 0.0

    def of_ceiling(self, rate_per_s: float) -> float:
        """Return a rate as a ratio to the ceiling."""
        if not self.ceiling_per_s:
            raise BenchmarkFailed("the ceiling is not known: it could not be measured in this run")
        return rate_per_s / self.ceiling_per_s
