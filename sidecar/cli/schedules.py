"""The commands ``schedules``, ``cancel`` and ``move``: list pending schedules, cancel them, and change due times."""

from typing import TYPE_CHECKING, Any, Final

import click

from index.protocol.where import parse_where
from sidecar.cli.options import Command, Instant, examples, json_option
from sidecar.cli.output import print_json, print_table, shown_time
from sidecar.cli.side import Desk, SideOptions, side_options, topic_argument

if TYPE_CHECKING:
    from sidecar.operations.controls.orders import QueryOrder, ReceiptAnswer
    from sidecar.operations.finding.wanted import ScheduleFilter
    from sidecar.operations.status.answers import ScheduleAnswer

SHOWN: Final = 100
AT_ONCE: Final = 500
"""Most schedules that one call of the admin API lists."""


@click.command(
    "schedules",
    epilog=examples(
        "schedules orders.delay --id order-42",
        "schedules orders.delay --due-to 2030-01-31T08:00:00Z --target billing",
    ),
)
@topic_argument()
@json_option
@click.option("--id", "deliver_id", metavar="ID", help="With this deliver-id.")
@click.option("--due-from", "due_from_ms", type=Instant(), help="Due at this instant or later: RFC 3339 or ms.")
@click.option("--due-to", "due_to_ms", type=Instant(), help="Due before this instant.")
@click.option("--target", default="", metavar="TOPIC", help="To this target topic.")
@click.option("--key", metavar="KEY", help="With this key; by --api: only with a +payload token.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=SHOWN, show_default=True, help="Schedules at most.")
@click.option("--from", "begin", default="", metavar="PLACE", help="Where the listing before ended.")
@side_options
def schedules_command(
    topic: str,
    *,
    as_json: bool,
    deliver_id: str | None,
    due_from_ms: int | None,
    due_to_ms: int | None,
    target: str,
    key: str | None,
    limit: int,
    begin: str,
    chosen: SideOptions,
) -> None:
    """List the pending schedules of a delay TOPIC, without values; keys, where they may be seen, with --json."""
    from sidecar.operations.finding.wanted import ScheduleFilter  # noqa: PLC0415 - the help needs no Kafka client

    raw_id, raw_key = (None if given is None else given.encode() for given in (deliver_id, key))
    wanted = ScheduleFilter(topic, raw_id, due_from_ms, due_to_ms, target, raw_key)
    with chosen as operations:
        found, next_from = _found(operations, wanted, begin, limit)
    if as_json:
        print_json({"topic": topic, "schedules": [each.model_dump() for each in found], "next_from": next_from})
        return
    if found:
        print_table(("at", "due", "to", "id", "series"), map(_row, found), folding=("to", "id", "series"))
    else:
        click.echo("No such schedule is pending.")
    if next_from is not None:
        click.echo(f"There may be more: --from {next_from}")


def _found(
    operations: Desk, wanted: "ScheduleFilter", begin: str, limit: int
) -> "tuple[list[ScheduleAnswer], str | None]":
    """Return the schedules up to the limit, and the place where the next listing may begin.

    A page that finds little may end before it is full.
    """
    found: list[ScheduleAnswer] = []
    next_from: str | None = begin
    while next_from is not None and len(found) < limit:
        page = operations.schedules(wanted, next_from, min(limit - len(found), AT_ONCE))
        found += page.schedules
        next_from = page.next_from
        if next_from is not None and len(found) < limit:
            click.echo(f"{len(found):,} found so far, looking on from {next_from}", err=True)
    return sorted(found, key=lambda each: (each.due_ms, each.partition, each.offset)), next_from


def _row(each: "ScheduleAnswer") -> tuple[str, ...]:
    at = f"{each.partition}/{each.offset}"
    return at, shown_time(each.due_ms), ", ".join(each.targets), each.id or "", each.series or ""


def _control_options(command: Command) -> Command:
    """Add the options of every command that writes a control: condition, partition and time to wait."""
    for option in (
        click.option(
            "--wait",
            "wait_s",
            type=click.IntRange(1, 600),
            default=10,
            show_default=True,
            help="Seconds to wait; a router that is asked by --api waits 8.",
        ),
        click.option("--partition", type=click.IntRange(min=0), help="Partition of the schedules; default: any."),
        click.option("--if-due", "if_due_ms", type=Instant(), help="Only schedules due exactly then: RFC 3339 or ms."),
        json_option,
    ):
        command = option(command)
    return command


@click.command(
    "cancel",
    epilog=examples(
        "cancel orders.delay order-42",
        """cancel orders.delay --where '{"id_prefix": "order-", "due_to": "2030-01-31T08:00:00Z"}' --dry-run""",
    ),
)
@topic_argument()
@click.argument("deliver_id", metavar="[ID]", required=False)
@_control_options
@click.option("--where", default="", metavar="JSON", help="In place of ID: cancel all that match.")
@click.option("--dry-run", is_flag=True, help="Count those that match --where; cancel nothing.")
@side_options
def cancel_command(
    topic: str,
    deliver_id: str | None,
    *,
    as_json: bool,
    if_due_ms: int | None,
    partition: int | None,
    wait_s: int,
    where: str,
    dry_run: bool,
    chosen: SideOptions,
) -> None:
    """Cancel the pending schedules of a deliver-id in a delay TOPIC, or all that match, and wait until that is certain.

    A schedule matches if all fields of the JSON object are true of it: target, due_from, due_to, id_prefix, header.
    """
    if (deliver_id is None) == (not where):
        raise click.UsageError("which schedules? give an ID or --where, one of them")
    if where:
        if if_due_ms is not None:
            raise click.UsageError("--if-due is for an ID; due_from and due_to of --where bound the due time")
        _cancel_where(chosen, topic, where, partition, wait_s, dry_run=dry_run, as_json=as_json)
        return
    if dry_run:
        raise click.UsageError("--dry-run is for --where; for an id: delay-router schedules --id")
    assert deliver_id is not None
    told = _carried_out(chosen, topic, deliver_id, wait_s, if_due_ms=if_due_ms, partition=partition)
    if as_json:
        print_json({"topic": topic, "id": deliver_id, "cancelled": [each.as_json() for each in told.cancelled]})
        return
    for each in told.cancelled:
        click.echo(f"{topic}/{each.partition}/{each.offset} cancelled; it was due {shown_time(each.due_ms)}")


def _cancel_where(
    chosen: SideOptions, topic: str, raw: str, partition: int | None, wait_s: int, *, dry_run: bool, as_json: bool
) -> None:
    from sidecar.operations.controls.orders import QueryOrder  # noqa: PLC0415 - the help needs no Kafka client

    try:
        where = parse_where(raw.encode())
    except ValueError as error:
        raise click.UsageError(f"--where: {error}") from None
    order = QueryOrder(where, partition)
    told: dict[str, int | None]
    with chosen as operations:
        if dry_run:
            counted = _count(operations, topic, order)
            done, told = f"{counted:,} schedules match; nothing was cancelled", {"matching": counted}
        else:
            matched = operations.cancel_where(topic, order, wait_s)
            number = f"{matched.exact:,}" if matched.exact is not None else f"about {matched.estimated or 0:,}"
            done, told = f"{number} schedules cancelled", {"matched": matched.exact}
            if matched.exact is None:
                told["estimated"] = matched.estimated
    if as_json:
        print_json({"topic": topic, **told})
    else:
        click.echo(done)


def _count(operations: Desk, topic: str, order: "QueryOrder") -> int:
    """Count the pending schedules that match, in as many calls as it takes."""
    counted, begin = 0, ""
    while True:
        told = operations.matching(topic, order, begin)
        counted += told.matching
        if told.next_from is None:
            return counted
        begin = told.next_from
        click.echo(f"{counted:,} found so far, looking on from {begin}", err=True)


@click.command(
    "move",
    epilog=examples(
        "move orders.delay order-42 --after 2h",
    ),
)
@topic_argument()
@click.argument("deliver_id", metavar="ID")
@_control_options
@click.option("--at", "at_ms", type=Instant(), help="The new due time: RFC 3339 or ms.")
@click.option("--after", help="Time from now to the new due time: 15m, PT15M or ms.")
@side_options
def move_command(
    topic: str,
    deliver_id: str,
    *,
    as_json: bool,
    at_ms: int | None,
    after: str | None,
    if_due_ms: int | None,
    partition: int | None,
    wait_s: int,
    chosen: SideOptions,
) -> None:
    """Give the schedule of a deliver-id in a delay TOPIC another due time, and wait until that is certain.

    Of several in a partition the last is moved, and the others are cancelled.
    """
    from sidecar.cli.send import length  # noqa: PLC0415 - the help needs no Kafka client

    if (at_ms is None) == (after is None):
        raise click.UsageError("when is it to be due? give --at or --after, one of them")
    moves_to = ("deliver-after", length("--after", after)) if after is not None else ("deliver-at", str(at_ms).encode())
    asked = {"if_due_ms": if_due_ms, "partition": partition, "moves_to": moves_to}
    told = _carried_out(chosen, topic, deliver_id, wait_s, **asked)
    if as_json:
        schedules = [each.as_json() for each in told.cancelled]
        print_json({"topic": topic, "id": deliver_id, "moved": schedules, "due_ms": told.due_ms})
    else:
        last = {each.partition: each for each in told.cancelled} if told.due_ms is not None else {}
        for each in told.cancelled:
            became = "moved" if each in last.values() else "cancelled"
            click.echo(f"{topic}/{each.partition}/{each.offset} {became}; it was due {shown_time(each.due_ms)}")
    if told.due_ms is None:
        why = told.why or "its record is gone, or the rules refuse it"
        raise click.ClickException(f"the last one could not be written again, and was not moved: {why}")
    if not as_json:
        click.echo(f"due {shown_time(told.due_ms)} from now on")


def _carried_out(chosen: SideOptions, topic: str, deliver_id: str, wait_s: int, **asked: Any) -> "ReceiptAnswer":
    from sidecar.operations.controls.orders import ControlOrder  # noqa: PLC0415 - the help needs none

    with chosen as operations:
        return operations.cancel_or_move(topic, ControlOrder(deliver_id.encode(), **asked), wait_s)
