"""The command ``send``: schedules a record."""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from typing import IO, TYPE_CHECKING

import click

from index.named.receipts import ControlOutcome
from index.protocol.schedule import Decision, Rejection, due_ms_of, schedule_of
from sidecar import clock
from sidecar.cli.options import FAILED, Instant, examples, headers_given, json_option
from sidecar.cli.output import print_json, shown_time
from sidecar.cli.side import SideOptions, side_options, topic_argument
from sidecar.durations import spoken_duration
from sidecar.operations.controls.orders import NewRecord

if TYPE_CHECKING:
    from sidecar.cli.send import ControlRequest, Sent
    from sidecar.config.model import Config
    from sidecar.operations.controls.orders import ReceiptAnswer


@click.command(
    "send",
    epilog=examples(
        "send orders.delay --value hello --after 15m",
        "send orders.delay --key 42 --value order --at 2030-01-31T08:00:00Z --to billing",
        "send orders.delay --key 42 --id order-42 --replace --after 2h --value new --wait 10",
        "send orders.delay --value wake --cron '30 8 * * MON-FRI' --timezone Europe/Berlin",
    ),
)
@topic_argument()
@side_options
@json_option
@click.option("--at", default="", metavar="INSTANT", help="Due time: RFC 3339 with an offset, or epoch ms.")
@click.option("--after", default="", metavar="DURATION", help="Time from now to the due time: 10s, PT15M or ms.")
@click.option("--to", multiple=True, metavar="TOPIC", help="Target topic; repeat for several.")
@click.option("--key", help="Key of the record.")
@click.option("--deliver-key", help="Key of the released record; default: --key.")
@click.option("--partition", type=click.IntRange(min=0), help="Partition of the target.")
@click.option("--id", "deliver_id", default="", help="Your name for this schedule.")
@click.option("--replace", is_flag=True, help="Replace the pending schedule of --id in the partition of --key.")
@click.option("--if-due", "if_due_ms", type=Instant(), help="Replace only a schedule due exactly then: RFC 3339 or ms.")
@click.option("--wait", "wait_s", type=click.IntRange(1, 600), help="Seconds to wait for the receipt of --replace.")
@click.option("--expire-after", default="", metavar="DURATION", help="Reject it later than this after its due time.")
@click.option("--every", default="", metavar="DURATION", help="Recurring: the period, 10s, PT15M or ms.")
@click.option("--cron", default="", metavar="FIELDS", help="Recurring: the minutes, in five fields.")
@click.option("--timezone", default="", metavar="NAME", help="Time zone of --cron, as Europe/Berlin; default: UTC.")
@click.option("--until", default="", metavar="INSTANT", help="Last due time of an occurrence.")
@click.option("--times", default="", metavar="NUMBER", help="Most occurrences.")
@click.option(
    "--missed", type=click.Choice(["one", "all"]), help="Occurrences to release after downtime; default: one."
)
@click.option("--header", "headers", multiple=True, callback=headers_given, metavar="NAME=VALUE", help="A header.")
@click.option("--value", help="Value of the record.")
@click.option("--value-file", type=click.File("rb"), help="Read the value from a file; - is stdin.")
@click.option("--null", "null", is_flag=True, help="Send no value: a tombstone.")
@click.option("--lines", is_flag=True, help="Send one record for each line of stdin.")
@click.option(
    "--force", is_flag=True, help="Send also records that will be rejected, and to the delay topic of another router."
)
def send_command(
    topic: str,
    *,
    chosen: SideOptions,
    as_json: bool,
    at: str,
    after: str,
    to: tuple[str, ...],
    key: str | None,
    deliver_key: str | None,
    partition: int | None,
    deliver_id: str,
    replace: bool,
    if_due_ms: int | None,
    wait_s: int | None,
    expire_after: str,
    headers: tuple[tuple[str, bytes], ...],
    every: str,
    cron: str,
    timezone: str,
    until: str,
    times: str,
    missed: str | None,
    value: str | None,
    value_file: IO[bytes] | None,
    null: bool,
    lines: bool,
    force: bool,
) -> None:
    """Send a record to a delay TOPIC."""
    # The help and a completion need no Kafka client.
    from sidecar.cli import send  # noqa: PLC0415

    if [value is not None, value_file is not None, null, lines].count(True) != 1:
        raise click.UsageError("give one of --value, --value-file, --null and --lines")
    _check_replacement(replace=replace, lines=lines, waits=wait_s is not None)
    released_key = None if deliver_key is None else deliver_key.encode()
    asked = {"every": every, "cron": cron, "timezone": timezone, "until": until, "times": times, "missed": missed}
    recurs = tuple((name, text) for name, text in asked.items() if text)
    request = send.ControlRequest(
        at, after, to, released_key, partition, deliver_id, expire_after, headers, recurs, replace, if_due_ms
    )
    record = NewRecord(None if key is None else key.encode(), None, request.as_headers())
    values = _values(value, value_file, lines=lines)
    if not chosen.is_api:
        _send_straight(chosen.load(), topic, record, values, request, wait_s, as_json=as_json, force=force)
        return
    if wait_s is not None or force:
        raise click.UsageError("--wait and --force are not for --api")
    with chosen as operations:
        written = [operations.write_record(topic, record._replace(value=each)) for each in values]
    if as_json:
        print_json([{**asdict(each), "targets": list(each.targets)} for each in written])
        return
    for each in written:
        click.echo(f"{each.topic}/{each.partition}/{each.offset} due {shown_time(each.due_ms)}")


def _send_straight(
    config: "Config",
    topic: str,
    record: NewRecord,
    values: Iterator[bytes | None],
    request: "ControlRequest",
    wait_s: int | None,
    *,
    as_json: bool,
    force: bool,
) -> None:
    from sidecar.cli import send  # noqa: PLC0415 - as above
    from sidecar.cluster.topics import reach  # noqa: PLC0415 - as above
    from sidecar.operations.controls import replacing  # noqa: PLC0415 - as above

    send.refuse_undelayed(config, topic)
    verdict = send.judge(config, topic, record.headers, clock.now_ms())
    _warn(verdict, request.at, force=force)
    client = reach.connect(config)
    send.require_topic(config, client, topic)
    send.refuse_unserved(config, client, topic, force=force)
    reach.require_rights(config, client, {topic: ("Write",)})
    if (schedule := schedule_of(verdict)) and config.delay_topic(topic):
        for target in send.missing_targets(client, schedule.targets):
            click.echo(f"warning: target topic {target} does not exist: create it before the record is due", err=True)
    if request.replaces and record.key is None:
        replacing.require_key(client, topic)
    with nullcontext() if wait_s is None else replacing.receipts_to_come(config, client, topic) as receipts:
        sent = send.send(config, topic, values, record.key, record.headers)
        if not as_json:
            _print_sent(sent, verdict, send.spread_ms(config, topic, verdict))
        if receipts is not None and wait_s is not None:
            place, configured = (sent[0].partition, sent[0].offset), config.require_delay_topic(topic)
            told = replacing.replaced_by(place, receipts, configured, request.deliver_id, wait_s)
            if as_json:
                print_json([{**sent[0].as_json(), **told.as_json()}])
            else:
                _print_receipt(topic, request.deliver_id, told)
        elif as_json:
            print_json([record.as_json() for record in sent])


def _check_replacement(*, replace: bool, lines: bool, waits: bool) -> None:
    if replace and lines:
        raise click.UsageError("--replace sends one record; with --lines each would replace the one before")
    if waits and not replace:
        raise click.UsageError("--wait is for the receipt of --replace")


def _warn(verdict: Decision, at: str, *, force: bool) -> None:
    """Warn of a due time in the past and of a rejection; without ``force`` a rejection ends the command."""
    from sidecar.cli import send  # noqa: PLC0415 - as above

    if not isinstance(verdict, Rejection):
        due_ms = due_ms_of(verdict)
        if at and send.is_past(due_ms):
            past = f"--at {at} is {shown_time(due_ms)}, which is past: it goes out at once"
            click.echo(f"warning: {past}", err=True)
        return
    click.echo(f"{'warning' if force else 'error'}: will be rejected: {verdict.reason}: {verdict.message}", err=True)
    if not force:
        sys.exit(FAILED)


def _print_sent(sent: "list[Sent]", verdict: Decision, spread_ms: int) -> None:
    spread = f", and spread over the {spoken_duration(spread_ms)} behind that" if spread_ms else ""
    for record in sent:
        due = f"due {shown_time(record.due_ms)}{spread}" if record.due_ms else f"due at once{spread}"
        if isinstance(verdict, Rejection):
            due = f"to be rejected ({verdict.reason})"
        click.echo(f"{record.topic}/{record.partition}/{record.offset} {due}")


def _print_receipt(topic: str, deliver_id: str, told: "ReceiptAnswer") -> None:
    if told.outcome == ControlOutcome.NOT_PENDING:
        click.echo(f"nothing was replaced: no other {deliver_id} was pending there")
    for each in told.cancelled:
        click.echo(f"{topic}/{each.partition}/{each.offset} replaced; it was due {shown_time(each.due_ms)}")


def _values(value: str | None, value_file: IO[bytes] | None, *, lines: bool) -> Iterator[bytes | None]:
    if lines:
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
    elif value_file is not None:
        yield value_file.read()
    else:
        yield None if value is None else value.encode()
