"""The commands about topics: ``init``, ``check``, ``retries``, ``verify``, ``start-over`` and ``end-transaction``."""

import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TextIO

import click

from index.errors import ConfigError, DelayRouterError
from index.rules.retrying import ladder
from sidecar.cli.options import DONE, FAILED, WRONG_USAGE, config_option, examples, exit_code, fail, json_option, load
from sidecar.cli.output import print_findings, print_json, print_table
from sidecar.cli.side import complete_topics, topic_argument
from sidecar.cluster.rights import acls, acls_jobs, strimzi
from sidecar.cluster.topics import init as initialisation
from sidecar.cluster.topics import reach
from sidecar.cluster.topics import start_over as starting_over
from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.durations import spoken_duration
from sidecar.kafka.client.admin import parse_place
from sidecar.kafka.client.commands import ANY_ROUTER, principal_of
from sidecar.kafka.doubts import ending
from sidecar.kafka.doubts.batches import Batches

COUNT = click.IntRange(min=1)
_SCRIPT = "kafka-acls"
_STRIMZI = "strimzi"
_SPEAK_EVERY_S: Final = 5.0
_COULD_NOT_LOOK: Final = WRONG_USAGE


@click.command(
    "check",
    epilog=examples(
        "check",
        "check --acls --principal User:router",
    ),
)
@config_option
@json_option
@click.option("--acls", "only_acls", is_flag=True, help="Print the rights a router needs, as kafka-acls commands.")
@click.option("--format", "form", type=click.Choice([_SCRIPT, _STRIMZI]), help="With --acls: strimzi for a KafkaUser.")
@click.option("--principal", metavar="User:NAME", help="With --acls: the principal of the router or the job.")
@click.option(
    "--job",
    "jobs",
    multiple=True,
    type=click.Choice(list(acls_jobs.JOBS)),
    help="With --acls: the rights of this Spark job instead; repeatable.",
)
def check_command(
    config_file: Path | None,
    as_json: bool,
    only_acls: bool,
    form: str | None,
    principal: str | None,
    jobs: tuple[str, ...],
) -> None:
    """Check configuration, topics, rights and retention; changes nothing."""
    given = {"--principal": principal, "--job": jobs, "--format": form}
    alone = [option for option, value in given.items() if value not in (None, ())]
    if alone and not only_acls:
        raise click.UsageError(f"{alone[0]} belongs to --acls")
    if form == _STRIMZI and as_json:
        raise click.UsageError("--format strimzi is YAML: leave out --json")
    config = load(config_file)
    if only_acls:
        if form == _STRIMZI:
            _print_kafka_user(config, principal, jobs)
        else:
            # A job may have a principal of its own.
            own = ANY_ROUTER if jobs else principal_of(config.kafka)
            _print_acls(config, own if principal is None else principal, jobs, as_json=as_json)
        return
    from sidecar.operations.asking import checking  # noqa: PLC0415 - no completion waits for it

    findings = checking.report(config)
    if as_json:
        print_json([finding.as_json() for finding in findings])
    else:
        print_findings(findings)
    sys.exit(exit_code(findings))


@click.command("init")
@config_option
@json_option
@click.option("--partitions", type=COUNT, help="Partitions of created delay topics; default: the brokers'.")
@click.option("--replication-factor", type=COUNT, help="Replicas of created delay topics; default: the brokers'.")
@click.option("--create-targets", is_flag=True, help="Create missing target topics too.")
@click.option(
    "--deliver-existing",
    is_flag=True,
    help="Deliver the records of delay topics without a state, as never delivered before.",
)
# Options that start-over had before it was a command of its own.
@click.option("--start-over", "place", hidden=True)
@click.option("--yes", is_flag=True, hidden=True)
def init_command(
    config_file: Path | None,
    as_json: bool,
    partitions: int | None,
    replication_factor: int | None,
    create_targets: bool,
    deliver_existing: bool,
    place: str | None,
    yes: bool,
) -> None:
    """Create missing topics and check existing ones; safe to repeat."""
    if yes and place is None:
        raise click.UsageError("--yes belongs to --start-over")
    if place is not None:
        click.echo(f"note: this is now a command of its own: delay-router start-over {place}", err=True)
        _start_over(config_file, place, yes=yes, as_json=as_json)
        return
    from sidecar.operations.asking import checking  # noqa: PLC0415 - no completion waits for it

    config = load(config_file)
    config.require_delay_topics()
    client = reach.connect(config)
    options = initialisation.InitOptions(
        partitions or initialisation.BROKER_DEFAULT,
        replication_factor or initialisation.BROKER_DEFAULT,
        create_targets,
        deliver_existing,
        checking.stamped_targets(config) if create_targets else frozenset(),
    )
    report = initialisation.initialise(config, client, options)
    if as_json:
        print_json(
            {
                "topics": [row.as_json() for row in report.rows],
                "findings": [finding.as_json() for finding in report.findings],
            }
        )
    else:
        print_table(
            ("topic", "role", "action", "partitions", "replicas"),
            [(row.name, row.role, row.action, str(row.partitions), str(row.replication_factor)) for row in report.rows],
            folding=("topic",),
        )
        print_findings([finding for finding in report.findings if finding.level is not Level.OK])
        click.echo(_next(config_file, report))
    sys.exit(exit_code(report.findings))


def _next(config_file: Path | None, report: initialisation.InitReport) -> str:
    """Return the next steps after ``init``, as commands that can be pasted."""
    given = "" if config_file is None else f" --config {shlex.quote(str(config_file))}"
    steps = [f"delay-router check{given}", f"delay-router run{given}"]
    if exit_code(report.findings):
        return f"next: mend each finding marked error, then delay-router init{given}"
    if report.targets_missing:
        steps.insert(0, f"delay-router init --create-targets{given}")
    return f"next: {', then '.join(steps)}"


def _print_acls(config: Config, principal: str, jobs: tuple[str, ...], *, as_json: bool) -> None:
    """Print the rights from the configuration alone: the administrator may have no access as the router."""
    if not principal.startswith("User:") or principal == "User:":
        raise click.UsageError(f"--principal {principal}: write User:NAME, as the brokers' log shows it")
    needed = _needed(config, jobs)
    if as_json:
        print_json(needed.as_json(principal))
        return
    for line in acls.script(needed, config.bootstrap, principal):
        click.echo(line)


def _print_kafka_user(config: Config, principal: str | None, jobs: tuple[str, ...]) -> None:
    """Print a KafkaUser; a job needs a name of its own, since its rights would replace those of the router."""
    if principal is None and jobs:
        raise click.UsageError("--format strimzi with --job: name the user of the job with --principal User:NAME")
    needed = _needed(config, jobs)
    for line in strimzi.kafka_user(needed, config.bootstrap, principal or "User:delay-router"):
        click.echo(line)


def _needed(config: Config, jobs: tuple[str, ...]) -> acls.NeededRights:
    config.require_delay_topics()
    return acls_jobs.needed(config, jobs) if jobs else acls.needed(config)


@click.command(
    "verify",
    epilog=examples(
        "verify orders.delay",
        "verify orders.delay/3 --json",
    ),
)
@click.argument("place", metavar="TOPIC[/PARTITION]", shell_complete=complete_topics)
@config_option
@json_option
def verify_command(place: str, config_file: Path | None, *, as_json: bool) -> None:
    """Check the state, segments and pages of ids of a delay topic; changes nothing.

    Ends with 1 when something is damaged, and with 2 when it could not be read.
    """
    from sidecar.operations.verifying import verifier  # noqa: PLC0415 - no completion waits for it

    config = load(config_file)
    reports: list[verifier.PartitionReport] = []
    try:
        for report in verifier.verify(config, place, _progress()):
            reports.append(report)
            if not as_json:
                print_findings(report.findings())
    except DelayRouterError as error:
        fail(str(error), _COULD_NOT_LOOK)
    if as_json:
        print_json([report.as_json() for report in reports])
    if any(report.damages for report in reports):
        sys.exit(FAILED)
    sys.exit(_COULD_NOT_LOOK if any(report.unread for report in reports) else DONE)


def _progress() -> Callable[[str, int, int], None]:
    """Return a function that tells every few seconds on stderr how far the command is."""
    told_s = time.monotonic()

    def tell(place: str, done: int, total: int) -> None:
        nonlocal told_s
        if (now_s := time.monotonic()) - told_s >= _SPEAK_EVERY_S:
            told_s = now_s
            click.echo(f"{place}: {done:,} of {total:,} segments and pages", err=True)

    return tell


@click.command("start-over")
@click.argument("place", metavar="TOPIC/PARTITION", shell_complete=complete_topics)
@config_option
@json_option
@click.option("--yes", is_flag=True, help="Do it; without it the command only shows the steps.")
def start_over_command(place: str, config_file: Path | None, *, as_json: bool, yes: bool) -> None:
    """Forget the state of a delay partition, and release the records in its delay topic again."""
    _start_over(config_file, place, yes=yes, as_json=as_json)


def _start_over(config_file: Path | None, place: str, *, yes: bool, as_json: bool) -> None:
    config = load(config_file)
    config.require_delay_topics()
    client = reach.connect(config)
    planned = starting_over.plan(config, client, place)
    if yes:
        starting_over.start_over(config, client, planned)
    if as_json:
        print_json({**planned.as_json(), "done": yes})
        return
    topic, partition = planned.topic, planned.partition
    click.echo(
        f"State partition {topic.state}/{partition} ({planned.state_keys} keys)"
        f" {'was' if yes else 'will be'} replaced by a fresh start.\n"
        f"Offsets {planned.log_start} to {planned.log_end - 1} of {topic.name}/{partition}"
        f" ({planned.log_end - planned.log_start}) are indexed again by the rules of this configuration:\n"
        "pending records are kept, and records that were already released are RELEASED AGAIN."
    )
    if planned.series.known:
        click.echo(f"Recurring schedules go on where they stand ({planned.series.known}).")
    if planned.series.unknown:
        click.echo(
            f"RECURRING SCHEDULES END, at most {planned.series.unknown}: neither {topic.state} nor {topic.snapshots}"
            " has the key that signs their occurrences.\n"
            "Their pending occurrences will be rejected; such schedules have to be sent again."
        )
    if not yes:
        click.echo("Nothing was done. To do it, add --yes.")


@click.command("end-transaction")
@click.argument("partition", metavar="TOPIC/PARTITION", shell_complete=complete_topics)
@click.argument("place", metavar="WHERE/PARTITION")
@config_option
@json_option
@click.option("--producer-id", type=int, metavar="ID", help="Producer that has it open, by describe-producers.")
@click.option("--start-offset", type=int, metavar="N", help="First offset of it, by describe-producers.")
@click.option("--outcome", type=click.Choice(["committed", "aborted"]), help="Outcome of the transaction.")
@click.option(
    "--batches",
    type=click.File(),
    help="Output of kafka-dump-log.sh ('-': from standard input), which tells the records of a committed transaction"
    " from copies.",
)
@click.option(
    "--by-headers",
    is_flag=True,
    help="In place of --batches: each record that names the delay partition belongs to the transaction, since no"
    " application forwards released records to the place.",
)
@click.option(
    "--transactional-id", metavar="ID", help="Id of the lane that has it open, by kafka-transactions.sh list."
)
@click.option("--of", multiple=True, metavar="TOPIC/PARTITION", help="Delay partition with records in it (of a lane).")
def end_transaction_command(
    partition: str,
    place: str,
    config_file: Path | None,
    *,
    as_json: bool,
    producer_id: int | None,
    start_offset: int | None,
    outcome: str | None,
    batches: TextIO | None,
    by_headers: bool,
    transactional_id: str | None,
    of: tuple[str, ...],
) -> None:
    """End a transaction of a delay partition that the brokers have forgotten.

    TOPIC/PARTITION is the delay partition, WHERE/PARTITION the place where the transaction is open. Without
    --producer-id, --start-offset and --outcome the command shows the open transaction, and changes nothing.
    """
    if len({producer_id is None, start_offset is None, outcome is None}) > 1:
        raise click.UsageError("give --producer-id, --start-offset and --outcome together, or none of them to look")
    config = load(config_file)
    name, number = parse_place(partition, "end-transaction", "orders.delay/0")
    topic = config.require_delay_topic(name, f"end-transaction {partition}: ")
    at = parse_place(place, "end-transaction", "orders/0")
    prefix = f"{config.router.group_id}.lane."
    if transactional_id is not None and not transactional_id.startswith(prefix):
        raise click.UsageError(f"--transactional-id is for that of a lane, which begins with {prefix}")
    sources = [parse_place(each, "end-transaction --of", "orders.delay/1") for each in of]
    client = reach.connect(config)
    operations = ("Read",) if producer_id is None else ("Read", "Write")
    reach.require_rights(config, client, {topic.state: operations, at[0]: operations})
    dumped = None if batches is None else Batches(batches)
    command = ending.EndTransaction(config, client, topic, number, at, transactional_id, sources, dumped)
    if outcome == "committed" and command.has_foreign_records and (dumped is not None) == by_headers:
        raise click.UsageError(
            f"give --batches FILE, the output of kafka-dump-log.sh for {place}: it tells the records of the transaction"
            " from copies that applications forward, which would be doubled. Or give --by-headers, if no application"
            f" forwards released records to {at[0]}"
        )
    if producer_id is None or start_offset is None:
        _show_transaction(command, partition, config.bootstrap, as_json=as_json)
    else:
        records = command.end(producer_id, start_offset, committed=outcome == "committed")
        if as_json:
            print_json({"place": place, "outcome": outcome, "records_written_again": records})
        else:
            click.echo(f"{place}: ended as {outcome}; {records} records were written again")


def _show_transaction(command: ending.EndTransaction, partition: str, bootstrap: str, *, as_json: bool) -> None:
    shown = command.show()
    if as_json:
        print_json(shown.as_json())
        return
    for line in shown.lines(partition, command.transactional_id, bootstrap):
        click.echo(line)


@click.group("retries")
def retries_group() -> None:
    """Explain the retries of delay topics."""


@retries_group.command("explain", epilog=examples("retries explain orders.retry"))
@topic_argument()
@config_option
@json_option
def explain_command(topic: str, config_file: Path | None, *, as_json: bool) -> None:
    """Print each attempt of a record, its wait, and the time since the first failure.

    The configuration decides; a policy may set another retry (delay-router policy get TOPIC).
    """
    retry = load(config_file).require_delay_topic(topic).retry.rule
    if retry is None:
        raise ConfigError(f"{topic} counts no attempts; its key retry makes it count them")
    rows = list(ladder(retry))
    if as_json:
        keys = ("attempt", "at_least_ms", "wait_ms", "total_ms")
        attempts = [dict(zip(keys, row, strict=True)) for row in rows]
        print_json({"topic": topic, "attempts": attempts, "dead_letter": retry.dead_letter})
        return
    shown = [
        (str(number), spoken_duration(most), spoken_duration(least) if retry.jitter else "", spoken_duration(total))
        for number, least, most, total in rows
    ]
    print_table(("attempt", "wait", "at least", "total"), shown, folding=())
    click.echo(f"then: {retry.dead_letter}, at once, with delay-attempts-exhausted: {retry.attempts}")
