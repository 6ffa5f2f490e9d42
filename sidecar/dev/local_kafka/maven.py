"""Gets the Kafka jars, which Maven resolves once into a cache directory, and finds the Java that runs them.

``KAFKA_VERSION`` or else ``pom.xml`` gives the version. The cache is
``$XDG_CACHE_HOME/kafka-delay-router/kafka-<version>-<digest of pom.xml>`` (``~/.cache`` without the variable), so that
a changed ``pom.xml`` gets a directory of its own. A download goes to a temporary directory beside it and is renamed
into place when it is complete; a lock file makes parallel runs wait for the first one. Maven's own configuration, never
this module, chooses the registry.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from sidecar.dev.local_kafka.errors import KafkaUnavailable

POM: Final = Path(__file__).with_name("pom.xml")
VERSION_VARIABLE: Final = "KAFKA_VERSION"
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+")

# Kafka 4 brokers are compiled for Java 17; older ones run on it.
MIN_JAVA: Final = 17

# 46 jars, 44 MB: some seconds on a fast network; a slow mirror must not block for ever.
DOWNLOAD_TIMEOUT_S: Final = 900.0


class Java(NamedTuple):
    """A Java found on this machine: its path, and the whole output of ``java -version``."""

    path: str
    version: str


def kafka_version() -> str:
    """Return the version of Kafka to run: the one in ``KAFKA_VERSION``, else the one in ``pom.xml``."""
    named = os.environ.get(VERSION_VARIABLE, "").strip()
    if named and not _VERSION.fullmatch(named):
        raise KafkaUnavailable(f"{VERSION_VARIABLE}={named} is no version: write it as in {VERSION_VARIABLE}=3.9.1")
    return named or re.findall(r"<kafka\.version>([\d.]+)<", POM.read_text(encoding="utf-8"))[0]


def java() -> Java:
    """Return a Java that can run the broker: ``$JAVA_HOME/bin/java``, else the one on the PATH.

    Raise :class:`KafkaUnavailable` when there is none or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise KafkaUnavailable("Java is missing")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False).stderr
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    major = int(match[1]) if match else 0
    if major < MIN_JAVA:
        raise KafkaUnavailable(f"Java {MIN_JAVA} or newer is needed, {found} is version {major or 'unknown'}")
    return Java(found, said)


def cache_dir() -> Path:
    """Return the directory for the jars of this version, which need not exist yet."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return root / "kafka-delay-router" / f"kafka-{kafka_version()}-{digest(POM.read_bytes())}"


def check() -> None:
    """Raise :class:`KafkaUnavailable` when Java is missing, or the jars are not cached and Maven is missing."""
    missing: list[str] = []
    for needed in (java, _maven_unless_cached):
        try:
            needed()
        except KafkaUnavailable as error:
            missing.append(str(error))
    if missing:
        raise KafkaUnavailable(", ".join(missing))


def jars(say: Callable[[str], None]) -> Path:
    """Return the directory with the jars of the broker; fetch them with Maven the first time.

    ``say`` gets one line before a download. Raise :class:`KafkaUnavailable` when Maven is missing or fails.
    """
    target = cache_dir()
    if target.is_dir():
        return target
    with locked(lock_file(target)):
        if not target.is_dir():
            say(f"fetching the Kafka {kafka_version()} jars (44 MB, once) into {target}")
            _download(_maven(), target)
    return target


def digest(content: bytes) -> str:
    """Return a short name for a content."""
    return hashlib.sha256(content).hexdigest()[:8]


def lock_file(target: Path) -> Path:
    """Return the file to lock while an entry of the cache is being made."""
    return target.with_name(f"{target.name}.lock")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file; wait while another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(maven: str, target: Path) -> None:
    version = kafka_version()
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        shutil.copy(POM, scratch)
        libs = Path(scratch) / "libs"
        command = [maven, "--batch-mode", "--quiet", "--strict-checksums", "dependency:copy-dependencies"]
        command += [f"-Dkafka.version={version}", "-DincludeScope=runtime", f"-DoutputDirectory={libs}"]
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
            message = f"Maven did not fetch the Kafka jars within {DOWNLOAD_TIMEOUT_S:.0f} s"
            raise KafkaUnavailable(message) from error
        if done.returncode or not (libs / f"kafka_2.13-{version}.jar").is_file():
            raise KafkaUnavailable(f"Maven could not fetch the Kafka jars: {_first_line(done.stdout)}")
        libs.rename(target)


def _first_line(output: str) -> str:
    """Return the first line of Maven's error, which names the artifact; the other lines are advice on flags."""
    lines = [line.removeprefix("[ERROR]").strip() for line in output.splitlines() if line.strip()]
    return lines[0] if lines else "it printed nothing"


def _maven_unless_cached() -> None:
    if not cache_dir().is_dir():
        _maven()


def _maven() -> str:
    found = shutil.which("mvn")
    if found is None:
        raise KafkaUnavailable("Maven is missing")
    return found
