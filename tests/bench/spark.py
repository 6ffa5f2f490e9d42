"""Spark's ``index`` job against the router's own index and seal, at growing sizes: ``python -m tests.bench.spark``."""

import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import click
from confluent_kafka.admin import AdminClient
from rich.console import Console

from sidecar.local_kafka import BENCH_JVM, KafkaUnavailable, cluster
from tests.bench import child, machine, router, scatter, table, workload
from tests.bench.ceiling import raw_consume
from tests.bench.context import FULL, Context
from tests.bench.results import BenchmarkFailed, Row, at_least
from tests.bench.sealed import index_and_seal
from tests.topics import create_topic

SIZES: Final = (1_000_000, 2_000_000, 5_000_000)
CORES: Final = 2
TIMEOUT_S: Final = 900.0
MIB: Final = 1 << 20


@click.command()
@click.option("--records", "sizes", multiple=True, type=click.IntRange(10_000), help="How many; repeatable.")
@click.option("--seed", type=int, default=None, help="Seed of the random delays; a new one by default.")
def main(sizes: tuple[int, ...], seed: int | None) -> None:
    """Measure the router once and the job at each size, and say what a core does."""
    console = Console() if sys.stdout.isatty() else Console(width=120)
    seed = random.randrange(1 << 32) if seed is None else seed
    machine.confine()
    try:
        with cluster(jvm=BENCH_JVM) as kafka:
            facts = machine.describe(kafka.origin)
            smallest = min(sizes or SIZES)
            measured = replace(FULL, sealed_records=min(smallest, FULL.sealed_records))
            context = Context(kafka.bootstrap, measured, random.Random(seed), partial(_say, console))
            rows = list(_rows(context, sizes or SIZES))
    except KafkaUnavailable as error:
        raise click.ClickException(str(error)) from error
    table.show(console, facts, rows)
    console.print(f"seed {seed}", highlight=False)


def _rows(context: Context, sizes: tuple[int, ...]) -> Iterator[Row]:
    # The router's own row is a ratio to the raw loop.
    yield from raw_consume(context)
    (own,) = index_and_seal(context)
    yield own
    for count in sizes:
        context.say(f"measuring index of {count:,} records ...")
        yield _indexed(context, count, own.value)


def _indexed(context: Context, count: int, own_per_s: float) -> Row:
    with router.prepared(context.bootstrap) as made:
        _ensure_backfill_topic(context.bootstrap, made.delay_topic)
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
    return (
        f"{told['elapsed_s']:.1f} s, {told['segments']:,} segments, {told['bytes'] / told['entries']:.0f} B an entry;"
        f" most memory in MiB: driver's Python {memory['driver']:.0f}, JVM (driver and executor, heap 1 GiB)"
        f" {memory['jvm']:.0f}, Python workers {memory['workers']:.0f}"
    )


def _ensure_backfill_topic(bootstrap: str, delay_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    name = f"{delay_topic}.delay-backfill"
    if name not in admin.list_topics(timeout=workload.REQUEST_TIMEOUT_S).topics:
        create_topic(admin, name, config={"cleanup.policy": "compact"})


def _say(console: Console, line: str) -> None:
    console.print(f"{datetime.now(UTC):%H:%M:%S} {line}", highlight=False)


if __name__ == "__main__":
    main()
