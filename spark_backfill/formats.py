"""Tables in any format that Spark knows: options for its readers and writers, and its errors in a sentence.

Spark finds a format by its name among its jars. Some formats are its own, others come as a package. The packages of the
most common formats are listed here, so that an error can name them.

Options may hold secrets, such as the password of a database. These come from a file or an environment variable, and no
message or log shows them: Spark leaves them out of its plans, and texts of errors pass ``FormatOptions.hidden``.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from index.errors import ConfigError
from spark_backfill import session
from spark_backfill.cli_common import Command
from spark_backfill.errors import JobError
from spark_backfill.source import key_values

OF_FILES: Final = frozenset({"parquet", "orc", "csv", "json", "xml", "text", "avro"})
"""Formats whose source is a path, so that a job can check beforehand whether anything is there."""

_PACKAGES: Final[Mapping[str, str]] = {
    "avro": f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}",
    "delta": "io.delta:delta-spark_2.13:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:VERSION",
}
_KNOWN: Final = (*sorted(OF_FILES), "delta", "iceberg", "jdbc", "table")
_REDACTED: Final = "spark.sql.redaction.options.regex"
_MASK: Final = "***"
_OF_CLUSTERS: Final = ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "HADOOP_HOME", "YARN_CONF_DIR")
_NO_PLAIN_PATH: Final = re.compile(r"^\w+:|[*?\[{]")
"""Matches a path with a scheme or a pattern."""

_NOT_FOUND: Final = re.compile(r"DATA_SOURCE_NOT_FOUND|Failed to find (?:the )?data source")
_NO_CLASS: Final = re.compile(r"(?:ClassNotFoundException|NoClassDefFoundError): (?:Class )?([\w.$/]+)")
_NO_SCHEME: Final = re.compile(r'No FileSystem for scheme "?(\w+)"?')
_CAUSE: Final = re.compile(r"^(?:Caused by)?: (?:[\w$]+\.)+[\w$]+: (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Options of a reader or writer of Spark; the values of the keys in ``secret`` are never shown."""

    values: Mapping[str, str]
    secret: frozenset[str] = frozenset()

    def hidden(self, text: str) -> str:
        """Return the text without any secret value."""
        for value in sorted((self.values[key] for key in self.secret), key=len, reverse=True):
            text = text.replace(value, _MASK) if value else text
        return text

    def redact(self, spark: SparkSession) -> None:
        """Make Spark hide the secret options in its plans, under any key."""
        if self.secret:
            keys = "|".join(re.escape(key) for key in sorted(self.secret))
            spark.conf.set(_REDACTED, f"{spark.conf.get(_REDACTED)}|(?i)^(?:{keys})$")


def options_of(
    given: Sequence[str], files: Sequence[str], variables: Sequence[str], environ: Mapping[str, str]
) -> FormatOptions:
    """Read ``--option``, ``--option-file`` and ``--option-env``; raise ConfigError, which never has a value in it.

    >>> options_of(["url=jdbc:x"], [], ["password=DB_PASSWORD"], {"DB_PASSWORD": "hunter2"}).hidden("hunter2!")
    '***!'
    """
    plain = key_values("--option", given, "delimiter=;")
    from_files = key_values("--option-file", files, "password=/run/secrets/db")
    from_variables = key_values("--option-env", variables, "password=DB_PASSWORD")
    secrets = {key: _content(key, name) for key, name in from_files.items()}
    for key, name in from_variables.items():
        if name not in environ:
            raise ConfigError(f"--option-env {key}={name}: there is no such variable in the environment")
        secrets[key] = environ[name]
    told = [*plain, *from_files, *from_variables]
    if twice := sorted({key for key in told if told.count(key) > 1}):
        raise ConfigError(f"option {twice[0]!r} is given by two of --option, --option-file and --option-env")
    return FormatOptions({**plain, **secrets}, frozenset(secrets))


def _content(key: str, name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError):
        raise ConfigError(f"--option-file {key}={name}: the file cannot be read") from None


def format_options(of_what: str, *former: str) -> Callable[[Command], Command]:
    """Add ``--option``, ``--option-file`` and ``--option-env`` as the argument ``options``; ``former``: other names."""
    made = (
        click.option("--option", *former, "given", multiple=True, metavar="KEY=VALUE", help=f"Option of {of_what}."),
        click.option(
            "--option-file", "files", multiple=True, metavar="KEY=FILE", help="A secret option, read from a file."
        ),
        click.option(
            "--option-env",
            "variables",
            multiple=True,
            metavar="KEY=VARIABLE",
            help="A secret option, read from the environment.",
        ),
    )

    def with_options(command: Command) -> Any:
        @wraps(command)
        def joined(
            *, given: tuple[str, ...], files: tuple[str, ...], variables: tuple[str, ...], **others: Any
        ) -> object:
            return command(options=options_of(given, files, variables, os.environ), **others)

        for option in reversed(made):
            joined = option(joined)
        return joined

    return with_options


@contextmanager
def in_a_sentence(what: str, kind: str, options: FormatOptions) -> Iterator[None]:
    """Turn errors of Spark into JobError or ConfigError of one line; ``what`` is read or written in format ``kind``."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        said = options.hidden(str(error))
        if meant := remedy(kind, said):
            raise ConfigError(meant) from None
        raise JobError(f"{what} (--format {kind}): {sentence(said)}") from None


def remedy(kind: str, said: str) -> str | None:
    """Return a remedy for an error of Spark about something missing; None for other errors."""
    if _NOT_FOUND.search(said):
        near = get_close_matches(kind, [name for name in _KNOWN if name != kind], n=1)
        hint = f", did you mean {near[0]}?" if near else "."
        return f"--format {kind}: Spark has no such format on its class path{hint} {_add(_PACKAGES.get(kind))}"
    if "No suitable driver" in said:
        return (
            f"--format {kind}: no driver on Spark's class path knows this url. {_add()}; and name the class of the"
            " driver: --option driver=CLASS"
        )
    if scheme := _NO_SCHEME.search(said):
        return f"Spark has no file system for {scheme[1]}: on its class path. {_add()}"
    if missing := _NO_CLASS.search(said):
        name = missing[1].replace("/", ".")
        return f"--format {kind}: class {name} is not on Spark's class path. {_add()}"
    return None


def _add(package: str | None = None) -> str:
    return f"Add its jar: --conf spark.jars=FILE, or --conf spark.jars.packages={package or 'GROUP:NAME:VERSION'}"


def sentence(said: str) -> str:
    r"""Return the innermost cause in an error of Spark, without the trace of the JVM.

    >>> sentence("An error occurred.\n: java.lang.Error: outer\n\tat a.b\nCaused by: java.sql.SQLException: no table")
    'no table'
    """
    if causes := _CAUSE.findall(said):
        return str(causes[-1])
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return lines[0] if lines else "Spark does not say why"


def require_here(source: str | None, kind: str, conf: Sequence[str], environ: Mapping[str, str]) -> None:
    """Raise ConfigError for a path of this machine that has nothing, since Spark takes half a minute to begin.

    Says nothing of a path that may be meant for another machine or another file system: ``require_there`` asks Spark.
    """
    settings = {**session.spark_defaults(environ), **session.submit_arguments(environ), **session.parse_conf(conf)}
    is_elsewhere = (
        any(variable in environ for variable in _OF_CLUSTERS)
        or not settings.get("spark.master", "local").startswith("local")
        or any(key.startswith("spark.hadoop.fs.") for key in settings)
    )
    if source is None or kind not in OF_FILES or is_elsewhere or _NO_PLAIN_PATH.search(source):
        return
    if not Path(source).exists():
        raise ConfigError(f"{source}: there is no such file or directory ({Path(source).absolute()})")


def require_there(spark: SparkSession, source: str) -> None:
    """Raise ConfigError when a path has nothing; Spark finds that out, too, but logs a stack trace first."""
    # PySpark has no other way to ask whether a file exists in any file system.
    jvm, session = spark._jvm, spark._jsparkSession  # noqa: SLF001
    assert jvm is not None, "a session has a JVM until it is stopped"
    path = jvm.org.apache.hadoop.fs.Path(source)
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    if not files.globStatus(path):
        raise ConfigError(f"{source}: there is no such file or directory ({files.makeQualified(path).toString()})")
