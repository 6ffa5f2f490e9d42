"""Options and exit codes of the commands, and the loading of the configuration."""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from index.protocol.times import parse_instant_ms, parse_number
from sidecar.config.sources import BROKERS_VARIABLE, ENV_FILE

# These are loaded together with a configuration: neither a list of commands nor a completion needs them.
if TYPE_CHECKING:
    from sidecar.cluster.topics.findings import Finding
    from sidecar.config.model import Config

DONE: Final = 0
FAILED: Final = 1
WRONG_USAGE: Final = 2

Command = TypeVar("Command", bound=Callable[..., Any])


def config_option(command: Command) -> Command:
    """Add ``--config FILE``, as the argument ``config_file``."""
    option = click.option(
        "--config",
        "-c",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=ENV_FILE,
        help="Configuration; default: ./delay-router.toml.",
    )
    return option(command)


def json_option(command: Command) -> Command:
    """Add ``--json``, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(command)


def fail(message: str, code: int) -> NoReturn:
    """Print each line of a message as an error, and end the command with an exit code."""
    for line in message.splitlines() or [""]:
        click.echo(f"error: {line}", err=True)
    raise click.exceptions.Exit(code)


def examples(*calls: str) -> str:
    """Return the last part of a help: examples of a command, each as it is called."""
    return "\n".join(["\b", "Examples:", *(f"  delay-router {call}" for call in calls)])


class Instant(click.ParamType[int, Any]):
    """An instant in RFC 3339 with an offset, or in epoch milliseconds; its value is in epoch milliseconds."""

    name = "INSTANT"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the instant in epoch milliseconds."""
        raw = str(value).encode()
        try:
            return parse_number(raw) if raw.isdigit() else parse_instant_ms(raw)
        except ValueError as error:
            self.fail(f"{value!r}: {error}; or milliseconds since 1970", param, ctx)


def headers_given(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    """Parse the values of an option that is given as ``NAME=VALUE``, any number of times."""
    headers = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE")
        headers.append((name, value.encode()))
    return tuple(headers)


def load(config_file: Path | None, brokers: str = "") -> "Config":
    """Load the configuration, and log only errors; log Kafka clients with ``--verbose`` alone.

    ``brokers`` replaces the configured ones; then no file is needed. A client logs each attempt to connect, but a
    command tells only once why no broker answers.
    """
    from sidecar.config import model as configuration  # noqa: PLC0415 - see above
    from sidecar.logs import events  # noqa: PLC0415 - see above

    if is_verbose():
        events.configure("debug")
    else:
        events.configure("error")
        events.librdkafka_logger().setLevel(logging.CRITICAL)
    return configuration.load(config_file, {**os.environ, BROKERS_VARIABLE: brokers} if brokers else None)


def is_verbose() -> bool:
    """Say whether the command was called as ``delay-router --verbose COMMAND``."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("verbose"))


def exit_code(findings: "Iterable[Finding]") -> int:
    """Return ``FAILED`` when any finding is an error, otherwise ``DONE``."""
    return FAILED if any(finding.is_error for finding in findings) else DONE
