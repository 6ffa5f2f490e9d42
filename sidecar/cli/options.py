"""What the commands share: options, how the configuration is loaded, and exit codes with their error lines."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from confluent_kafka import KafkaException

from index.errors import ConfigError, DelayRouterError
from sidecar.config import model as configuration
from sidecar.config.model import Config
from sidecar.config.sources import ENV_FILE
from sidecar.logs import events
from sidecar.topics.findings import Finding

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2

Command = TypeVar("Command", bound=Callable[..., Any])


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


def exit_code(findings: Iterable[Finding]) -> int:
    """1 when any finding is an error."""
    return FAILED if any(finding.is_error for finding in findings) else DONE


def _fail(message: str, code: int) -> NoReturn:
    for line in message.splitlines() or [""]:
        click.echo(f"error: {line}", err=True)
    raise click.exceptions.Exit(code)
