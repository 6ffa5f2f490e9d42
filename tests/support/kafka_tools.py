"""Kafka's own command line tools, which are not among the broker's jars: fetched once by Maven, run in a JVM."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from sidecar.dev.local_kafka import maven
from sidecar.dev.local_kafka.errors import KafkaUnavailable

MOVED_ACLS = (4, 0)
MOVED_CONFIGS = (4, 4)

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_SILENT = Path(maven.__file__).with_name("log4j2.yaml")


def class_path() -> str:
    """Return the class path of broker, clients and tools; KafkaUnavailable when it cannot be had."""
    libs = maven.jars(print)
    tools = libs.with_name(f"kafka-tools-{maven.kafka_version()}")
    with maven.locked(maven.lock_file(tools)):
        if not any(tools.glob("*.jar")):
            _fetch(tools)
    return f"{tools}/*:{libs}/*"


def command(main_class: str, *arguments: str, classes: str | None = None) -> list[str]:
    """Return a command that runs one of Kafka's classes, as the scripts of a Kafka installation do."""
    java = [maven.java().path, "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={_SILENT}"]
    return [*java, "-cp", class_path() if classes is None else classes, main_class, *arguments]


def acls() -> str:
    """Return the class behind kafka-acls.sh."""
    return _moved("AclCommand", MOVED_ACLS)


def configure(bootstrap: str, kind: str, name: str, settings: Mapping[str, object]) -> None:
    """Set configurations of a thing of this kind: ``clients``, ``groups``."""
    pairs = ",".join(f"{key}={value}" for key, value in settings.items())
    whose = ["--entity-type", kind, "--entity-name", name]
    command = _moved("ConfigCommand", MOVED_CONFIGS)
    run(command, ["--bootstrap-server", bootstrap, "--alter", *whose, "--add-config", pairs])


def limit_producers(bootstrap: str, group_id: str, bytes_a_second: int) -> None:
    """Give the producers that release records for a group of routers this quota on each broker."""
    configure(bootstrap, "clients", f"{group_id}-release", {"producer_byte_rate": bytes_a_second})


def run(main_class: str, arguments: Sequence[str], stdin: str = "") -> str:
    """Run a tool to its end and return its output; AssertionError with the output when it failed."""
    call = command(main_class, *arguments)
    done = subprocess.run(call, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{main_class} {arguments}:\n{done.stdout}{done.stderr}"
    return done.stdout


def _moved(name: str, since: tuple[int, int]) -> str:
    """Return a class that newer versions have in another package."""
    major, minor, *_ = map(int, maven.kafka_version().split("."))
    return f"org.apache.kafka.tools.{name}" if (major, minor) >= since else f"kafka.admin.{name}"


def _fetch(tools: Path) -> None:
    mvn = shutil.which("mvn")
    if mvn is None:
        raise KafkaUnavailable("Maven is missing")
    artifact = f"-Dartifact=org.apache.kafka:kafka-tools:{maven.kafka_version()}"
    call = [mvn, "--batch-mode", "--quiet", _COPY, artifact, f"-DoutputDirectory={tools}"]
    done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise KafkaUnavailable(f"Maven could not fetch kafka-tools: {done.stdout.strip()[:300]}")
