"""Defines the result of a benchmark: rows with a value, a ratio, a goal, and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final


class BenchmarkFailed(Exception):
    """A benchmark could not be measured, or records were lost, doubled or early; the message says which."""


MIB: Final = 1 << 20

REACHED: Final = "reached"
MISSED: Final = "missed"
FAILED: Final = "failed"


@dataclass(frozen=True, slots=True)
class Goal:
    """A limit from the design, on the ratio if ``on_ratio``, otherwise on the value."""

    limit: float
    at_least: bool
    on_ratio: bool = False

    def judge(self, value: float, ratio: float | None) -> str:
        """Return ``reached`` or ``missed``."""
        measured = ratio if self.on_ratio else value
        if measured is None:
            raise ValueError("a goal on the ratio needs a ratio")
        return REACHED if (measured >= self.limit if self.at_least else measured <= self.limit) else MISSED

    def text(self, unit: str) -> str:
        """Return the goal as it is shown, for example ``≥ 1.2 x``."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {'x' if self.on_ratio else unit}"


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure.

    ``ratio`` is ``value`` divided by the figure that ``ratio_of`` names. ``detail`` holds further findings. ``spread``
    is the lowest and the highest value if the figure is the median of several measurements.
    """

    benchmark: str
    name: str
    value: float
    unit: str
    ratio: float | None = None
    ratio_of: str = ""
    goal: Goal | None = None
    detail: str = ""
    failure: str = ""
    spread: tuple[float, float] | None = None

    @property
    def verdict(self) -> str:
        """``reached``, ``missed``, ``failed``, or an empty text for a figure without a goal."""
        if self.failure:
            return FAILED
        return self.goal.judge(self.value, self.ratio) if self.goal else ""

    def as_json(self) -> dict[str, object]:
        """Return the row for the JSON file; figures unrounded."""
        return {
            "benchmark": self.benchmark,
            "name": self.name,
            "value": None if self.failure else self.value,
            "spread": self.spread,
            "unit": self.unit,
            "ratio": self.ratio,
            "ratio_of": self.ratio_of,
            "goal": self.goal.text(self.unit) if self.goal else "",
            "verdict": self.verdict,
            "detail": self.failure or self.detail,
        }


def at_least(limit: float) -> Goal:
    """Return a goal on the ratio to the ceiling or the raw loop."""
    return Goal(limit, at_least=True, on_ratio=True)


def no_more_than(limit: float) -> Goal:
    """Return a goal on the ratio, from above."""
    return Goal(limit, at_least=False, on_ratio=True)


def at_most(limit: float) -> Goal:
    """Return a goal on the value itself."""
    return Goal(limit, at_least=False)


def never_below(limit: float) -> Goal:
    """Return a goal on the value itself, from below."""
    return Goal(limit, at_least=True)


def middle(rounds: Sequence[Sequence[Row]]) -> list[Row]:
    """Return the median of each row over several rounds, by the figure of its goal; one failure fails the row.

    A failed round has other rows; the median of a row covers the rounds that have it.
    """
    found: dict[tuple[str, str], list[Row]] = {}
    for row in (row for rows in rounds for row in rows):
        found.setdefault((row.benchmark, row.name), []).append(row)
    return [_middle(rows) for rows in found.values()]


def _middle(rows: list[Row]) -> Row:
    failures = [row for row in rows if row.failure]
    if failures:
        return failures[0]
    if len(rows) == 1:
        return rows[0]
    by_ratio = all(row.ratio is not None for row in rows)
    rows = sorted(rows, key=lambda row: (row.ratio or 0.0) if by_ratio else row.value)
    values = [row.value for row in rows]
    return replace(rows[len(rows) // 2], spread=(min(values), max(values)))


def failed(benchmark: str, why: BaseException) -> Row:
    """Return the row of a benchmark that could not be measured."""
    return Row(benchmark, benchmark, 0.0, "", failure=f"{type(why).__name__}: {why}")
