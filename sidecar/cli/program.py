"""The command ``delay-router``: its commands, thin over the modules that do the work.

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.
"""

import sys
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from sidecar import __version__
from sidecar.cli.operations import operator_commands
from sidecar.cli.options import Commands, config_option, json_option, load
from sidecar.cli.output import print_json
from sidecar.cli.policy import policy_group
from sidecar.cli.records import send_command
from sidecar.cli.status import status_command
from sidecar.cli.topics import check_command, init_command, start_over_command
from sidecar.config.reference import effective, render_effective, render_reference
from sidecar.logs import events

PROGRAM: Final = "delay-router"
_COMPLETION_VARIABLE: Final = "_DELAY_ROUTER_COMPLETE"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Deliver Kafka records later: never early, exactly once."""


@cli.command("run")
@config_option
def run_command(config_file: Path | None) -> None:
    """Run the router until SIGTERM."""
    # The other commands need not wait for these to load.
    from sidecar import app  # noqa: PLC0415
    from sidecar.kafka import admin  # noqa: PLC0415

    config = load(config_file)
    events.configure(config.router.log_level)
    config.require_delay_topics()
    # Names a key that librdkafka does not know before anything is started.
    admin.connect(config)
    sys.exit(app.run(config))


@cli.command("demo", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def demo_command(options: tuple[str, ...]) -> None:
    """Start a broker and a router, and watch records being delayed."""
    from sidecar import demo  # noqa: PLC0415 - it brings a broker along

    sys.exit(demo.main(list(options)))


@cli.command("config")
@config_option
@json_option
@click.option("--reference", is_flag=True, help="Print the reference of all keys instead (Markdown).")
def config_command(config_file: Path | None, as_json: bool, reference: bool) -> None:
    """Print the effective configuration, secrets masked."""
    if reference:
        click.echo(render_reference(), nl=False)
        return
    config = load(config_file)
    if as_json:
        print_json(effective(config))
    else:
        click.echo(render_effective(config), nl=False)


@cli.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a completion script; in bash: eval "$(delay-router completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, _COMPLETION_VARIABLE).source())


for command in (
    init_command,
    check_command,
    start_over_command,
    send_command,
    status_command,
    *operator_commands,
    policy_group,
):
    cli.add_command(command)


def main() -> None:
    """Entry point of the console script."""
    cli.main(prog_name=PROGRAM)
