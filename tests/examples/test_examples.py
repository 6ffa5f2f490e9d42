"""Runs every example of PRODUCERS.md as printed: its first record is released on time, its second is cancelled."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sidecar.dev import local_kafka
from tests.integration.scenario import Stage, header, now_ms, released_due_ms
from tests.support import client_programs, kafka_tools
from tests.support.client_programs import ClientMissing

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "PRODUCERS.md"
PRINTED = {
    "delayed.py": "python",
    "Delayed.java": "java",
    "delayed.go": "go",
    "delayed.js": "js",
    "kcat.sh": "sh",
    "console.sh": "sh",
}
DELAY_MS = 2_000
START_TIMEOUT_S = 120


@dataclass(frozen=True)
class Example:
    """A command that sends two records, and cancels the second; servers and delay topic are its last arguments."""

    call: list[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, servers: str, delay_topic: str) -> None:
        done = subprocess.run(
            [*self.call, servers, delay_topic],
            env={**os.environ, **self.environment},
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def python(folder: Path) -> Example:
    """Copy the helper beside the program, under the name that the document tells."""
    shutil.copy(HERE.parents[1] / "sidecar" / "producing.py", folder / "delay_router_client.py")
    shutil.copy(HERE / "delayed.py", folder)
    return Example([sys.executable, str(folder / "delayed.py")], {"PYTHONPATH": ""})


def java(_: Path) -> Example:
    return Example(client_programs.java(HERE / "Delayed.java"))


def golang(folder: Path) -> Example:
    assert f"\n{client_programs.go_steps()}\ngo run . " in DOCUMENT.read_text(encoding="utf-8")
    return Example(client_programs.golang(HERE / "delayed.go", folder))


def node(folder: Path) -> Example:
    assert f"\nnpm install {client_programs.KAFKAJS}\nnode delayed.js " in DOCUMENT.read_text(encoding="utf-8")
    return Example(client_programs.node(HERE / "delayed.js", folder))


def kcat(_: Path) -> Example:
    if shutil.which("kcat") is None:
        raise ClientMissing("kcat is missing")
    return Example(["sh", str(HERE / "kcat.sh")])


def console(folder: Path) -> Example:
    """Provide the script of a Kafka installation's ``bin`` that the example calls, as a wrapper of the same class."""
    script = folder / "kafka-console-producer.sh"
    call = kafka_tools.command("org.apache.kafka.tools.ConsoleProducer")
    quoted = " ".join(f"'{word}'" for word in call)
    script.write_text(f'#!/bin/sh\nexec {quoted} "$@"\n')
    script.chmod(0o755)
    return Example(["sh", str(HERE / "console.sh")], {"PATH": f"{folder}:{os.environ['PATH']}"})


@pytest.fixture(scope="module")
def delivery(kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, str, str]]:
    """Yield the stage, delay topic and target topic of a running router; in the end the audit must find no fault."""
    stage = Stage(kafka.bootstrap, tmp_path_factory.mktemp("examples"))
    target = stage.target()
    delay = stage.delay(default_target=target)
    with stage.router() as router:
        router.start_and_wait()
        yield stage, delay, target
        stage.settle()
    stage.print_logs()


@pytest.mark.parametrize("client", [python, java, golang, node, kcat, console], ids=lambda client: client.__name__)
def test_an_example_is_released_on_time_and_cancelled(
    client: Callable[[Path], Example], delivery: tuple[Stage, str, str], tmp_path: Path
) -> None:
    stage, delay, target = delivery
    try:
        example = client(tmp_path)
    except (ClientMissing, local_kafka.KafkaUnavailable) as missing:
        pytest.skip(f"the client of this example cannot be had: {missing}")
    before, receipts = len(stage.records(target)), len(stage.records(f"{delay}.receipts"))
    began_ms = now_ms()
    example.run(stage.bootstrap, delay)
    *_, record = stage.wait_records(target, before + 1)
    assert (record.key, record.value) == (b"42", b'{"order": 42}')
    assert header(record, "delay-id") == b"order-42"
    due_ms = released_due_ms(record)
    assert began_ms + DELAY_MS <= due_ms <= now_ms()
    assert record.timestamp_ms >= due_ms
    assert [name for name, _ in record.headers if name.startswith("deliver-")] == []
    *_, receipt = stage.wait_records(f"{delay}.receipts", receipts + 1)
    assert receipt.key == b"reminder-42"
    assert json.loads(receipt.value or b"")["outcome"] == "cancelled"


@pytest.mark.parametrize("name", PRINTED)
def test_the_document_shows_what_is_tested(name: str) -> None:
    text = (HERE / name).read_text(encoding="utf-8")
    shown = f"```{PRINTED[name]}\n{text}```\n"
    assert shown in DOCUMENT.read_text(encoding="utf-8"), f"PRODUCERS.md does not show {name} as it is"


def test_every_example_is_in_the_document() -> None:
    programs = {each.name for each in HERE.iterdir() if each.suffix in {".py", ".java", ".go", ".sh", ".rs", ".js"}}
    assert {name for name in programs if not name.startswith("test_")} == set(PRINTED)
