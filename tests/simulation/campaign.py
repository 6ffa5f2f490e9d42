"""Many seeds at a time: ``python -m tests.simulation.campaign seeds [N]`` and ``... mutants [N]``.

``seeds`` plays the right router on N seeds, on every core, and reports seeds, faults and simulated time. Without
``--first`` the seeds are fresh ones, so that every campaign looks where none has looked; each failure is printed with
the command that replays it. ``mutants`` plays each wrong router until a seed breaks it, and says how many that took.
"""

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from random import SystemRandom

import click
from rich.console import Console
from rich.table import Table

from tests.simulation import wrong
from tests.simulation.checker import Violation
from tests.simulation.router import Router
from tests.simulation.run import Run

AT_ONCE = 20
"""Seeds that a process plays before it reports: enough that handing them out costs nothing."""

MS_PER_HOUR = 3_600_000
FAULTS = ("CrashedError", "UnknownOutcomeError", "FencedError", "AbortedError", "killed", "given to", "a segment was")
"""How the events of a trace begin that are faults; clocks that move and topics that are compacted are not counted."""


@dataclass(frozen=True, slots=True)
class Played:
    """What some seeds came to; ``broken`` has a line for each that broke a guarantee."""

    seeds: int
    faults: int
    simulated_ms: int
    broken: list[str]


@dataclass(frozen=True, slots=True)
class Caught:
    """A wrong router: the first seed that broke it and what it broke, or None."""

    name: str
    what: str
    seeds: int
    violation: str | None


def play(seeds: list[int]) -> Played:
    """Play the right router on each seed."""
    faults, simulated_ms, broken = 0, 0, []
    for seed in seeds:
        run = Run(seed)
        try:
            run.play()
        except Exception as error:  # noqa: BLE001 - whatever it was, the seed is what matters
            broken.append(f"python -m tests.simulation {seed}   # {error!r}")
        faults += sum(event.startswith(FAULTS) for event in run.trace)
        simulated_ms += run.simulated_ms
    return Played(len(seeds), faults, simulated_ms, broken)


def catch(router: type[Router], most_seeds: int) -> Caught:
    """Play a wrong router on seeds 0, 1, 2 ... until one breaks it."""
    what = (router.__doc__ or "").strip().splitlines()[0]
    for seed in range(most_seeds):
        try:
            Run(seed, router).play()
        except Violation as violation:
            return Caught(router.__name__, what, seed + 1, str(violation))
    return Caught(router.__name__, what, most_seeds, None)


@click.group()
def main() -> None:
    """Campaigns of the simulation."""


@main.command()
@click.argument("number", type=click.IntRange(1), default=2000)
@click.option("--first", type=click.IntRange(0), help="Play seeds from this one on, instead of fresh ones.")
def seeds(number: int, first: int | None) -> None:
    """Play NUMBER seeds of the right router."""
    chosen = [SystemRandom().getrandbits(48) for _ in range(number)] if first is None else range(first, first + number)
    began_s = time.monotonic()
    total = Played(0, 0, 0, [])
    with ProcessPoolExecutor() as pool:
        for played in pool.map(play, _some_at_a_time(iter(chosen))):
            for line in played.broken:
                click.echo(line)
            total = Played(
                total.seeds + played.seeds,
                total.faults + played.faults,
                total.simulated_ms + played.simulated_ms,
                total.broken + played.broken,
            )
    minutes = (time.monotonic() - began_s) / 60
    click.echo(
        f"{total.seeds} seeds and {total.faults} faults in {minutes:.1f} minutes"
        f" ({total.seeds / minutes:.0f} seeds and {total.faults / minutes:.0f} faults a minute),"
        f" {total.simulated_ms / MS_PER_HOUR:.2f} simulated hours"
    )
    _close(total.seeds - len(total.broken), len(total.broken))


@main.command()
@click.argument("number", type=click.IntRange(1), default=200)
def mutants(number: int) -> None:
    """Play each wrong router until a seed breaks it, NUMBER seeds at most."""
    with ProcessPoolExecutor() as pool:
        found = list(pool.map(catch, wrong.ALL, [number] * len(wrong.ALL)))
    table = Table("wrong router", "what is wrong", "seeds", "broken guarantee", box=None, pad_edge=False)
    for each in sorted(found, key=lambda caught: caught.seeds):
        table.add_row(each.name, each.what, str(each.seeds), each.violation or f"NOT FOUND in {number} seeds")
    Console(width=200 if not sys.stdout.isatty() else None).print(table)
    missed = sum(each.violation is None for each in found)
    _close(len(found) - missed, missed)


def _some_at_a_time(chosen: Iterator[int]) -> Iterator[list[int]]:
    while some := list(islice(chosen, AT_ONCE)):
        yield some


def _close(passed: int, failed: int) -> None:
    click.echo(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
