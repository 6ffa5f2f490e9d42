"""Runs the benchmarks: ``python -m tests.bench [NAMES] [--quick] [--records N] [--json FILE]``."""

import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import click
import psutil
from confluent_kafka import KafkaException
from rich.console import Console

from index.errors import DelayRouterError
from sidecar.dev.local_kafka import BENCH_JVM, KafkaUnavailable, cluster
from tests.bench import kernels, machine, table
from tests.bench.burst import burst
from tests.bench.ceiling import ceiling, raw_consume, warm_up
from tests.bench.context import FULL, QUICK, Context
from tests.bench.cores import cores
from tests.bench.growth import growth, replicated
from tests.bench.horizons import horizons
from tests.bench.huge import huge
from tests.bench.idle import idle
from tests.bench.isolation import isolation
from tests.bench.large import large
from tests.bench.named import NAMED
from tests.bench.operations import OPERATIONS
from tests.bench.overdue import catch_up, never_seen
from tests.bench.partitions import partitions
from tests.bench.pending import pending
from tests.bench.placement import placement
from tests.bench.results import FAILED, BenchmarkFailed, Row, failed, middle
from tests.bench.retries import retries
from tests.bench.scattered import dense, sparse, sustained
from tests.bench.sealed import index_and_seal, snapshot_bytes
from tests.bench.stall import stall
from tests.bench.steady import steady
from tests.bench.take_over import take_over

BENCHMARKS: Final[dict[str, Callable[[Context], Iterator[Row]]]] = {
    "ceiling": ceiling,
    "consume": raw_consume,
    "burst": burst,
    "cores": cores,
    "steady": steady,
    "catch-up": catch_up,
    "overdue": never_seen,
    "dense": dense,
    "scattered": sustained,
    "sparse": sparse,
    "index": index_and_seal,
    "stall": stall,
    "snapshots": snapshot_bytes,
    "placement": placement,
    "idle": idle,
    "partitions": partitions,
    "growth": growth,
    "replicated": replicated,
    "take-over": take_over,
    "isolation": isolation,
    "horizons": horizons,
    "large": large,
    "huge": huge,
    "pending": pending,
    "retries": retries,
    **OPERATIONS,
    **NAMED,
}

NEEDS: Final = {
    "ceiling": frozenset({"consume", "burst", "steady", "catch-up", "overdue", "scattered"}),
    "consume": frozenset({"index"}),
}
"""The benchmarks whose ratios need another benchmark's figure of the same run."""

ONLY_BY_NAME: Final = frozenset(
    {
        "growth",
        "replicated",
        "take-over",
        "isolation",
        "horizons",
        "large",
        "huge",
        "pending",
        "retries",
        *OPERATIONS,
        *NAMED,
    }
)
"""Benchmarks that take too long to be part of all, or have their own target of make; measured once."""

ROUNDS: Final = 3
"""Every benchmark runs once a round, so that a disturbance of minutes affects only one of its figures."""

EXPECTED_ERRORS: Final = (BenchmarkFailed, DelayRouterError, KafkaException, OSError, psutil.Error)
"""Expected errors of a router or a broker; any other error is a defect of the benchmark, and ends it."""


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--quick", is_flag=True, help="Small sizes, to see that everything runs; the figures mean little.")
@click.option(
    "--records",
    type=click.IntRange(min=100_000),
    help="How many are pending in 'large', 'pending', 'cancels', 'page' (10 M), 'huge' (100 M), overdue in 'retries'.",
)
@click.option("--rounds", type=click.IntRange(min=1), help="How often all is measured: 3 times, and once with --quick.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Where the JSON goes.")
@click.option("--seed", type=int, default=None, help="Seed of the random delays; a new one by default.")
def main(
    names: tuple[str, ...],
    quick: bool,
    records: int | None,
    rounds: int | None,
    json_file: Path | None,
    seed: int | None,
) -> None:
    """Measure all benchmarks, or those NAMED, and say which goals of the design were reached.

    All are measured in rounds, after the broker has been warmed up; each row is the median, beside the spread.
    Benchmarks that the kernel speeds up are measured with it and without. Only by name, and once: large, huge, pending,
    growth, replicated, take-over, isolation, horizons, retries, operations, named schedules.

    Exits with 1 when something could not be measured, or was lost, doubled or early; a missed goal is not an error.
    """
    # A SIGTERM raises SystemExit, so that `finally` blocks run and clean up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # Without a terminal rich assumes 80 columns, which breaks the table into pieces.
    console = Console() if sys.stdout.isatty() else Console(width=120)
    seed = random.randrange(1 << 32) if seed is None else seed
    chosen = _with_needed(names or tuple(name for name in BENCHMARKS if name not in ONLY_BY_NAME))
    sizes = QUICK if quick else FULL
    if records is not None:
        sizes = replace(sizes, large_records=records, huge_records=records, page_records=records, retry_records=records)
    machine.confine()
    try:
        with cluster(jvm=BENCH_JVM) as kafka:
            facts = machine.describe(kafka.origin)
            context = Context(kafka.bootstrap, sizes, random.Random(seed), partial(_say, console))
            _warm(console, context)
            rows = middle([_round(console, chosen, context, number) for number in range(rounds or _usual(quick))])
    except KafkaUnavailable as error:
        raise click.ClickException(str(error)) from error
    table.show(console, facts, rows)
    path = json_file or _default_path()
    run = {"quick": quick, "seed": seed, "benchmarks": chosen, "records": records, "rounds": rounds or _usual(quick)}
    table.write_json(path, facts, run, rows)
    console.print(f"seed {seed}; JSON in {path}", soft_wrap=True, highlight=False)
    sys.exit(any(row.verdict == FAILED for row in rows))


def _with_needed(names: tuple[str, ...]) -> list[str]:
    needed = set(names)
    # The order of declaration puts a needed benchmark behind the ones that need it.
    for name in ("consume", "ceiling"):
        if NEEDS[name].intersection(needed):
            needed.add(name)
    return [name for name in BENCHMARKS if name in needed]


def _warm(console: Console, context: Context) -> None:
    _say(console, "warming the broker up ...")
    try:
        warm_up(context)
    except EXPECTED_ERRORS as error:
        raise click.ClickException(f"the broker could not be warmed up: {error}") from error


def _usual(quick: bool) -> int:
    return 1 if quick else ROUNDS


def _round(console: Console, chosen: list[str], context: Context, number: int) -> list[Row]:
    """Measure all benchmarks once; only the first round includes the ones that are measured once."""
    names = [name for name in chosen if number == 0 or name not in ONLY_BY_NAME]
    return [row for name in names for row in kernels.beside(name, partial(_measured, console, name, context))]


def _say(console: Console, line: str) -> None:
    console.print(f"{datetime.now(UTC):%H:%M:%S} {line}", highlight=False)


def _measured(console: Console, name: str, context: Context) -> list[Row]:
    """Run one benchmark; an error becomes a row, and the other benchmarks still run."""
    _say(console, f"measuring {name} ...")
    rows: list[Row] = []
    try:
        rows.extend(BENCHMARKS[name](context))
    except EXPECTED_ERRORS as error:
        rows.append(failed(name, error))
    return rows


def _default_path() -> Path:
    return Path(tempfile.gettempdir()) / f"delay-router-bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"


if __name__ == "__main__":
    main()
