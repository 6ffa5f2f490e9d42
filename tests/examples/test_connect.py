"""Runs the sink of RECIPES.md that tries again: a worker of Kafka Connect, whose dead letters go to a retry topic."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka import free_port, maven
from tests.docs.documents import blocks
from tests.integration.scenario import Stage, header, wait_until
from tests.support import java_programs
from tests.support.paths import ROOT

HERE: Final = Path(__file__).parent / "connect"
STARTS_WITHIN_S: Final = 120.0


def printed() -> str:
    """Return the settings of the document."""
    (found,) = [each.text for each in blocks(ROOT / "RECIPES.md") if "errors.tolerance" in each.text]
    return found


@contextmanager
def worker(stage: Stage, sink: dict[str, str], settings: str, folder: Path) -> Iterator[Path]:
    """Run a worker with a sink that writes to a file; yield the file."""
    with java_programs.or_skip("Kafka Connect"):
        java = [maven.java().path, "-XX:TieredStopAtLevel=1"]
        jars = java_programs.libraries("connect", HERE / "pom.xml")
    converters = "org.apache.kafka.connect"
    shared = {
        "bootstrap.servers": stage.bootstrap,
        "listeners": f"http://127.0.0.1:{free_port()}",
        "key.converter": f"{converters}.converters.ByteArrayConverter",
        "value.converter": f"{converters}.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "offset.storage.file.filename": str(folder / "offsets"),
    }
    written = folder / "written"
    sink = {"name": f"{stage.word}-sink", "connector.class": "FileStreamSink", "file": str(written), **sink}
    files = folder / "worker.properties", folder / "sink.properties"
    for file, values, more in zip(files, (shared, sink), ("", settings), strict=True):
        file.write_text("".join(f"{name}={value}\n" for name, value in values.items()) + more, encoding="utf-8")
    call = [*java, "-cp", f"{jars}/*", "org.apache.kafka.connect.cli.ConnectStandalone", *map(str, files)]
    with (folder / "log").open("wb") as log, subprocess.Popen(call, stdout=log, stderr=log, cwd=folder) as running:
        try:
            yield written
        except AssertionError as error:
            error.add_note((folder / "log").read_text(errors="replace")[-4_000:])
            raise
        finally:
            running.kill()


def test_what_a_sink_cannot_read_comes_back_until_it_is_exhausted(kafka: local_kafka.Cluster, tmp_path: Path) -> None:
    stage = Stage(kafka.bootstrap, tmp_path)
    out, dead = stage.target("out"), stage.target("dead")
    retry = {"first": "200ms", "attempts": 2, "dead_letter": dead}
    delay = stage.delay("retry", default_target=out, retry=retry)
    settings = printed().replace("orders.retry", delay)
    with stage.router() as router, worker(stage, {"topics": out}, settings, tmp_path) as written:
        router.start_and_wait()
        stage.send(delay, ("trace", b"1"), key=b"42", value=b"no JSON")
        stage.send(delay, key=b"43", value=b'{"order": 43}')
        (spent,) = stage.wait_records(dead, 1, STARTS_WITHIN_S)
        wait_until(lambda: written.exists() and "order=43" in written.read_text(), "a record that it can read")
        assert router.stop() == 0
    assert (spent.key, spent.value) == (b"42", b"no JSON")
    told = [header(spent, name) for name in ("trace", "delay-attempt", "delay-attempts-exhausted")]
    assert told == [b"1", b"2", b"2"]
    attempts = [header(each, "delay-attempt") for each in stage.records(out) if each.key == b"42"]
    assert attempts == [b"1", b"2"]
    assert stage.settle().ok
