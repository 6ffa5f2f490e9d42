"""``index``: the command line of the job of that name."""

from pathlib import Path

import click

from index.errors import ConfigError, FormatError
from snapshots.staged import intent_key
from spark_backfill import session, settings
from spark_backfill.build.scope import Asked
from spark_backfill.cli_common import Command, conf_option, config_option, kafka_option, say


def topic_options(command: Command) -> Command:
    """``--topic`` and ``--partition``."""
    for option in (
        click.option(
            "--partition",
            "partitions",
            multiple=True,
            type=click.IntRange(0),
            help="Only this one; repeatable; default: all.",
        ),
        click.option("--topic", required=True, help="The delay topic."),
    ):
        command = option(command)
    return command


def tuning_options(command: Command) -> Command:
    """``--bucket-records`` and ``--task-records``."""
    for option in (
        click.option(
            "--task-records",
            type=click.IntRange(1_000),
            default=250_000,
            show_default=True,
            help="About how many records one task reads, or sorts and encodes.",
        ),
        click.option(
            "--bucket-records",
            type=click.IntRange(1_000, 20_000_000),
            default=5_000_000,
            show_default=True,
            help="Most offsets in one bucket; the router adopts a bucket as a whole.",
        ),
    ):
        command = option(command)
    return command


@click.command("index")
@config_option
@conf_option
@kafka_option
@topic_options
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="First offset to index; default: the router's cursor, or the start of the log.",
)
@click.option(
    "--to", "ends", multiple=True, metavar="PARTITION=OFFSET", help="Offset behind the last one; default: end of log."
)
@click.option("--job", default="index", show_default=True, help="Name of the job; a rerun under it takes its place.")
@tuning_options
def index_command(
    *,
    config_file: Path | None,
    conf: tuple[str, ...],
    kafka_options: tuple[str, ...],
    topic: str,
    partitions: tuple[int, ...],
    starts: tuple[str, ...],
    ends: tuple[str, ...],
    job: str,
    bucket_records: int,
    task_records: int,
) -> None:
    """Build the index of a delay topic in bulk and hand it to the router, which may be running."""
    from spark_backfill.build import index_job  # noqa: PLC0415 -- help and wrong usage need not wait for it to load

    configured = settings.load(config_file)
    delay = configured.delay_topic(topic)
    asked = Asked(partitions, by_partition("--from", starts), by_partition("--to", ends))
    options = index_job.Options(job_name(job), bucket_records, task_records, kafka_options)
    spark = session.start(f"delay-router {job} {topic}", conf, say)
    try:
        outcome = index_job.index(spark, configured, delay, asked, options, say)
    finally:
        spark.stop()
    click.echo(
        f"staged {outcome.entries:,} entries in {outcome.buckets:,} buckets, {outcome.segments:,} segments,"
        f" {outcome.bytes:,} bytes"
    )


def by_partition(option: str, given: tuple[str, ...]) -> dict[int, int]:
    """PARTITION=OFFSET as numbers; ConfigError for anything else."""
    found = {}
    for each in given:
        partition, _, offset = each.partition("=")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise ConfigError(f"{option} {each!r}: written PARTITION=OFFSET, as in 0=1000")
        found[int(partition)] = int(offset)
    return found


def job_name(name: str) -> str:
    """A name that may stand in keys; ConfigError for any other."""
    try:
        intent_key(name)
    except FormatError as error:
        raise ConfigError(f"--job: {error}") from None
    return name
