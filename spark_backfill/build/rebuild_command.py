"""``rebuild``: the command line of the job of that name."""

from pathlib import Path

import click

from index.errors import ConfigError
from index.times import parse_instant_ms, parse_number
from spark_backfill import session, settings
from spark_backfill.build.index_command import job_name, topic_options, tuning_options
from spark_backfill.build.scope import Asked
from spark_backfill.cli_common import conf_option, config_option, kafka_option, say


@click.command("rebuild")
@config_option
@conf_option
@kafka_option
@topic_options
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="A topic that records were released to and that the configuration no longer allows; repeatable.",
)
@click.option(
    "--released-before",
    metavar="INSTANT",
    help="Everything due and written by then has left, also where the target topics no longer hold it; epoch "
    "milliseconds or RFC 3339.",
)
@click.option("--job", default="rebuild", show_default=True, help="Name of the job; a rerun under it takes its place.")
@tuning_options
def rebuild_command(
    *,
    config_file: Path | None,
    conf: tuple[str, ...],
    kafka_options: tuple[str, ...],
    topic: str,
    partitions: tuple[int, ...],
    targets: tuple[str, ...],
    released_before: str | None,
    job: str,
    bucket_records: int,
    task_records: int,
) -> None:
    """Build the index again after its state was lost, leaving out what was released or rejected."""
    # Help and wrong usage need not wait for these to load.
    from spark_backfill.build import index_job, rebuild_job  # noqa: PLC0415

    configured = settings.load(config_file)
    delay = configured.delay_topic(topic)
    before_ms = -1 if released_before is None else _instant(released_before)
    options = index_job.Options(job_name(job), bucket_records, task_records, kafka_options)
    spark = session.start(f"delay-router {job} {topic}", conf, say)
    try:
        outcome = rebuild_job.rebuild(
            spark, configured, delay, Asked(partitions), options, say, targets=targets, released_before_ms=before_ms
        )
    finally:
        spark.stop()
    click.echo(
        f"staged {outcome.entries:,} pending entries in {outcome.buckets:,} buckets; the router takes them when it"
        " starts"
    )


def _instant(text: str) -> int:
    raw = text.encode("utf-8", "replace")
    try:
        return parse_number(raw) if text.isdigit() else parse_instant_ms(raw)
    except ValueError as error:
        raise ConfigError(f"--released-before {text!r}: {error}") from None
