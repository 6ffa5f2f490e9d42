"""The command ``status``: shows the delay topics of a group, or one router by its probes and metrics."""

import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from sidecar import clock
from sidecar.cli.options import DONE, FAILED, json_option
from sidecar.cli.output import (
    format_bytes,
    pending_chart,
    print_json,
    print_sentence,
    print_table,
)
from sidecar.cli.side import SideOptions, side_options, topic_argument
from sidecar.operations.asking import router_answers as status

# The shapes of answers are loaded together with an answer: a completion, or the help, needs none.
if TYPE_CHECKING:
    from sidecar.operations.status.answers import StatusAnswer

WATCH_EVERY_S: Final = 2.0


@click.command("status")
@topic_argument(required=False)
@json_option
@click.option("--wide", is_flag=True, help="One line for each partition, with exact times.")
@click.option("--watch", is_flag=True, help="Show it again every two seconds, until Ctrl-C.")
@click.option("--url", default="", help="One router by itself, at its [http] listen: also totals and lateness.")
@side_options
def status_command(topic: str, *, as_json: bool, wide: bool, watch: bool, url: str, chosen: SideOptions) -> None:
    """Show the partitions of the group of routers: every delay topic, or one TOPIC.

    Ends with 1 when a partition is served by no router.
    """
    if as_json and (wide or watch):
        raise click.UsageError("--wide and --watch are for people; leave --json out")
    if url:
        if topic or wide or watch:
            raise click.UsageError("--url shows a whole router once; leave TOPIC, --wide and --watch out")
        _show_router(url, as_json=as_json)
        return
    with chosen as operations:
        answer = operations.status(topic)
        while watch:
            click.clear()
            _print_group(answer, wide=wide)
            time.sleep(WATCH_EVERY_S)
            answer = operations.status(topic)
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        _print_group(answer, wide=wide)
    from sidecar.cli import status_lines  # noqa: PLC0415 - see above

    sys.exit(DONE if status_lines.is_served(answer) else FAILED)


def _print_group(answer: "StatusAnswer", *, wide: bool) -> None:
    from sidecar.cli import status_lines  # noqa: PLC0415 - see above

    now_ms = clock.now_ms()
    table = status_lines.partition_table(answer) if wide else status_lines.topic_table(answer, now_ms)
    print_table(*table, folding=() if wide else table[0][:1])
    retries = status_lines.retry_notes(answer)
    held, notes = status_lines.held_notes(answer, now_ms), status_lines.notes(answer)
    for line in (*held, *notes, *retries, status_lines.routers(answer)):
        print_sentence(line)
    statuses = {
        f"{topic.topic}/{each.partition}": each.model_dump() for topic in answer.topics for each in topic.partitions
    }
    _print_warnings({"partitions": statuses})


def _show_router(url: str, *, as_json: bool) -> None:
    answer = status.ask(url)
    if as_json:
        print_json(answer.as_json())
    else:
        _print_status(url, answer)


def _print_status(url: str, answer: status.RouterStatus) -> None:
    click.echo(f"{url}: {'ready' if answer.ready else 'not ready'} {answer.body.get('why', '')}".rstrip())
    if answer.build:
        click.echo(", ".join(f"{name} {value}" for name, value in sorted(answer.build.items())))
    from sidecar.cli.status_lines import relative  # noqa: PLC0415 - see above

    now_ms = clock.now_ms()
    partitions = sorted(answer.body.get("partitions", {}).items())
    columns = ("partition", "state", "pending", "next due", "last due", "lag", "buckets", "needed since")
    rows = [
        (
            name,
            *(str(each.get(key, "")) for key in ("state", "pending")),
            *(relative(each.get(key), now_ms) for key in ("next_due_ms", "furthest_due_ms")),
            *(str(each.get(key, "")) for key in ("lag", "buckets")),
            relative(each["needed_since_ms"], now_ms) if each.get("needed_since_ms") else "",
        )
        for name, each in partitions
    ]
    print_table(columns, rows, folding=("partition",))
    for name, each in partitions:
        if each.get("why"):
            print_sentence(f"{name}: {each['why']}")
    print_table(
        ("topic", "indexed", "released", "rejected", "late p50", "late p99"),
        map(_topic_row, answer.topics),
        folding=("topic",),
    )
    for topic in answer.topics:
        if any(count for _, count in topic.by_due):
            click.echo(f"{topic.topic}: pending by time to go, {format_bytes(topic.snapshot_bytes)} of snapshots")
            for line in pending_chart(topic.by_due):
                click.echo(f"  {line}")
    _print_warnings(answer.body)
    for name, why in answer.body.get("left_out", {}).items():
        click.echo(f"not served: {name}: {why}")


def _topic_row(topic: status.TopicStatus) -> tuple[str, ...]:
    counts = (topic.indexed, topic.released, topic.rejected)
    return topic.topic, *map(str, counts), _shown_ms(topic.lateness_p50_ms), _shown_ms(topic.lateness_p99_ms)


def _shown_ms(lateness_ms: float | None) -> str:
    return "-" if lateness_ms is None else f"{lateness_ms:g} ms"


def _print_warnings(body: dict[str, Any]) -> None:
    for warning in status.retention_warnings(body, clock.now_ms()):
        print_sentence(f"warning: {warning}")
