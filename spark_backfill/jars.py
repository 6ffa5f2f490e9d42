"""The jars of Spark's Kafka connector: resolved once by Maven and kept in a cache directory.

The cache is ``$XDG_CACHE_HOME/kafka-delay-router/spark-kafka-<version>-<digest of pom.xml>`` (``~/.cache`` without the
variable). Maven's own configuration names the registry. Rejected: ``spark.jars.packages``; Ivy does not find an
artifact that Maven has left in the local repository as a POM without its jar.
"""

import fcntl
import hashlib
import importlib.resources
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from spark_backfill.errors import JobError

DOWNLOAD_TIMEOUT_S: Final = 900.0
"""4 jars, 10 MB: seconds on a good line, but a slow mirror must not look like a hang for ever."""

CONNECTOR: Final = "spark-sql-kafka-0-10"
"""Start of the name of the connector's jar, in any version."""


def connector_jars(say: Callable[[str], None]) -> list[Path]:
    """Return the jars for Spark, fetched with Maven the first time; ``say`` gets one line before that.

    Raises JobError when Maven is missing or fails.
    """
    target = _cache_dir()
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.with_name(f"{target.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.is_dir():
                say(f"fetching the Kafka connector of Spark {connector_version()} (10 MB, once) into {target}")
                _download(target)
    return sorted(target.glob("*.jar"))


def connector_version() -> str:
    """Return the version of the connector in the POM."""
    return str(re.findall(r"<connector\.version>([\d.]+)<", _pom())[0])


def _pom() -> str:
    # A path would not do: the package may lie in a zip that came with --py-files.
    return importlib.resources.files("spark_backfill").joinpath("pom.xml").read_text(encoding="utf-8")


def _cache_dir() -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(_pom().encode()).hexdigest()[:8]
    return root / "kafka-delay-router" / f"spark-kafka-{connector_version()}-{digest}"


def _download(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JobError("Maven is missing, which fetches Spark's Kafka connector; install it, or pass the jars: --jars")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        libs = Path(scratch) / "libs"
        (Path(scratch) / "pom.xml").write_text(_pom(), encoding="utf-8")
        command = [maven, "--batch-mode", "--quiet", "--strict-checksums", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
        try:
            done = subprocess.run(
                command,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=DOWNLOAD_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise JobError(f"Maven did not fetch the connector within {DOWNLOAD_TIMEOUT_S:.0f} s") from error
        if done.returncode or not list(libs.glob(f"{CONNECTOR}*.jar")):
            lines = [line.removeprefix("[ERROR]").strip() for line in done.stdout.splitlines() if line.strip()]
            raise JobError(f"Maven could not fetch the connector: {lines[0] if lines else 'it printed nothing'}")
        libs.rename(target)
