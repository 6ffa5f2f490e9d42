"""Tries shares of the ceiling in turn, to find the highest one that a router sustains."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from tests.bench.context import Context
from tests.bench.released import Lateness
from tests.bench.results import Row, at_least

FIRST_SHARE: Final = 0.5
"""The share to try first, and the goal."""

LOWER_SHARES: Final = (0.35, 0.25, 0.15)
BOUND_MS: Final = 1_000
"""A rate is sustained if lateness stays below this, and no record is left behind in the end."""


class Load(Protocol):
    """The result of one run at one rate."""

    @property
    def rate_per_s(self) -> float:
        """The rate at which records arrived, or became due, per second."""

    @property
    def sustained(self) -> bool:
        """Says whether the router kept up."""

    def text(self) -> str:
        """Return the run in words."""


L = TypeVar("L", bound=Load)


def drained_ms(lateness: Lateness) -> int:
    """Return the time in ms from the last due time to the last append."""
    return lateness.last_append_ms - lateness.last_due_ms


def kept_up(lateness: Lateness) -> bool:
    """Say whether lateness was bounded, and stayed so to the end."""
    return lateness.percentile(99) <= BOUND_MS and drained_ms(lateness) <= BOUND_MS


def tried(load: Callable[[float], L], higher: Sequence[float]) -> list[L]:
    """Return runs at the first share, then at higher ones while they are sustained, or at lower ones until one is."""
    loads = [load(FIRST_SHARE)]
    going_up = loads[0].sustained
    for share in higher if going_up else LOWER_SHARES:
        loads.append(load(share))
        if loads[-1].sustained != going_up:
            break
    return loads


def rows(context: Context, name: str, what: str, loads: Sequence[Load]) -> Iterator[Row]:
    """Yield the highest sustained rate, compared with the ceiling."""
    best = max((load.rate_per_s for load in loads if load.sustained), default=0.0)
    detail = "; ".join(load.text() for load in loads)
    yield Row(name, what, best, "records/s", context.of_ceiling(best), "ceiling", at_least(FIRST_SHARE), detail)
