"""``schedule`` on the command line."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from index.errors import ConfigError
from spark_backfill import session
from spark_backfill.cli_common import FAILED, conf_option, config_option, say
from spark_backfill.formats import FormatOptions, format_options, in_a_sentence, require_here
from spark_backfill.schedule.columns import OPTIONAL, checked, parse_mapping
from spark_backfill.settings import DelayTopic, Settings, load

if TYPE_CHECKING:
    from spark_backfill.schedule.job import ScheduleReport, ScheduleRequest

_JOB: Final = re.compile(r"[a-zA-Z0-9._-]{1,64}")


@click.command("schedule", short_help="Write a table of schedules to delay topics.")
@click.argument("source", required=False)
@config_option
@click.option(
    "--job", required=True, help="Name of this import, part of every deliver-id; a second run writes no row twice."
)
@click.option("--topic", "name", help="Delay topic to write to; needed where several are configured.")
@click.option(
    "--format",
    "kind",
    default="parquet",
    show_default=True,
    metavar="NAME",
    help="A format of Spark's reader: orc, avro, csv, json, xml, delta, iceberg, jdbc, ...; table: one of its catalog.",
)
@click.option("--column", "columns", multiple=True, metavar="NAME=COLUMN", help="Column that holds due, key, ...")
@click.option("--without", multiple=True, type=click.Choice(OPTIONAL), help="The table has no such column; repeatable.")
@click.option("--id", "id_column", metavar="COLUMN", help="Column that differs in rows that are otherwise equal.")
@format_options("Spark's reader of the format", "--read-option")
@click.option("--on-invalid", type=click.Choice(["fail", "skip", "divert"]), default="fail", show_default=True)
@click.option("--divert-to", metavar="PATH", help="Place to which --on-invalid divert writes invalid rows, as Parquet.")
@click.option("--on-past", type=click.Choice(["release", "fail", "skip"]), default="release", show_default=True)
@click.option(
    "--batch",
    type=click.IntRange(1, 100_000),
    default=10_000,
    show_default=True,
    help="Rows for each transaction, which takes 0.2 s beside them.",
)
@click.option("--dry-run", is_flag=True, help="Survey the rows and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@conf_option
def schedule_command(
    *,
    source: str | None,
    config_file: Path | None,
    job: str,
    name: str | None,
    kind: str,
    columns: Sequence[str],
    without: Sequence[str],
    id_column: str | None,
    options: FormatOptions,
    on_invalid: str,
    divert_to: str | None,
    on_past: str,
    batch: int,
    dry_run: bool,
    as_json: bool,
    conf: Sequence[str],
) -> None:
    """Write a table of schedules (columns due, target, key, value, headers) to a delay topic, each row once.

    SOURCE is a path, or the name of a table with --format table, jdbc or another format that has names.
    """
    # Help and wrong usage need not wait for these to load.
    from spark_backfill.schedule.job import ScheduleRequest, schedule  # noqa: PLC0415
    from spark_backfill.schedule.source import rows, table, types  # noqa: PLC0415

    if _JOB.fullmatch(job) is None:
        raise ConfigError(f"--job {job!r}: 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'")
    if (on_invalid == "divert") != (divert_to is not None):
        raise ConfigError("--on-invalid divert and --divert-to PATH go together")
    settings = load(config_file)
    mapping = parse_mapping(columns)
    request = ScheduleRequest(
        topic=_topic(settings, name),
        job=job,
        on_invalid=on_invalid,
        on_past=on_past,
        divert_to=divert_to or "",
        batch=batch,
        dry_run=dry_run,
    )
    require_here(source, kind, conf, os.environ)
    spark = session.start(f"delay-schedule {job}", conf, say)
    frame = table(spark, source, kind, options)
    wanted = checked(types(frame), mapping, without, id_column)
    with in_a_sentence(source or "the source", kind, options):
        report = schedule(settings, request, rows(frame, wanted), say)
    if as_json:
        click.echo(json.dumps(report.as_json()))
    else:
        _print(report, request)
    if report.refused:
        say(report.refused)
        raise click.exceptions.Exit(FAILED)


def _topic(settings: Settings, name: str | None) -> DelayTopic:
    if name is not None:
        return settings.delay_topic(name)
    if len(settings.delay_topics) != 1:
        known = ", ".join(topic.name for topic in settings.delay_topics) or "none"
        raise ConfigError(f"{settings.source}: delay_topics: say which one with --topic; those are: {known}")
    return settings.delay_topics[0]


def _print(report: "ScheduleReport", request: "ScheduleRequest") -> None:
    survey = report.survey
    for reason, count in sorted(survey.reasons.items()):
        click.echo(f"invalid: {reason} {count:,}")
        for line in survey.samples.get(reason, ()):
            click.echo(f"    {line}")
    if survey.past:
        click.echo(f"past due: {survey.past:,}, --on-past {request.on_past}")
    if report.diverted_to:
        click.echo(f"invalid rows are in {report.diverted_to}")
    if report.refused or request.dry_run:
        click.echo(f"{survey.rows:,} rows, {survey.valid:,} valid; nothing was written")
        return
    rate = f"{report.written / report.seconds:,.0f}/s" if report.seconds else ""
    left_out = f", {report.left_out:,} left out" if report.left_out else ""
    before = f", {report.before:,} done before" if report.before else ""
    click.echo(f"{report.written:,} of {survey.rows:,} rows written to {request.topic.name}{left_out}{before} ({rate})")
