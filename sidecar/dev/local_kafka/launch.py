"""Builds the command that runs Kafka's classes, with a class archive that halves the time of a start.

Much of a broker's start is loading and verifying classes, which the JVM can keep in an archive (class data sharing).
Measured on 2 cores, two runs each: from an empty directory to the first answer 1.8 and 2.9 s with the archive, 4.6 and
4.9 s without; a restart 1.3 and 2.9 s with it, 3.5 s twice without. Tests restart brokers often, so the archive is made
once for each Java and kept beside the jars. It is only an optimisation: the JVM ignores an archive that does not fit,
and if it cannot be made, brokers run without one.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from sidecar.dev.local_kafka import maven
from sidecar.dev.local_kafka.errors import KafkaUnavailable
from sidecar.dev.local_kafka.own import LocalCluster
from sidecar.dev.local_kafka.settings import TEST_JVM


def launcher(say: Callable[[str], None]) -> list[str]:
    """Return the beginning of a Java command line: program, class path and archive, without a main class.

    Raise :class:`KafkaUnavailable` when there is no Java or no way to the jars.
    """
    java = maven.java()
    libs = maven.jars(say)
    # Listed and sorted, because an archive fits only one order of the jars, and "libs/*" has no fixed order.
    plain = [java.path, "-cp", ":".join(str(jar) for jar in sorted(libs.glob("*.jar")))]
    archive = libs / f"classes-{maven.digest(java.version.encode())}.jsa"
    if not archive.exists():
        with maven.locked(maven.lock_file(libs)):
            if not archive.exists():
                say("preparing a class archive, so that brokers start in half the time (once)")
                _make(archive, plain)
    # An empty file marks a failed attempt.
    return [*plain, f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if archive.stat().st_size else plain


def _make(archive: Path, plain: list[str]) -> None:
    """Run one broker from its start to an orderly stop, which writes its loaded classes into the archive."""
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=archive.parent) as scratch:
        made = Path(scratch) / archive.name
        owner = LocalCluster(1, [*plain, *TEST_JVM], lambda _: {})
        try:
            node = owner.start().nodes[0]
            node.stop()
            node.start(jvm=[f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable"])
            node.stop()
        except KafkaUnavailable:
            made.unlink(missing_ok=True)
        finally:
            owner.remove(keep_logs=False)
        if not made.exists():
            made.touch()
        made.rename(archive)
