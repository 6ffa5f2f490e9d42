"""``audit`` on the command line."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from index.errors import ConfigError
from spark_backfill import session
from spark_backfill.audit.scope import SPLIT_RECORDS, AuditRequest, AuditSelection, Edge
from spark_backfill.audit.table import GROUPS, SAMPLES, Tally, notes, table, verdict
from spark_backfill.cli_common import FAILED, conf_option, config_option, kafka_option, say
from spark_backfill.settings import DelayTopic, Settings, load
from spark_backfill.source import connector_options

if TYPE_CHECKING:
    from spark_backfill.audit.job import Audited

_MOST_LINES: Final = 60
_WIDTH_WITHOUT_TERMINAL: Final = 200
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Duration(click.ParamType[int]):
    """A length of time as in the configuration, in ms."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read a duration; raise a usage error for anything else."""
        match = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", str(value))
        if match is None:
            self.fail(f"{value!r} is not a duration such as 500ms, 10s, 5m, 36h or 7d", param, ctx)
        return int(match[1]) * _UNITS_MS[match[2]]


@click.command("audit", short_help="Prove from the topics that each record was released once.")
@config_option
@click.option("--topic", "names", multiple=True, help="Delay topic to audit; repeatable. Default: all configured.")
@click.option("--target", "targets", multiple=True, help="Topic to look in; repeatable. Default: all that are allowed.")
@click.option("--partition", "partitions", multiple=True, type=click.IntRange(0), help="Delay partition; repeatable.")
@click.option(
    "--from", "start", metavar="WHEN", help="First record to judge: RFC 3339 with an offset, or an offset of the log."
)
@click.option("--to", "end", metavar="WHEN", help="First record not to judge, in the same form.")
@click.option(
    "--grace",
    "grace_ms",
    type=_Duration(),
    default="10s",
    show_default=True,
    help="Lateness from which a record counts as lost.",
)
@click.option(
    "--settle",
    "settle_ms",
    type=_Duration(),
    default="120s",
    show_default=True,
    help="Longest wait for open transactions.",
)
@click.option("--output", metavar="PATH", help="Write summary and findings there as Parquet; must not exist yet.")
@click.option(
    "--by",
    type=click.Choice(sorted(GROUPS)),
    default="partition",
    show_default=True,
    help="One line for each of these.",
)
@click.option(
    "--split-records", type=click.IntRange(1), default=SPLIT_RECORDS, show_default=True, help="Offsets for each task."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@conf_option
@kafka_option
def audit_command(
    *,
    config_file: Path | None,
    names: Sequence[str],
    targets: Sequence[str],
    partitions: Sequence[int],
    start: str | None,
    end: str | None,
    grace_ms: int,
    settle_ms: int,
    output: str | None,
    by: str,
    split_records: int,
    as_json: bool,
    conf: Sequence[str],
    kafka_options: Sequence[str],
) -> None:
    """Prove from the topics alone that every record was released once, on time and unchanged.

    Exit code 1 when anything is lost, doubled, early, altered, astray or foreign.
    """
    from spark_backfill.audit.job import audit, pin  # noqa: PLC0415 -- help and wrong usage need not wait for it to load

    settings = load(config_file)
    options = connector_options(settings.kafka, kafka_options)
    request = AuditRequest(
        topics=_topics(settings, names),
        selection=AuditSelection(frozenset(partitions), edge(start, "--from"), edge(end, "--to")),
        targets=tuple(targets),
        grace_ms=grace_ms,
        settle_s=settle_ms / 1000,
        split_records=split_records,
    )
    pinned = pin(settings, request)
    spark = session.start("delay-audit", conf, say)
    with audit(spark, settings, options, pinned, say) as audited:
        if output is not None:
            audited.write(output)
        total = audited.total()
        if as_json:
            _print_json(audited, total, by)
        else:
            _print_table(audited, total, by)
    if total.violations:
        raise click.exceptions.Exit(FAILED)


def edge(text: str | None, option: str) -> Edge | None:
    """Read ``--from`` or ``--to``: digits are an offset, the rest an instant; raise ConfigError if it is neither."""
    if text is None:
        return None
    if text.isascii() and text.isdigit():
        return Edge(offset=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = datetime.min  # noqa: DTZ901 -- has no offset either, and gets the same answer
    if moment.tzinfo is None:
        raise ConfigError(
            f"{option} {text!r}: an instant with its offset from UTC, such as 2030-01-31T08:00:00Z, or an offset of the"
            " log, in digits"
        )
    return Edge(time_ms=max(0, (moment - _EPOCH) // timedelta(milliseconds=1)))


def _topics(settings: Settings, names: Sequence[str]) -> tuple[DelayTopic, ...]:
    chosen = tuple(settings.delay_topic(name) for name in dict.fromkeys(names)) or settings.delay_topics
    if not chosen:
        raise ConfigError(f"{settings.source}: delay_topics: there is none to audit")
    return chosen


def _print_json(audited: "Audited", total: Tally, by: str) -> None:
    plain = {
        "ok": not total.violations,
        "total": total.as_json(),
        by: [each.as_json() for each in audited.by(GROUPS[by])],
        "samples": audited.samples() if total.violations else [],
    }
    click.echo(json.dumps(plain))


def _print_table(audited: "Audited", total: Tally, by: str) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    lines = audited.by(GROUPS[by])
    if len(lines) > _MOST_LINES:
        say(f"{len(lines):,} lines by {by}: only the first {_MOST_LINES} are shown; --output has all")
    console.print(table(lines[:_MOST_LINES], total))
    for note in notes(total):
        console.print(f"  {note}", style="dim", highlight=False)
    if total.violations:
        for sample in audited.samples(SAMPLES):
            console.print(f"  {_line(sample)}", highlight=False, markup=False)
    console.print(verdict(total), style="bold red" if total.violations else "bold green", highlight=False)


def _line(sample: dict[str, Any]) -> str:
    aside = [name for name in ("early", "altered", "astray") if sample[name]]
    what = ", ".join([sample["outcome"], *aside])
    times = f"due {sample['due_ms']}, appended {sample['first_append_ms']}"
    found = ", ".join(f"{sample[name]} {name}" for name in ("copies", "rejections", "receipts"))
    return f"{sample['source']}: {what}; {found}, {times}"
