"""The Spark session: defaults that give way to ``--conf``, ``spark-defaults.conf`` and ``spark-submit``.

Under ``spark-submit`` the JVM runs already, with the jars it was given. ``python -m spark_backfill`` launches it here,
in local mode when no master is named anywhere.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from index.errors import ConfigError
from spark_backfill.errors import JobError
from spark_backfill.jars import CONNECTOR, connector_jars, connector_version

DEFAULTS: Final = {
    "spark.master": "local[*]",
    # The jobs print their progress themselves, in records.
    "spark.ui.showConsoleProgress": "false",
    # A batch of 10,000 records, Spark's own limit, is more than a worker's memory where records are large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16777216",
    # Times in the topics are epoch milliseconds; results must not depend on the zone of a machine.
    "spark.sql.session.timeZone": "UTC",
}

_LOG_FILE: Final = Path(__file__).with_name("log4j2.properties")
_JAR_KEYS: Final = ("spark.jars", "spark.jars.packages")


def start(application: str, conf: Sequence[str], say: Callable[[str], None]) -> SparkSession:
    """Start the session of a job. ``conf``: KEY=VALUE of the command line. ``say``: gets a line before a download.

    Raises ConfigError for an invalid ``conf``, JobError when Spark does not start or lacks the Kafka connector.
    """
    given = parse_conf(conf)
    launched = "PYSPARK_GATEWAY_PORT" in os.environ
    elsewhere = {} if launched else {**spark_defaults(os.environ), **submit_arguments(os.environ)}
    wanted: dict[str, Any] = {"spark.app.name": application, **given}
    if not launched:
        defaults = {**DEFAULTS, **log_settings(os.environ)}
        wanted |= {key: value for key, value in defaults.items() if key not in elsewhere | given}
        if not has_connector() and not any(CONNECTOR in (elsewhere | given).get(key, "") for key in _JAR_KEYS):
            own = ",".join(str(path) for path in connector_jars(say))
            others = given.get("spark.jars") or elsewhere.get("spark.jars")
            wanted["spark.jars"] = f"{others},{own}" if others else own
        # Executors of local mode are this machine's; the same Python has the same packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder
    for key, value in wanted.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except (PySparkException, OSError, RuntimeError) as error:
        raise JobError(f"Spark did not start: {error}") from error
    require_connector(spark)
    return spark


def log_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the option that has Spark log errors only, or nothing where Spark has such settings already."""
    folder = conf_folder(environ)
    if folder is not None and (folder / _LOG_FILE.name).exists():
        return {}
    # Spark logs before it has a session, so that spark.log.level would come too late.
    return {"spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOG_FILE.as_uri()}"}


def has_connector() -> bool:
    """Return whether the Spark to be started has the connector among its own jars, as in our image."""
    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    return any((home / "jars").glob(f"{CONNECTOR}*.jar"))


def parse_conf(conf: Sequence[str]) -> dict[str, str]:
    """Read KEY=VALUE as pairs; raise ConfigError for anything else."""
    pairs = {}
    for each in conf:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise ConfigError(f"--conf {each!r}: written spark.KEY=VALUE, as in spark.driver.memory=4g")
        pairs[key] = value
    return pairs


def require_connector(spark: SparkSession) -> None:
    """Raise JobError when the session cannot read Kafka."""
    try:
        # The connector complains about its options, unless it is missing.
        spark.read.format("kafka").load()
    except Exception as error:  # noqa: BLE001 -- py4j hands on IllegalArgumentException and others as it likes
        if "DATA_SOURCE_NOT_FOUND" in str(error) or "Failed to find" in str(error):
            raise JobError(
                "this Spark has no Kafka connector: pass --jars with the output of 'python -m spark_backfill jars' to"
                f" spark-submit, or --packages org.apache.spark:{CONNECTOR}_2.13:{connector_version()}"
            ) from None


def conf_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of Spark's configuration, None where no variable names one."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (str(Path(home) / "conf") if home else "")
    return Path(folder) if folder else None


def spark_defaults(environ: Mapping[str, str]) -> dict[str, str]:
    """Read the settings in ``spark-defaults.conf``; a line is a key, white space or ``=``, and a value."""
    folder = conf_folder(environ)
    if folder is None or not (file := folder / "spark-defaults.conf").is_file():
        return {}
    lines = (line.strip().replace("=", " ", 1) for line in file.read_text(encoding="utf-8").splitlines())
    pairs = (line.split(None, 1) for line in lines if line and not line.startswith("#"))
    return {pair[0]: pair[1] if len(pair) > 1 else "" for pair in pairs}


def submit_arguments(environ: Mapping[str, str]) -> dict[str, str]:
    """Read the settings in ``PYSPARK_SUBMIT_ARGS`` that matter for the defaults above."""
    words = environ.get("PYSPARK_SUBMIT_ARGS", "").split()
    options = {"--master": "spark.master", "--jars": "spark.jars", "--packages": "spark.jars.packages"}
    found = {options[word]: words[at + 1] for at, word in enumerate(words[:-1]) if word in options}
    confs = (words[at + 1].partition("=") for at, word in enumerate(words[:-1]) if word == "--conf")
    return found | {key: value for key, _, value in confs}
