"""``export`` on the command line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_backfill import session
from spark_backfill.cli_common import conf_option, config_option, kafka_option, say
from spark_backfill.formats import FormatOptions, format_options, in_a_sentence
from spark_backfill.settings import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_backfill.export.job import ExportOutcome


@click.command("export", short_help="Write the pending records of a delay topic as a table.")
@click.argument("output", required=False)
@config_option
@click.option("--topic", "name", required=True, help="The delay topic.")
@click.option(
    "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Only this one; repeatable; default: all."
)
@click.option(
    "--format",
    "kind",
    default="parquet",
    show_default=True,
    metavar="NAME",
    help="A format of Spark's writer: orc, avro, csv, json, delta, iceberg, jdbc, ...; table: one of its catalog.",
)
@format_options("Spark's writer of the format")
@click.option(
    "--mode",
    type=click.Choice(["error", "overwrite", "append"]),
    default="error",
    show_default=True,
    help="Action where the output already exists.",
)
@click.option(
    "--with", "more", multiple=True, type=click.Choice(["value", "headers"]), help="Write this column, too; repeatable."
)
@click.option(
    "--task-records",
    type=click.IntRange(1_000),
    default=250_000,
    show_default=True,
    help="Approximate number of records for each task.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@conf_option
@kafka_option
def export_command(
    *,
    output: str | None,
    config_file: Path | None,
    name: str,
    partitions: Sequence[int],
    kind: str,
    options: FormatOptions,
    mode: str,
    more: Sequence[str],
    task_records: int,
    as_json: bool,
    conf: Sequence[str],
    kafka_options: Sequence[str],
) -> None:
    """Write the pending records of a delay topic as a table, as of one moment; routers may be running.

    OUTPUT is a path, or the name of a table with --format table, jdbc or another format that has names.
    """
    # Help and wrong usage need not wait for these to load.
    from spark_backfill.export import table  # noqa: PLC0415
    from spark_backfill.export.frame import ExportRequest  # noqa: PLC0415
    from spark_backfill.export.job import export  # noqa: PLC0415
    from spark_backfill.export.rows import OptionalColumns  # noqa: PLC0415

    settings = load(config_file)
    topic = settings.delay_topic(name)
    wanted = OptionalColumns("value" in more, "headers" in more)
    table.check(output, kind, options)
    spark = session.start(f"delay-router export {name}", conf, say)
    options.redact(spark)

    def write(rows: "DataFrame", again: bool) -> None:
        shaped = table.shaped(rows, name, kind, wanted)
        table.save(shaped, output, kind, options, table.mode_again(kind, mode) if again else mode)

    request = ExportRequest(tuple(partitions), wanted, task_records, tuple(kafka_options))
    with in_a_sentence(output or "the table", kind, options):
        outcome = export(spark, settings, topic, request, write, say)
    click.echo(json.dumps(outcome.as_json()) if as_json else _in_words(outcome))
    if gone := outcome.rows["gone"]:
        say(f"{gone:,} rows are of records that the delay topic does not have any more: released since, or lost")
    if outcome.controls:
        say(f"{outcome.controls:,} controls are not indexed yet: schedules that they cancel or move are in the table")


def _in_words(outcome: "ExportOutcome") -> str:
    total = sum(outcome.rows.values())
    parts = ", ".join(f"{count:,} {state.replace('_', ' ')}" for state, count in outcome.rows.items() if count)
    return f"{total:,} pending{f': {parts}' if parts else ''}"
