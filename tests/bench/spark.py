"""Measures the Spark jobs at growing sizes, and the adoption by the router: ``python -m tests.bench.spark [NAMES]``.

``index`` is compared with the router's own index and seal in the same run; ``adoption`` and ``audit`` have absolute
limits.
"""

import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import psutil
from confluent_kafka import KafkaException
from rich.console import Console

from index.errors import DelayRouterError
from sidecar.dev.local_kafka import BENCH_JVM, KafkaUnavailable, cluster
from tests.bench import adoption, child, machine, router, scatter, spark_audit, table, workload
from tests.bench.ceiling import raw_consume
from tests.bench.context import FULL, Context
from tests.bench.context import QUICK as SMALL
from tests.bench.results import FAILED, MIB, BenchmarkFailed, Row, at_least, failed
from tests.bench.sealed import index_and_seal

SIZES: Final = (1_000_000, 2_000_000, 5_000_000)
QUICK: Final = (100_000,)
ADOPTED: Final = (adoption.GOAL_RECORDS,)
ADOPTED_QUICK: Final = (500_000,)
CORES: Final = 2
TIMEOUT_S: Final = 900.0

EXPECTED_ERRORS: Final = (BenchmarkFailed, DelayRouterError, KafkaException, OSError, psutil.Error)
"""Expected errors of a job or a broker; any other error is a defect of the benchmark, and ends it."""


def index(context: Context, sizes: Iterable[int]) -> Iterator[Row]:
    """Measure the router once and the job at each size, with the rate per core."""
    # The router's own row is a ratio to the raw loop.
    yield from raw_consume(context)
    (own,) = index_and_seal(context)
    yield own
    for count in sizes:
        context.say(f"measuring index of {count:,} records ...")
        yield _indexed(context, count, own.value)


BENCHMARKS: Final[dict[str, Callable[[Context, Iterable[int]], Iterator[Row]]]] = {
    "index": index,
    "adoption": adoption.run,
    "audit": spark_audit.run,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(BENCHMARKS)))
@click.option("--records", "sizes", multiple=True, type=click.IntRange(10_000), help="How many; repeatable.")
@click.option("--quick", is_flag=True, help="One small size, to see that everything runs; the figures mean little.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write a report there.")
@click.option("--seed", type=int, default=None, help="Seed of the random delays; a new one by default.")
def main(names: tuple[str, ...], sizes: tuple[int, ...], quick: bool, json_file: Path | None, seed: int | None) -> None:
    """Measure all of it, or what is NAMED, and say which goals were reached.

    Exits with 1 when something could not be measured or came out wrong; a missed goal is not an error.
    """
    console = Console() if sys.stdout.isatty() else Console(width=120)
    seed = random.randrange(1 << 32) if seed is None else seed
    chosen = [name for name in BENCHMARKS if not names or name in names]
    machine.confine()
    try:
        with cluster(jvm=BENCH_JVM) as kafka:
            facts = machine.describe(kafka.origin)
            context = Context(kafka.bootstrap, FULL, random.Random(seed), partial(_say, console))
            rows = [row for name in chosen for row in _measured(context, name, sizes or _usual(name, quick=quick))]
    except KafkaUnavailable as error:
        raise click.ClickException(str(error)) from error
    table.show(console, facts, rows)
    if json_file is not None:
        table.write_json(json_file, facts, {"quick": quick, "seed": seed, "benchmarks": chosen}, rows)
    console.print(f"seed {seed}", highlight=False)
    sys.exit(any(row.verdict == FAILED for row in rows))


def _usual(name: str, *, quick: bool) -> Sequence[int]:
    """Return the numbers of records to measure by default."""
    if name == "adoption":
        return ADOPTED_QUICK if quick else ADOPTED
    return QUICK if quick else SIZES


def _measured(context: Context, name: str, sizes: Sequence[int]) -> list[Row]:
    """Run one benchmark; an error becomes a row, and the other benchmarks still run."""
    # A router with less than a bucket or two seals by age, which distorts its rate.
    sealed = max(min(*sizes, FULL.sealed_records), SMALL.sealed_records)
    own = replace(context, sizes=replace(FULL, sealed_records=sealed))
    rows: list[Row] = []
    try:
        for row in BENCHMARKS[name](own, sizes):
            rows.append(row)
            # Sooner than the table, which comes after all measurements.
            own.say(f"{row.benchmark}, {row.name}: {row.value:,.2f} {row.unit}; {row.detail}")
    except EXPECTED_ERRORS as error:
        rows.append(failed(name, error))
    return rows


def _indexed(context: Context, count: int, own_per_s: float) -> Row:
    with router.prepared(context.bootstrap) as made:
        first_ms = workload.now_ms() + scatter.HOUR_MS
        scatter.write(context, made, scatter.due_times(context, count, first_ms, scatter.HOUR_MS))
        arguments = {"config": str(made.process.config), "topic": made.delay_topic}
        told = child.run("tests.bench.spark_job", TIMEOUT_S, **arguments)
    if told["entries"] != count:
        raise BenchmarkFailed(f"{told['entries']:,} entries were staged of {count:,} records")
    a_core_per_s = count / told["elapsed_s"] / CORES
    return Row(
        "spark index",
        f"{count:,} scattered, staged, a core of {CORES}",
        a_core_per_s,
        "records/s",
        a_core_per_s / own_per_s,
        "router's index and seal",
        at_least(0.5),
        _text(told),
    )


def _text(told: dict[str, Any]) -> str:
    memory = {name: told[f"{name}_bytes"] / MIB for name in ("driver", "jvm", "workers")}
    jvm_us, workers_us = (told[f"{name}_cpu_s"] / told["entries"] * 1e6 for name in ("jvm", "workers"))
    return (
        f"{told['elapsed_s']:.1f} s, {jvm_us + workers_us:.1f} us of CPU an entry ({jvm_us:.1f} the JVM's,"
        f" {workers_us:.1f} the workers'), kernel {told['kernel']}, {told['segments']:,} segments,"
        f" {told['bytes'] / told['entries']:.0f} B an entry;"
        f" most memory in MiB: driver's Python {memory['driver']:.0f}, JVM (driver and executor, heap 1 GiB)"
        f" {memory['jvm']:.0f}, Python workers {memory['workers']:.0f}"
    )


def _say(console: Console, line: str) -> None:
    console.print(f"{datetime.now(UTC):%H:%M:%S} {line}", highlight=False)


if __name__ == "__main__":
    main()
