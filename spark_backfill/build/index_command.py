"""``index``: the command line of the job of that name."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from index.errors import ConfigError, FormatError
from snapshots.state.staged import intent_key
from spark_backfill import session, settings
from spark_backfill.build.scope import Asked
from spark_backfill.cli_common import Command, conf_option, config_option, kafka_option, say
from spark_backfill.settings import DelayTopic, Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class IndexOptions(NamedTuple):
    """The values of the options that both jobs have."""

    settings: Settings
    delay: DelayTopic
    partitions: tuple[int, ...]
    job: str
    bucket_records: int
    task_records: int
    kafka_options: tuple[str, ...]
    conf: tuple[str, ...]

    @contextmanager
    def spark(self) -> Iterator["SparkSession"]:
        """Start a Spark session that has the name of the job."""
        spark = session.start(f"delay-router {self.job} {self.delay.name}", self.conf, say)
        try:
            yield spark
        finally:
            spark.stop()


def job_options(default_job: str) -> Callable[[Command], Command]:
    """Add the options that both jobs have, as the argument ``chosen``."""
    options = (
        config_option,
        conf_option,
        kafka_option,
        click.option("--topic", required=True, help="The delay topic."),
        click.option(
            "--partition",
            "partitions",
            multiple=True,
            type=click.IntRange(0),
            help="Only this one; repeatable; default: all.",
        ),
        click.option(
            "--job",
            default=default_job,
            show_default=True,
            help="Name of the job; a run under the same name replaces it.",
        ),
        click.option(
            "--bucket-records",
            type=click.IntRange(1_000, 20_000_000),
            default=5_000_000,
            show_default=True,
            help="Most offsets in one bucket; the router adopts a bucket as a whole.",
        ),
        click.option(
            "--task-records",
            type=click.IntRange(1_000),
            default=250_000,
            show_default=True,
            help="Approximate number of records that one task reads, or sorts and encodes.",
        ),
    )

    def with_options(command: Command) -> Any:
        @wraps(command)
        def joined(
            *,
            config_file: Path | None,
            conf: tuple[str, ...],
            kafka_options: tuple[str, ...],
            topic: str,
            partitions: tuple[int, ...],
            job: str,
            bucket_records: int,
            task_records: int,
            **others: Any,
        ) -> object:
            configured = settings.load(config_file)
            chosen = IndexOptions(
                configured,
                configured.delay_topic(topic),
                partitions,
                job_name(job),
                bucket_records,
                task_records,
                kafka_options,
                conf,
            )
            return command(chosen=chosen, **others)

        for option in reversed(options):
            joined = option(joined)
        return joined

    return with_options


@click.command("index", short_help="Build the index of a delay topic in bulk.")
@job_options("index")
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="First offset to index; default: the router's cursor, or the start of the log.",
)
@click.option(
    "--to",
    "ends",
    multiple=True,
    metavar="PARTITION=OFFSET",
    help="Offset after the last one to index; default: the end of the log.",
)
def index_command(*, chosen: IndexOptions, starts: tuple[str, ...], ends: tuple[str, ...]) -> None:
    """Build the index of a delay topic in bulk and hand it to the router, which may be running."""
    from spark_backfill.build import index_job  # noqa: PLC0415 -- help and wrong usage need not wait for it to load

    asked = Asked(chosen.partitions, by_partition("--from", starts), by_partition("--to", ends))
    options = index_job.Options(
        chosen.job, chosen.bucket_records, chosen.task_records, kafka_options=chosen.kafka_options
    )
    with chosen.spark() as spark:
        outcome = index_job.index(spark, chosen.settings, chosen.delay, asked, options, say)
    click.echo(
        f"staged {outcome.entries:,} entries in {outcome.buckets:,} buckets, {outcome.segments:,} segments,"
        f" {outcome.bytes:,} bytes"
    )


def by_partition(option: str, given: tuple[str, ...]) -> dict[int, int]:
    """Read PARTITION=OFFSET as numbers; raise ConfigError for anything else."""
    found = {}
    for each in given:
        partition, _, offset = each.partition("=")
        if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
            raise ConfigError(f"{option} {each!r}: written PARTITION=OFFSET, as in 0=1000")
        found[int(partition)] = int(offset)
    return found


def job_name(name: str) -> str:
    """Return the name if it may stand in keys; raise ConfigError for any other."""
    try:
        intent_key(name)
    except FormatError as error:
        raise ConfigError(f"--job: {error}") from None
    return name
