"""``rebuild``: the command line of the job of that name."""

import click

from index.errors import ConfigError
from index.protocol.times import parse_instant_ms, parse_number, parse_written_duration_ms
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
@click.option(
    "--settle",
    metavar="DURATION",
    default="120s",
    show_default=True,
    help="Longest wait for open transactions on target, rejected and receipts topics.",
)
def rebuild_command(
    *, chosen: IndexOptions, targets: tuple[str, ...], released_before: str | None, settle: str
) -> None:
    """Build the index again after its state was lost, without the released and rejected records."""
    # Help and wrong usage need not wait for these to load.
    from spark_backfill.build import index_job, rebuild_job  # noqa: PLC0415

    before_ms = -1 if released_before is None else _instant(released_before)
    settle_s = _seconds(settle)
    options = index_job.Options(
        chosen.job, chosen.bucket_records, chosen.task_records, kafka_options=chosen.kafka_options
    )
    asked = Asked(chosen.partitions)
    with chosen.spark() as spark:
        outcome = rebuild_job.rebuild(
            spark,
            chosen.settings,
            chosen.delay,
            asked,
            options,
            say,
            targets=targets,
            released_before_ms=before_ms,
            settle_s=settle_s,
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


def _seconds(text: str) -> float:
    try:
        return parse_written_duration_ms(text.encode("utf-8", "replace")) / 1000
    except ValueError as error:
        raise ConfigError(f"--settle {text!r}: {error}") from None
