"""The commands ``rejected list`` and ``rejected redrive``."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from index.protocol.times import parse_number
from sidecar.cli.options import Instant, examples, headers_given, json_option
from sidecar.cli.output import print_entries, print_json, print_sentence, shown_time
from sidecar.cli.side import SideOptions, side_options, topic_argument

if TYPE_CHECKING:
    from sidecar.operations.rejected.redriving import RedriveReport
    from sidecar.operations.rejected.selection import RejectedSelection

SHOWN: Final = 100
_MESSAGE_CHARACTERS: Final = 100


class PositionOption(click.ParamType[tuple[int, int], Any]):
    """A position in the rejected topic, given as PARTITION/OFFSET."""

    name = "PARTITION/OFFSET"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Return partition and offset."""
        partition, _, offset = str(value).partition("/")
        try:
            return parse_number(partition.encode()), parse_number(offset.encode())
        except ValueError:
            self.fail(f"{value!r}: write PARTITION/OFFSET, as the page before it ends", param, ctx)


def _selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select rejected records."""
    for option in (
        click.option("--until", "until_ms", type=Instant(), help="Rejected before this instant."),
        click.option("--since", "since_ms", type=Instant(), help="Rejected at this instant or later: RFC 3339 or ms."),
        click.option("--id", "ids", multiple=True, metavar="ID", help="With this deliver-id; repeatable."),
        click.option("--code", "codes", multiple=True, metavar="CODE", help="Rejected for this reason; repeatable."),
    ):
        command = option(command)
    return command


def _selection(
    topic: str, codes: tuple[str, ...], ids: tuple[str, ...], since_ms: int | None, until_ms: int | None
) -> "RejectedSelection":
    from sidecar.operations.rejected.selection import RejectedSelection  # noqa: PLC0415 - the help needs no Kafka client

    return RejectedSelection(topic, frozenset(codes), frozenset(each.encode() for each in ids), since_ms, until_ms)


@click.group("rejected")
def rejected_group() -> None:
    """Show rejected records, and drive them again."""


@rejected_group.command("list")
@topic_argument()
@json_option
@_selecting
@side_options
@click.option("--limit", type=click.IntRange(1, 10_000), default=SHOWN, show_default=True, help="Records at most.")
@click.option("--from", "begin", type=PositionOption(), default="0/0", help="Where the page before ended.")
def list_command(
    topic: str,
    *,
    as_json: bool,
    chosen: SideOptions,
    codes: tuple[str, ...],
    ids: tuple[str, ...],
    since_ms: int | None,
    until_ms: int | None,
    limit: int,
    begin: tuple[int, int],
) -> None:
    """Show rejected records of a delay TOPIC, without key and value."""
    selection = _selection(topic, codes, ids, since_ms, until_ms)
    with chosen as operations:
        page = operations.rejected(selection, begin, limit)
    if as_json:
        print_json(page)
        return
    if not page["records"]:
        click.echo("No rejected record.")
    print_entries(map(_entry, page["records"]))
    if page["next_from"] is not None:
        click.echo(f"There may be more: --from {page['next_from']}")


def _entry(record: dict[str, Any]) -> tuple[str, str]:
    """Return position, time and code of a rejected record as its head, and its other facts as its text."""
    head = f"{record['partition']}/{record['offset']}  {shown_time(record['rejected_ms'])}  {record['code']}"
    driven = {True: "driven again", False: "", None: "not known whether driven again"}[record["is_redriven"]]
    before = f"driven {record['redriven_before']} times before" if record["redriven_before"] else ""
    named = f"id {record['id']}" if record["id"] else ""
    message = record["message"][:_MESSAGE_CHARACTERS]
    parts = (f"from {record['source']}", named, message, driven, before, record["obstacle"])
    return head, "; ".join(part for part in parts if part)


@rejected_group.command(
    "redrive",
    short_help="Copy rejected records back, each exactly once.",
    epilog=examples(
        "rejected redrive orders.delay --code TARGET_UNKNOWN --dry-run",
        "rejected redrive orders.delay --id order-42 --set-header deliver-to=orders",
    ),
)
@topic_argument()
@json_option
@_selecting
@side_options
@click.option(
    "--set-header",
    "put",
    multiple=True,
    callback=headers_given,
    metavar="NAME=VALUE",
    help="Set this header in place of the record's own.",
)
@click.option("--drop-header", "drop", multiple=True, metavar="NAME", help="Leave this header out.")
@click.option("--most", type=click.IntRange(min=1), help="Most records to drive; the others wait.")
@click.option(
    "--max-redriven",
    type=click.IntRange(1, 1_000),
    default=3,
    show_default=True,
    help="Leave records that were driven so often already.",
)
@click.option("--dry-run", is_flag=True, help="Only count; changes nothing.")
def redrive_command(
    topic: str,
    *,
    as_json: bool,
    chosen: SideOptions,
    codes: tuple[str, ...],
    ids: tuple[str, ...],
    since_ms: int | None,
    until_ms: int | None,
    put: tuple[tuple[str, bytes], ...],
    drop: tuple[str, ...],
    most: int | None,
    max_redriven: int,
    dry_run: bool,
) -> None:
    """Copy rejected records back into their delay TOPIC, each exactly once; safe to repeat."""
    # The help and a completion need no Kafka client.
    from sidecar.operations.rejected.redriving import Redrive  # noqa: PLC0415
    from sidecar.operations.rejected.selection import HeaderChanges  # noqa: PLC0415

    selection = _selection(topic, codes, ids, since_ms, until_ms)
    order = Redrive(selection, HeaderChanges(drop, put), max_redriven, most, dry_run)
    with chosen as operations:
        report = operations.redrive(order, _show_progress)
    if as_json:
        print_json({**report, "dry_run": dry_run})
        return
    done = f"{report['to_drive']:,} would be driven" if dry_run else f"{report['driven']:,} driven"
    print_sentence(
        f"{topic}: {report['selected']:,} rejected records selected: {done},"
        f" {report['already_redriven']:,} driven before, {report['over_limit']:,} driven {max_redriven} times already,"
        f" {report['not_whole']:,} not whole"
    )
    stay = report["already_redriven"] + report["over_limit"] + report["not_whole"]
    if not dry_run and most is None and (left := report["selected"] - stay - report["driven"]):
        print_sentence(f"{left:,} are left for the next run: one call of the admin API drives so many; repeat it")


def _show_progress(report: "RedriveReport") -> None:
    if report.to_drive:
        click.echo(f"{report.driven:,} of {report.to_drive:,}", err=True)
