"""``rebuild``: the command line of the job of that name."""

import click

from index.errors import ConfigError
from index.protocol.times import parse_instant_ms, parse_number
from spark_backfill.build.index_command import IndexOptions, job_options
from spark_backfill.build.scope import Asked
from spark_backfill.cli_common import say


@click.command("rebuild", short_help="Build the index again after its state was lost.")
@job_options("rebuild")
@click.option(
    "--target",
    "targets",
    multiple=True,
    help="Former target topic, which the configuration no longer allows; repeatable.",
)
@click.option(
    "--released-before",
    metavar="INSTANT",
    help="Every record due and written by then has left, even where the target topics no longer hold it; epoch "
    "milliseconds or RFC 3339.",
)
def rebuild_command(*, chosen: IndexOptions, targets: tuple[str, ...], released_before: str | None) -> None:
    """Build the index again after its state was lost, without the released and rejected records."""
    # Help and wrong usage need not wait for these to load.
    from spark_backfill.build import index_job, rebuild_job  # noqa: PLC0415

    before_ms = -1 if released_before is None else _instant(released_before)
    options = index_job.Options(
        chosen.job, chosen.bucket_records, chosen.task_records, kafka_options=chosen.kafka_options
    )
    asked = Asked(chosen.partitions)
    with chosen.spark() as spark:
        outcome = rebuild_job.rebuild(
            spark, chosen.settings, chosen.delay, asked, options, say, targets=targets, released_before_ms=before_ms
        )
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
