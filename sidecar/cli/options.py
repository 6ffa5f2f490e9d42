"""What the commands share: the configuration option, tables for people, JSON for scripts, and exit codes."""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from confluent_kafka import KafkaException
from rich.console import Console
from rich.table import Table
from rich.text import Text

from index.errors import ConfigError, DelayRouterError
from sidecar.config import model as configuration
from sidecar.config.model import Config
from sidecar.config.sources import ENV_FILE
from sidecar.logs import events
from sidecar.topics.findings import Finding, Level

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2

PIPE_WIDTH: Final = 1_000

Command = TypeVar("Command", bound=Callable[..., Any])

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.ERROR: "bold red"}


class Commands(click.Group):
    """A group whose errors are one clear line and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; configuration and usage give 2, failures 1."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            _fail(str(error), WRONG_USAGE)
        except DelayRouterError as error:
            _fail(str(error), FAILED)
        except KafkaException as exception:
            _fail(f"Kafka: {exception.args[0].str()}", FAILED)


def config_option(command: Command) -> Command:
    """``--config FILE``, as the argument ``config_file``."""
    option = click.option(
        "--config",
        "-c",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=ENV_FILE,
        help="Configuration file; default ./delay-router.toml.",
    )
    return option(command)


def json_option(command: Command) -> Command:
    """``--json``, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(command)


def load(config_file: Path | None) -> Config:
    """The configuration; until a command says otherwise, only errors are logged, and those of Kafka clients are not.

    A client tells of each attempt to connect; a command asks whether anybody answers and says why not, once.
    """
    events.configure("error")
    events.librdkafka_logger().setLevel(logging.CRITICAL)
    return configuration.load(config_file)


def print_json(value: object) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(value, indent=2))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on stdout; cells are shown as they are, never read as markup."""
    table = Table(title=title or None, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    # Into a pipe or file a table is as wide as it needs; rich would fold it at 80.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def print_findings(findings: Sequence[Finding]) -> None:
    """A line a finding; the remedy below it, unbroken so that it can be copied."""
    console = Console(soft_wrap=True)
    for finding in findings:
        line = Text(f"{finding.level.value:5} ", style=_STYLES[finding.level])
        line.append(f"{finding.thing}: {finding.message}", style="default")
        console.print(line)
        if finding.remedy:
            console.print(Text(f"      mend: {finding.remedy}"))


def exit_code(findings: Iterable[Finding]) -> int:
    """1 when any finding is an error."""
    return FAILED if any(finding.is_error for finding in findings) else DONE


def shown_time(time_ms: int | None) -> str:
    """Epoch milliseconds as UTC, to the millisecond; a dash for none."""
    if time_ms is None:
        return "-"
    try:
        moment = datetime.fromtimestamp(time_ms / 1_000, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"
    return moment.isoformat(sep=" ", timespec="milliseconds").replace("+00:00", "Z")


def _fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines() or [""]:
        click.echo(f"error: {line}", err=True)
    raise click.exceptions.Exit(code)
