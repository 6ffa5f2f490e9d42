"""Plays many seeds at a time: ``python -m tests.simulation.campaign [N]``.

Plays the right router on N seeds, on every core, and reports seeds, faults and simulated time. Without ``--first`` the
seeds are random, so that every campaign tries new ones. Each failure is printed with the command that replays it.
"""

import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import islice
from random import SystemRandom

import click

from tests.simulation.plays import Play
from tests.simulation.run import Run
from tests.simulation.shared.run import SharedRun

AT_ONCE = 20
"""Seeds that a process plays before it reports: enough to make the cost of the hand-over negligible."""

LANES_EVERY = 4
"""One of so many seeds also plays transactions that partitions share."""

MS_PER_HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Played:
    """The result of some seeds; ``broken`` has a line for each seed that broke a guarantee."""

    seeds: int
    faults: int
    simulated_ms: int
    broken: list[str]


def play(seeds: list[int]) -> Played:
    """Play the right router on each seed, and in lanes on some."""
    faults, simulated_ms, broken = 0, 0, []
    for seed in seeds:
        run = Run(seed)
        broken += _broken(run, f"{seed}")
        if seed % LANES_EVERY == 0:
            broken += _broken(SharedRun(seed), f"{seed} Lanes")
        faults += run.faults
        simulated_ms += run.simulated_ms
    return Played(len(seeds), faults, simulated_ms, broken)


def _broken(run: Play, replayed_by: str) -> list[str]:
    try:
        run.play()
    except Exception as error:  # noqa: BLE001 - any error counts, and the seed replays it
        return [f"python -m tests.simulation {replayed_by}   # {error!r}"]
    return []


@click.command()
@click.argument("number", type=click.IntRange(1), default=2000)
@click.option("--first", type=click.IntRange(0), help="Play seeds from this one on, instead of fresh ones.")
def main(number: int, first: int | None) -> None:
    """Play NUMBER seeds of the right router."""
    chosen = [SystemRandom().getrandbits(48) for _ in range(number)] if first is None else range(first, first + number)
    began_s = time.monotonic()
    total = Played(0, 0, 0, [])
    # Workers leave an interruption to this process, which reports the seeds played so far.
    pool = ProcessPoolExecutor(initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        for played in pool.map(play, _some_at_a_time(iter(chosen))):
            for line in played.broken:
                click.echo(line)
            total = Played(
                total.seeds + played.seeds,
                total.faults + played.faults,
                total.simulated_ms + played.simulated_ms,
                total.broken + played.broken,
            )
    except KeyboardInterrupt:
        click.echo(f"interrupted: {number - total.seeds} seeds were not played")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    minutes = (time.monotonic() - began_s) / 60
    click.echo(
        f"{total.seeds} seeds and {total.faults} faults in {minutes:.1f} minutes"
        f" ({total.seeds / minutes:.0f} seeds and {total.faults / minutes:.0f} faults a minute),"
        f" {total.simulated_ms / MS_PER_HOUR:.2f} simulated hours"
    )
    click.echo(f"{total.seeds - len(total.broken)} passed, {len(total.broken)} failed")
    sys.exit(int(bool(total.broken) or total.seeds < number))


def _some_at_a_time(chosen: Iterator[int]) -> Iterator[list[int]]:
    while some := list(islice(chosen, AT_ONCE)):
        yield some


if __name__ == "__main__":
    main()
