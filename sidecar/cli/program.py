"""The command ``delay-router``: its commands are thin layers over the modules that do the work.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.

A command is loaded when it is called, and the modules for its work when it does the work. So the list of commands,
their help and completions come at once, and no command waits for modules that only another one needs.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class

from index.errors import ClusterError, ConfigError, DelayRouterError
from sidecar import __version__
from sidecar.cli.options import FAILED, WRONG_USAGE, config_option, examples, fail, json_option, load
from sidecar.extras import install_hint

PROGRAM: Final = "delay-router"
_SUMMARY: Final = 66
"""Most characters of a summary, so that a line of the list fits a terminal of 80."""

_COMPLETION_VARIABLE: Final = "_DELAY_ROUTER_COMPLETE"


class Commands(click.Group):
    """A group of commands that reports an error as one clear line and an exit code, never as a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; exit with 2 for errors of configuration or usage, with 1 for failures."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            fail(str(error), WRONG_USAGE)
        except ClusterError as error:
            fail(f"Kafka: {error}", FAILED)
        except DelayRouterError as error:
            fail(str(error), FAILED)
        except _client_errors() as exception:
            fail(f"Kafka: {exception.args[0].str()}", FAILED)


def _client_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of Kafka clients; none while no client is loaded."""
    client = sys.modules.get("confluent_kafka")
    return (client.KafkaException,) if client else ()


class Later(click.Command):
    """An entry of the list of commands; the command itself is loaded when it is called."""

    def __init__(self, name: str, place: str, summary: str) -> None:
        """Set the entry up; `place` is MODULE:ATTRIBUTE below :mod:`sidecar.cli`."""
        super().__init__(name, short_help=summary)
        self._place = place

    def load(self) -> click.Command:
        """Load the command."""
        module, _, attribute = self._place.partition(":")
        found = getattr(import_module(f"sidecar.cli.{module}"), attribute)
        assert isinstance(found, click.Command), f"{self._place} is no command"
        return found

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the command itself, so that click runs and completes that command."""
        return self.load().make_context(info_name, args, parent, **extra)


LATER: Final = (
    Later("init", "topics:init_command", "Create missing topics and check existing ones."),
    Later("check", "topics:check_command", "Check configuration, topics, rights and retention."),
    Later("verify", "topics:verify_command", "Check all that is stored of a delay topic."),
    Later("start-over", "topics:start_over_command", "Release the records of a delay partition again."),
    Later("end-transaction", "topics:end_transaction_command", "End a forgotten transaction."),
    Later("send", "records:send_command", "Send a record to a delay topic."),
    Later("status", "status:status_command", "Show the partitions of the group of routers."),
    Later("pending", "operations:pending_command", "Count pending records by time to go and by target."),
    Later("schedules", "schedules:schedules_command", "List the pending schedules."),
    Later("lookup", "operations:lookup_command", "Show the fate of one record."),
    Later("find", "operations:find_command", "Show everything that became of an id."),
    Later("cancel", "schedules:cancel_command", "Cancel the pending schedules of an id."),
    Later("move", "schedules:move_command", "Give the schedule of an id another due time."),
    Later("pause", "operations:pause_command", "Stop releasing from a delay topic or to a target."),
    Later("resume", "operations:resume_command", "End a pause, and release again."),
    Later("drain", "operations:drain_command", "Seal all partitions of a topic and give them up."),
    Later("plan", "operations:plan_command", "Compute the processes, memory and disk of a load."),
    Later("undrain", "operations:undrain_command", "Serve the partitions of a delay topic again."),
    Later("rejected", "rejected:rejected_group", "Show rejected records, and drive them again."),
    Later("retries", "topics:retries_group", "Explain the waits of a delay topic that counts attempts."),
    Later("policy", "policy:policy_group", "Show and change the settings of running routers."),
)
"""Commands, with the line that ``--help`` and a completion show for each."""

SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Try it": ("dev", "demo"),
    "Set up and run": ("plan", "init", "check", "run", "config", "retries", "completion"),
    "Records": ("send", "schedules", "find", "lookup", "cancel", "move", "rejected"),
    "Watch and steer": ("status", "pending", "policy", "pause", "resume", "drain", "undrain"),
    "Damage": ("verify", "start-over", "end-transaction"),
    "Bulk work": ("spark",),
}
"""The order of the commands in ``--help``: an operator who is in a hurry looks for a purpose, not for a letter."""


class Program(Commands):
    """The whole program; its help lists the commands by purpose."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write a section for each purpose."""
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(_SUMMARY)) for name in names])


def _tell_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        # Only this option needs the commit, for which a clone has to ask git.
        from sidecar.commit import built_from  # noqa: PLC0415

        click.echo(f"{PROGRAM}, version {__version__}, commit {built_from()}")
        ctx.exit()


@click.group(
    cls=Program,
    epilog=examples("dev", "send orders.delay --value hello --after 15m", "status"),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_tell_version,
    help="Show the version and the commit, and exit.",
)
@click.option("--verbose", "-v", is_flag=True, help="Show the logs of Kafka clients, too.")
def cli(verbose: bool) -> None:
    """Deliver Kafka records later: never early, exactly once."""


@cli.command("run", short_help="Run the router until SIGTERM.")
@config_option
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Routers to run: each uses one core, and listens 10 ports above the one before.",
)
def run_command(config_file: Path | None, processes: int) -> None:
    """Run the router until SIGTERM; the topics must exist (delay-router init).

    The log goes to stderr, a JSON object a line. On the address of [http] listen, /readyz says whether every partition
    is served, and /metrics has the numbers. Start any number of routers: those of one group_id share the partitions.

    With --processes this process only starts the routers, and starts a router that has ended again. The settings, such
    as payload_memory, hold for each of them.
    """
    # Only this command needs these modules.
    from sidecar import app  # noqa: PLC0415
    from sidecar.kafka.client import admin  # noqa: PLC0415
    from sidecar.logs import events  # noqa: PLC0415

    config = load(config_file)
    events.configure(config.router.log_level)
    config.require_delay_topics()
    # Connect first: it names a key that librdkafka does not know before the router starts.
    admin.connect(config)
    sys.exit(app.run(config) if processes == 1 else app.run_several(config, config_file, processes))


@cli.command("demo", short_help="Start a broker and a router, and watch records wait.")
@click.option("--orders", type=click.IntRange(1, 1_000), default=30, show_default=True, help="Orders to send.")
@click.option("--no-kill", is_flag=True, help="Let the router live.")
def demo_command(orders: int, no_kill: bool) -> None:
    """Start a Kafka and a router, send orders with delays of 0 to 10 s, and count their fates in the topics.

    One order is cancelled and one is replaced. One fails twice at its consumer and is retried, one fails until no
    attempt is left, and the router is killed in the middle. KAFKA_BOOTSTRAP_SERVERS=HOST:PORT uses a running cluster,
    in topics of its own that are deleted at the end.
    """
    from sidecar.dev import demo  # noqa: PLC0415 - it brings a broker along

    sys.exit(demo.main(orders, kill=not no_kill))


@cli.command("dev", short_help="Run a Kafka and a router of their own until Ctrl-C.")
@click.option("--port", type=click.IntRange(1, 65_535), default=9092, show_default=True, help="Port of Kafka.")
def dev_command(port: int) -> None:
    """Run a Kafka and a router of their own until Ctrl-C, to try producers on.

    Once both are ready it prints the commands for another terminal, and then each record that arrives. Nothing is left
    behind.
    """
    from rich.console import Console  # noqa: PLC0415 - as long as it takes to load

    from sidecar.dev import demo  # noqa: PLC0415

    sys.exit(demo.stay(port, Console()))


@cli.command(
    "spark",
    short_help="Run a bulk job: index, rebuild, schedule, export, audit.",
    add_help_option=False,
    context_settings={"ignore_unknown_options": True},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def spark_command(arguments: tuple[str, ...]) -> None:
    """Run a bulk job on Spark, as python -m spark_backfill does where this program is installed."""
    if find_spec("pyspark") is None:
        raise ConfigError(f"Spark is not installed beside this program: {install_hint('spark', 'image-spark')}")
    os.execv(sys.executable, [sys.executable, "-m", "spark_backfill", *arguments])  # noqa: S606 - no shell is wanted


@cli.command("config", short_help="Print the effective configuration, secrets masked.")
@config_option
@json_option
@click.option("--reference", is_flag=True, help="Print the reference of all keys instead (Markdown).")
def config_command(config_file: Path | None, as_json: bool, reference: bool) -> None:
    """Print the effective configuration, secrets masked."""
    # Only this command needs the tables of keys. It logs nothing, so it does not configure the logs.
    from sidecar.cli.output import print_json  # noqa: PLC0415
    from sidecar.config import model as configuration  # noqa: PLC0415
    from sidecar.config.reference import effective, render_effective, render_reference  # noqa: PLC0415

    if reference:
        click.echo(render_reference(), nl=False)
        return
    config = configuration.load(config_file)
    if as_json:
        print_json(effective(config))
    else:
        click.echo(render_effective(config), nl=False)


@cli.command("completion", short_help="Print a completion script for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a completion script; in bash: eval "$(delay-router completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, _COMPLETION_VARIABLE).source())


for command in LATER:
    cli.add_command(command)


def main() -> None:
    """Run the console script, and end the process without the end of the interpreter.

    A client of Kafka may still live in a thread. If it gets the answer to a request after the interpreter has ended, it
    calls into the interpreter, and the process dies by SIGSEGV instead of its exit code (confluent-kafka 2.16,
    ``Admin_background_event_cb``). A thread that hangs in a client would keep the interpreter from ending at all.
    """
    code: int | str | None = FAILED
    try:
        cli.main(prog_name=PROGRAM)
    except SystemExit as end:
        code = end.code
    except Exception:  # noqa: BLE001 - the interpreter would do the same
        sys.excepthook(*sys.exc_info())
    try:
        click.echo(nl=False)
    except OSError as error:
        code = FAILED
        click.echo(f"the output is not complete: {error}", err=True)
    os._exit(int(code or 0))
