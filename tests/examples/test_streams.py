"""Runs the Kafka Streams application of PRODUCERS.md that fails: its record comes back in its next attempt."""

import subprocess
from pathlib import Path
from typing import Final

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka import maven
from tests.integration.scenario import Stage, header, released_due_ms
from tests.support import java_programs
from tests.support.client_programs import EXAMPLES
from tests.support.paths import ROOT

PROGRAM: Final = EXAMPLES / "failing" / "FailingStreams.java"
POM: Final = ROOT / "tests" / "faults" / "pom.xml"
"""Names Kafka Streams, for the applications of `tests/faults` as well."""

END_S: Final = 60


def call_of(program: Path) -> list[str]:
    """Return the call of the application; skip the test where Maven or Java is missing."""
    with java_programs.or_skip("Kafka Streams"):
        jars = java_programs.libraries("streams", POM, f"-Dkafka.version={maven.kafka_version()}")
        return [maven.java().path, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(program)]


def test_what_fails_in_kafka_streams_comes_back(kafka: local_kafka.Cluster, tmp_path: Path) -> None:
    stage = Stage(kafka.bootstrap, tmp_path)
    target, dead = stage.target(), stage.target("dead")
    retry = {"first": "2s", "jitter": 0, "attempts": 3, "dead_letter": dead}
    delay = stage.delay("retry", default_target=target, retry=retry)
    program = tmp_path / PROGRAM.name
    program.write_text(PROGRAM.read_text(encoding="utf-8").replace("orders.retry", delay), encoding="utf-8")
    call = [*call_of(program), stage.bootstrap, f"{stage.word}.application", target, str(tmp_path / "state")]
    log = tmp_path / "streams.log"
    with stage.router() as router, log.open("wb") as output:
        router.start_and_wait()
        stage.send(delay, ("trace", b"1"), key=b"42", value=b"paid")
        with subprocess.Popen(call, stdin=subprocess.PIPE, stdout=output, stderr=output) as application:
            first, again = stage.wait_records(target, 2)
            application.communicate(timeout=END_S)
        assert application.returncode == 0, log.read_text(errors="replace")
        assert [header(each, "delay-attempt") for each in (first, again)] == [b"1", b"2"]
        assert (again.key, again.value, header(again, "trace")) == (b"42", b"paid", b"1")
        (sent_again,) = stage.records(delay)[1:]
        assert released_due_ms(again) == sent_again.timestamp_ms + 4_000
        assert sent_again.timestamp_ms > first.timestamp_ms, "the wait counts from the failure"
        assert stage.settle().ok
