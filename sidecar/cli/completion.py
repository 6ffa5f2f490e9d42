"""The command ``completion``: a script for a shell, which then asks this program what may come next."""

import click
from click.shell_completion import get_completion_class

PROGRAM = "delay-router"
_VARIABLE = "_DELAY_ROUTER_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print a completion script; in bash: eval "$(delay-router completion bash)"."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    click.echo(kind(ctx.find_root().command, {}, PROGRAM, _VARIABLE).source())
