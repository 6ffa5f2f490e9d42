"""Plays the wrong routers and prints the table of them that CONTRIBUTING.md keeps.

``python -m tests.simulation.mutants`` (also ``make mutants``) plays each until a seed breaks it and prints the table;
``--write`` also puts it into CONTRIBUTING.md. The seeds are 0, 1, 2 ..., so the same code gives the same table.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.simulation.plays import ROUTERS, WRONG
from tests.simulation.replacing import Wrong
from tests.simulation.violation import Violation

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
HEADING = "| wrong router | what is wrong | found within seeds |\n|---|---|---|\n"
MOST_SEEDS = 400
"""The rarest wrong router fails in 2 of 100 runs, so it escapes this many seeds once in 400 times."""


@dataclass(frozen=True, slots=True)
class Caught:
    """A wrong router: the number of seeds until one broke it and the broken guarantee, or None if no seed broke it."""

    name: str
    what: str
    seeds: int
    violation: str | None


def what_is_wrong(router: type[Wrong]) -> str:
    """Return the first line of the router's docstring, without the period."""
    return (router.__doc__ or "").strip().splitlines()[0].rstrip(".")


def most_telling(router: type[Wrong]) -> Iterator[int]:
    """Yield the seeds to play: first the one that broke this router according to the kept table, then 0, 1, 2 ..."""
    found_within = {name: seeds for name, _, seeds in kept(CONTRIBUTING.read_text("utf-8"))}
    last = found_within.get(router.__name__, 0) - 1
    yield from [last] if last >= 0 else []
    yield from (seed for seed in range(MOST_SEEDS) if seed != last)


def catch(router: type[Wrong], seeds: Iterable[int]) -> Caught:
    """Play a wrong router on one seed after the other until one breaks it."""
    seed = -1
    for seed in seeds:
        try:
            ROUTERS[router.__name__](seed).play()
        except Violation as violation:
            return Caught(router.__name__, what_is_wrong(router), seed + 1, str(violation))
    return Caught(router.__name__, what_is_wrong(router), seed + 1, None)


def rows(found: Sequence[Caught]) -> str:
    """Return the rows of the table in Markdown, in the order of the code."""
    return "".join(f"| `{each.name}` | {each.what} | {each.seeds} |\n" for each in found)


def kept(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield the name, the mistake and the number of seeds of each row in CONTRIBUTING.md."""
    for line in text.partition(HEADING)[2].splitlines():
        if not line.startswith("|"):
            return
        name, what, seeds = (cell.strip() for cell in line.strip("|").split("|"))
        yield name.strip("`"), what, int(seeds)


def with_rows(text: str, new_rows: str) -> str:
    """Return the text with its rows replaced by these. Raise ValueError if the text has no such table."""
    before, heading, after = text.partition(HEADING)
    if not heading:
        raise ValueError(f"{CONTRIBUTING.name} has no table that begins with {HEADING.splitlines()[0]}")
    lines = after.splitlines(keepends=True)
    former = next((number for number, line in enumerate(lines) if not line.startswith("|")), len(lines))
    return before + heading + new_rows + "".join(lines[former:])


@click.command()
@click.argument("number", type=click.IntRange(1), default=MOST_SEEDS)
@click.option("--write", is_flag=True, help="Put the table into CONTRIBUTING.md, too.")
def main(number: int, *, write: bool) -> None:
    """Play each wrong router until a seed breaks it, NUMBER seeds at most."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(catch, WRONG, [range(number)] * len(WRONG)))
    table = Table("wrong router", "what is wrong", "seeds", "broken guarantee", box=None, pad_edge=False)
    for each in sorted(found, key=lambda caught: caught.seeds):
        table.add_row(each.name, each.what, str(each.seeds), each.violation or f"NOT FOUND in {number} seeds")
    Console(width=200 if not sys.stdout.isatty() else None).print(table)
    missed = sum(each.violation is None for each in found)
    if write and not missed:
        CONTRIBUTING.write_text(with_rows(CONTRIBUTING.read_text("utf-8"), rows(found)), "utf-8")
    click.echo(f"{len(found) - missed} passed, {missed} failed")
    sys.exit(int(missed > 0))


if __name__ == "__main__":
    main()
