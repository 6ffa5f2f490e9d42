"""Prints the report: a table for people, JSON for scripts."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.bench import machine
from tests.bench.results import FAILED, MISSED, REACHED, Row

COLOURS: Final = {REACHED: "green", MISSED: "yellow", FAILED: "red", "": ""}
THOUSANDS_FROM: Final = 1_000


def show(console: Console, facts: dict[str, object], rows: Sequence[Row]) -> None:
    """Print the machine, the table, and below it the details."""
    console.print(machine.line(facts), soft_wrap=True)
    table = Table("benchmark", "what")
    for heading in ("value", "spread", "ratio", "goal"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for row in rows:
        table.add_row(
            row.benchmark,
            row.name,
            "" if row.failure else _value(row),
            ""
            if row.failure or row.spread is None
            else f"{_number(row, row.spread[0])} to {_number(row, row.spread[1])}",
            f"{row.ratio:.2f} x {row.ratio_of}" if row.ratio is not None else "",
            row.goal.text(row.unit) if row.goal else "",
            row.verdict,
            style=COLOURS[row.verdict],
        )
    console.print(table)
    for row in rows:
        if row.failure or row.detail:
            console.print(f"{row.benchmark}, {row.name}: {row.failure or row.detail}", soft_wrap=True, markup=False)


def write_json(path: Path, facts: dict[str, object], run: dict[str, object], rows: Sequence[Row]) -> None:
    """Write all rows, unrounded."""
    report = {"machine": facts, "run": run, "rows": [row.as_json() for row in rows]}
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _value(row: Row) -> str:
    return f"{_number(row, row.value)} {row.unit}".rstrip()


def _number(row: Row, value: float) -> str:
    digits = 0 if row.value >= THOUSANDS_FROM or row.unit == "ms" else 2
    return f"{value:,.{digits}f}"
