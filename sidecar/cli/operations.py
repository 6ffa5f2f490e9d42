"""The commands of operators, from ``plan`` before the start to ``pending``, ``find``, ``pause`` and ``drain``."""

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from index.errors import DelayRouterError
from sidecar import clock
from sidecar.cli.options import DONE, FAILED, examples, json_option
from sidecar.cli.output import format_bytes, pending_chart, print_json, print_sentence, print_table, shown_time
from sidecar.cli.side import Desk, SideOptions, complete_topics, side_options, topic_argument
from sidecar.config.units import format_instant, parse_duration_ms, parse_size_bytes
from sidecar.durations import spoken_duration
from sidecar.operations.status.answers import AttemptAnswer, DueRange, Fate, LookupAnswer, PendingAnswer
from sidecar.policies.policy import Scope, ScopeKind, target_scope, topic_scope

# Only the command that computes one loads them.
if TYPE_CHECKING:
    from sidecar.operations.sizing.capacity import CapacityPlan

LOOK_EVERY_S: Final = 0.5
WAIT_S: Final = 120.0
MOST_RECORDS_S: Final = 1_000_000_000
MOST_PARTITIONS: Final = 1_000_000
MOST_BROKERS: Final = 10_000


@click.command("pending")
@topic_argument()
@json_option
@side_options
def pending_command(topic: str, *, as_json: bool, chosen: SideOptions) -> None:
    """Count the pending records of a delay TOPIC, by time to go and by target."""
    with chosen as operations:
        answer = operations.pending(topic)
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        _print_pending(answer)


def _print_pending(answer: PendingAnswer) -> None:
    click.echo(f"{answer.topic}: {answer.records:,} pending, by time to go")
    for line in pending_chart([(_bound(each), each.records) for each in answer.by_due]):
        click.echo(f"  {line}")
    rows: list[tuple[str, str]] = [(target, f"{count:,}") for target, count in answer.by_target.items()]
    if answer.other_targets:
        rows.append(("others, or not known", f"{answer.other_targets:,}"))
    if rows:
        print_table(("target", "pending"), rows, folding=("target",))
    if answer.unserved:
        numbers = ", ".join(map(str, answer.unserved))
        click.echo(f"warning: not counted, since no router reports them: partitions {numbers}")


def _bound(each: DueRange) -> str:
    return "+Inf" if each.within_s is None else f"{each.within_s:g}"


def _place(_: click.Context, __: click.Parameter, given: str) -> tuple[str, int, int]:
    topic, partition, offset = ["", "", *given.rsplit("/", 2)][-3:]
    if not topic or not all(number.isascii() and number.isdigit() for number in (partition, offset)):
        raise click.BadParameter(f"{given!r}: write TOPIC/PARTITION/OFFSET, as delay-source has it")
    return topic, int(partition), int(offset)


@click.command(
    "lookup",
    epilog=examples(
        "lookup orders.delay/3/4711",
    ),
)
@click.argument("place", metavar="TOPIC/PARTITION/OFFSET", callback=_place, shell_complete=complete_topics)
@json_option
@side_options
def lookup_command(place: tuple[str, int, int], *, as_json: bool, chosen: SideOptions) -> None:
    """Show the fate of one record: pending, released, rejected, cancelled, replaced, moved, answered or unknown.

    Ends with 1 when the fate is unknown; the answer then says why.
    """
    with chosen as operations:
        answer = operations.lookup(*place)
    if as_json:
        print_json(answer.model_dump(mode="json"))
    else:
        print_sentence(f"{answer.topic}/{answer.partition}/{answer.offset}: {_shown(answer)}")
        if answer.attempt is not None:
            print_sentence(_shown_attempt(answer.attempt))
        if answer.code and answer.fate is Fate.REJECTED:
            click.echo(f"its message: delay-router rejected list {answer.topic} --code {answer.code}")
    sys.exit(FAILED if answer.fate is Fate.UNKNOWN else DONE)


@click.command("find", epilog=examples("find orders.delay order-42"))
@topic_argument()
@click.argument("deliver_id", metavar="ID")
@json_option
@side_options
def find_command(topic: str, deliver_id: str, *, as_json: bool, chosen: SideOptions) -> None:
    """Show everything that became of a deliver-id in a delay TOPIC.

    Pending schedules are found exactly. Of receipts, rejected records and targets the newest records are looked
    through, and the command says where that was not all. Ends with 1 when nothing is found.
    """
    with chosen as operations:
        answer = operations.find(topic, deliver_id.encode())
    if as_json:
        print_json(answer.model_dump(mode="json"))
    elif answer.traces:
        rows = [(each.fate.value, each.place, shown_time(each.at_ms), each.why) for each in answer.traces]
        print_table(("fate", "at", "when", ""), rows, folding=("at", ""))
    else:
        click.echo(f"{topic}: nothing of {deliver_id} is pending, in receipts, rejected or in targets")
    if not as_json:
        for line in answer.unread:
            print_sentence(f"note: {line}")
    sys.exit(DONE if answer.traces else FAILED)


def _shown(answer: LookupAnswer) -> str:
    parts = [answer.fate.value]
    if answer.code and answer.fate is Fate.REJECTED:
        parts[0] += f" {answer.code}"
    if answer.id is not None:
        parts.append(f"id {answer.id}")
    if answer.due_ms is not None:
        parts.append(f"due {shown_time(answer.due_ms)}")
    if answer.targets:
        parts.append(f"to {', '.join(answer.targets)}")
    if answer.released_to:
        at = "" if answer.released_ms is None else f" at {shown_time(answer.released_ms)}"
        parts.append(f"written{at} as {answer.released_to}")
    if answer.why:
        parts.append(answer.why)
    return "; ".join(parts)


def _shown_attempt(attempt: AttemptAnswer) -> str:
    if attempt.exhausted:
        return f"exhausted after {attempt.number} attempts"
    if attempt.most is None:
        return f"attempt {attempt.number}"
    after = attempt.number + len(attempt.next_waits_ms)
    waits = [spoken_duration(each) for each in attempt.next_waits_ms] + ["..."] * (after < attempt.most)
    then = f"waits {', '.join(waits)}" if waits else f"goes to {attempt.dead_letter}"
    return f"attempt {attempt.number} of {attempt.most}; if it fails, the record {then}"


def _scope_of(topic: str, target: str) -> Scope:
    if bool(topic) == bool(target):
        raise click.UsageError("name a delay TOPIC, or --target TOPIC")
    kind, slash, name = topic.partition("/")
    if slash and kind in (ScopeKind.TOPIC.value, ScopeKind.TARGET.value):
        meant = f"--target {name}" if kind == ScopeKind.TARGET.value else name
        raise click.UsageError(f"{topic} is how the scope of a policy is written; here write {meant}")
    return topic_scope(topic) if topic else target_scope(target)


def _length_ms(_: click.Context, __: click.Parameter, given: str) -> int:
    """Return the value of ``--for`` in ms; 0 where it is not given."""
    try:
        length_ms = parse_duration_ms(given) if given else 0
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if given and not length_ms:
        raise click.BadParameter(f"{given!r}: a pause lasts longer than that")
    return length_ms


@click.command(
    "pause",
    epilog=examples(
        "pause orders.delay",
        "pause --target billing --for 2h --reason 'billing is moved'",
    ),
)
@topic_argument(required=False)
@click.option("--target", default="", metavar="TOPIC", help="Hold the records of this target topic instead.")
@click.option(
    "--for",
    "length_ms",
    default="",
    metavar="DURATION",
    callback=_length_ms,
    help="The pause ends by itself after it: 30m, 2h.",
)
@click.option("--reason", default="", metavar="TEXT", help="Reason of the pause; the status shows it.")
@side_options
def pause_command(topic: str, target: str, *, length_ms: int, reason: str, chosen: SideOptions) -> None:
    """Stop releasing from a delay TOPIC, or to a target; new records are still indexed."""
    scope = _scope_of(topic, target)
    until_ms = clock.now_ms() + length_ms if length_ms else None
    with chosen as operations:
        operations.switch(scope, "paused", on=True, until_ms=until_ms, reason=reason)
    click.echo(f"{topic or target}: paused" + ("" if until_ms is None else f" until {format_instant(until_ms)}"))


@click.command("resume")
@topic_argument(required=False)
@click.option("--target", default="", metavar="TOPIC", help="Release the held records of this target topic instead.")
@side_options
def resume_command(topic: str, target: str, *, chosen: SideOptions) -> None:
    """Release again: records that have become due meanwhile leave at once, in order."""
    scope = _scope_of(topic, target)
    with chosen as operations:
        operations.switch(scope, "paused", on=False)
    click.echo(f"{topic or target}: resumed")


@click.command("drain")
@topic_argument()
@click.option("--wait", is_flag=True, help="Wait until every partition is drained.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="With --wait: the longest wait.",
)
@side_options
def drain_command(topic: str, *, wait: bool, timeout_s: float, chosen: SideOptions) -> None:
    """Seal all partitions of a delay TOPIC and give them up, before maintenance."""
    with chosen as operations:
        operations.switch(topic_scope(topic), "drained", on=True)
        if wait:
            _wait_until_drained(operations, topic, timeout_s)
    click.echo(f"{topic}: {'drained' if wait else 'to be drained'}")


def _wait_until_drained(operations: Desk, topic: str, timeout_s: float) -> None:
    from sidecar.engine.ownership.status import PartitionState  # noqa: PLC0415 - the other commands need not load it

    deadline_s = time.monotonic() + timeout_s
    while True:
        (found,) = operations.status(topic).topics
        left = [each for each in found.partitions if each.state != PartitionState.DRAINED]
        if not left:
            return
        if time.monotonic() > deadline_s:
            undrained = ", ".join(f"{each.partition} ({each.state})" for each in left)
            raise DelayRouterError(f"{topic}: not drained within {math.ceil(timeout_s)} s: partitions {undrained}")
        time.sleep(LOOK_EVERY_S)


@click.command("undrain")
@topic_argument()
@side_options
def undrain_command(topic: str, *, chosen: SideOptions) -> None:
    """Serve the partitions of a delay TOPIC again."""
    with chosen as operations:
        operations.switch(topic_scope(topic), "drained", on=False)
    click.echo(f"{topic}: served again")


def _delay_ms(_: click.Context, __: click.Parameter, given: str) -> int:
    try:
        delay_ms = parse_duration_ms(given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not delay_ms:
        raise click.BadParameter(f"{given!r}: records that do not wait need no router")
    return delay_ms


def _size_bytes(_: click.Context, __: click.Parameter, given: str) -> int:
    try:
        size_bytes = parse_size_bytes(f"{given}B" if given.isdigit() else given)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    if not size_bytes:
        raise click.BadParameter(f"{given!r}: a record has at least one byte")
    return size_bytes


@click.command(
    "plan",
    epilog=examples("plan --rate 5000 --delay 7d --size 500 --partitions 12 --brokers 3"),
)
@click.option("--rate", "rate_s", type=click.IntRange(1, MOST_RECORDS_S), required=True, help="Records a second.")
@click.option(
    "--delay",
    "delay_ms",
    required=True,
    metavar="DURATION",
    callback=_delay_ms,
    help="Mean delay of the records: 15m, 7d.",
)
@click.option(
    "--size",
    "size_bytes",
    required=True,
    metavar="BYTES",
    callback=_size_bytes,
    help="Size of a record, or of a value with its headers: 500, 2KiB.",
)
@click.option(
    "--partitions", type=click.IntRange(1, MOST_PARTITIONS), required=True, help="Partitions of the delay topic."
)
@click.option("--brokers", type=click.IntRange(1, MOST_BROKERS), required=True, help="Brokers of the cluster.")
@json_option
def plan_command(rate_s: int, delay_ms: int, size_bytes: int, partitions: int, brokers: int, *, as_json: bool) -> None:
    """Compute how many processes, and how much memory, traffic and disk a load takes.

    It asks no cluster and reads no configuration: the defaults of each key count. Only router.lanes is recommended: 2
    if a process has 100 partitions or more, otherwise 0. Transactions, threads and connections count with it.
    OPERATIONS, 'How much it takes', explains the formulas and where they were measured.
    """
    from sidecar.operations.sizing import capacity  # noqa: PLC0415 - no completion waits for it

    planned = capacity.plan(capacity.Load(rate_s, delay_ms, size_bytes, partitions, brokers))
    if as_json:
        print_json({**asdict(planned), "memory_bytes": planned.memory.total_bytes})
        return
    print_table(("", "takes", ""), _plan_rows(planned), folding=("",))
    for remark in planned.remarks:
        print_sentence(f"note: {remark}")


def _plan_rows(planned: "CapacityPlan") -> Iterator[tuple[str, str, str]]:
    from sidecar.operations.sizing.clients import LANES_FROM  # noqa: PLC0415 - as above

    memory, traffic, disk, rates = planned.memory, planned.traffic, planned.disk, planned.transactions
    yield "pending records", f"{planned.pending:,}", ""
    yield "processes", f"{planned.processes:,}", "one of them may be away"
    yield "partitions of a process", f"{planned.partitions_each:,}", f"{planned.partitions_at_most:,} if one is away"
    yield "lanes of a process", str(planned.lanes), f"router.lanes; they pay from {LANES_FROM} partitions on"
    yield "memory of a process", format_bytes(memory.total_bytes), "at most, if one is away:"
    yield "  payload_memory", format_bytes(memory.payload_bytes), ""
    yield "  the process, partitions", format_bytes(memory.process_bytes + memory.partitions_bytes), ""
    yield "  index of pending records", format_bytes(memory.index_bytes), ""
    yield "  manifests", format_bytes(memory.manifests_bytes), ""
    yield "  the largest fetch, unpacked", format_bytes(memory.fetch_bytes), "by default of a topic"
    yield "written to brokers", f"{format_bytes(traffic.written_bytes_s)}/s", "with payload inline in snapshots"
    yield "replicated among them", f"{format_bytes(traffic.replicated_bytes_s)}/s", ""
    yield "read from them", f"{format_bytes(traffic.read_bytes_s)}/s", ""
    yield "transactions", f"{rates.transactions_s:,}/s", "at most"
    scattered = f"{rates.scattered_markers_s:,}/s for a target with other partitions or keys"
    yield "transaction markers", f"{rates.markers_s:,}/s", scattered
    yield "disk: delay topic", format_bytes(disk.delay_topic_bytes), f"kept {spoken_duration(disk.delay_topic_kept_ms)}"
    yield "disk: snapshots, inline", format_bytes(disk.inline_snapshots_bytes), "while merging"
    yield "disk: snapshots, pointer", format_bytes(disk.pointer_snapshots_bytes), "while merging"
    yield "disk: state", format_bytes(disk.state_bytes), "at most"
    yield "threads of a process", f"{planned.threads:,}", "at most, beside take-overs"
    yield "connections of a process", f"{planned.connections:,}", "at most, beside take-overs"
