"""Shared parts of the commands: options, lines for people on stderr, and exit codes."""

import re
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
from confluent_kafka import KafkaException
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from index.errors import ConfigError, DelayRouterError
from spark_backfill.settings import ENV_FILE

FAILED: Final = 1
WRONG_USAGE: Final = 2

_MISSING_RIGHT: Final = re.compile(r"AUTHORIZATION_FAILED|AuthorizationException")
"""Matches names of errors of librdkafka, and of the Java client within Spark."""

Command = TypeVar("Command", bound=Callable[..., Any])


class JobCommands(click.Group):
    """A group whose errors are one clear line and an exit code, never a traceback."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the command; configuration and usage errors exit with 2, failures with 1."""
        try:
            return super().invoke(ctx)
        except ConfigError as error:
            fail(str(error), WRONG_USAGE)
        except DelayRouterError as error:
            fail(str(error), FAILED)
        except KafkaException as exception:
            failure = exception.args[0]
            fail(f"Kafka: {failure.str()}{_about_rights(failure.name(), ctx)}", FAILED)
        # PySpark passes on errors that it does not know as they came over its bridge to the JVM.
        except (PySparkException, Py4JJavaError) as error:
            fail(f"Spark: {first_lines(str(error))}{_about_rights(str(error), ctx)}", FAILED)


def _about_rights(said: str, ctx: click.Context) -> str:
    """Return the end of a message about missing rights; empty for other messages, which ``said`` tells."""
    if _MISSING_RIGHT.search(said) is None:
        return ""
    return f"; the rights that the job needs: delay-router check --acls --job {ctx.invoked_subcommand}"


def config_option(command: Command) -> Command:
    """Add ``--config FILE``, as the argument ``config_file``."""
    option = click.option(
        "--config",
        "-c",
        "config_file",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=ENV_FILE,
        help="Configuration file of the router; default ./delay-router.toml.",
    )
    return option(command)


def conf_option(command: Command) -> Any:
    """Add ``--conf KEY=VALUE`` and ``--master URL``, as the argument ``conf``: settings of the Spark session."""

    @click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark, as spark-submit takes it; repeatable."
    )
    @click.option("--master", metavar="URL", help="The same as --conf spark.master=URL; default: this machine.")
    @wraps(command)
    def with_conf(*, conf: tuple[str, ...], master: str | None, **others: Any) -> object:
        return command(conf=conf if master is None else (*conf, f"spark.master={master}"), **others)

    return with_conf


def kafka_option(command: Command) -> Command:
    """Add ``--kafka-option KEY=VALUE``, as the argument ``kafka_options``: settings of Spark's Kafka connector."""
    option = click.option(
        "--kafka-option",
        "kafka_options",
        multiple=True,
        metavar="KEY=VALUE",
        help="An option of Spark's Kafka connector, as in kafka.ssl.truststore.location=...; repeatable. "
        "Needed only where the router's [kafka] keys do not tell it.",
    )
    return option(command)


def say(line: str) -> None:
    """Print a line for the waiting user; stdout is for results."""
    click.echo(f"{time.strftime('%H:%M:%S')} {line}", err=True)


def fail(message: str, code: int) -> NoReturn:
    """Print an error and end with an exit code."""
    for line in message.splitlines() or [""]:
        click.echo(f"error: {line}", err=True)
    raise click.exceptions.Exit(code)


def first_lines(text: str, count: int = 12) -> str:
    """Return the first lines of a message of Spark; the others are a stack trace of the JVM."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return "\n".join(lines[:count])
