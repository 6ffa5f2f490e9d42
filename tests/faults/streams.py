"""Runs a real application of Kafka Streams with exactly-once, which forwards headers with records by default."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sidecar.dev.local_kafka import maven
from tests.integration.scenario import Stage
from tests.support import java_programs

FORWARDED: Final = "forwarded"
"""The header of copies; the application does not copy a record that has it."""

_HERE: Final = Path(__file__).parent
_CLOSE_S: Final = 60.0


def class_path(into: Path) -> str:
    """Compile the application, and return its class path; skip the test if that is impossible.

    With CI=true it is an error.
    """
    with java_programs.or_skip("Kafka Streams"):
        jars = java_programs.libraries("streams", _HERE / "pom.xml", f"-Dkafka.version={maven.kafka_version()}")
        return java_programs.compiled([_HERE / "Forwarding.java"], jars, into)


class StreamsApplication:
    """A process that copies a topic to another one; its transactions stay open for ``commit_ms``."""

    def __init__(
        self, classes: str, stage: Stage, source: str, target: str, *, commit_ms: int, directory: Path
    ) -> None:
        java = [maven.java().path, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classes]
        topics = [stage.bootstrap, f"{stage.word}.application", source, target]
        self._call = [*java, "Forwarding", *topics, str(commit_ms), str(directory / "streams")]
        self._log = directory / "streams.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._call, stdin=subprocess.PIPE, stdout=output, stderr=output)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        if error is not None:
            print(self._log.read_text(errors="replace"))

    def close(self) -> None:
        """Let the application commit the records that it has read, and end."""
        assert self._process is not None
        self._process.communicate(timeout=_CLOSE_S)
        assert self._process.returncode == 0, self._log.read_text(errors="replace")
