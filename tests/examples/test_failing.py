"""Runs the consumers of PRODUCERS.md that fail: their record comes back in its next attempt, with all it had."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from sidecar.dev import local_kafka
from tests.docs.documents import Piece, blocks
from tests.integration.scenario import Stage, header
from tests.support import kafka_tools
from tests.support.client_programs import EXAMPLES, ClientMissing, golang, java, node
from tests.support.paths import ROOT

HERE: Final = EXAMPLES / "failing"
SHARE: Final = "failing_share.py"
PRINTED: Final = {
    "failing.py": "python",
    "Failing.java": "java",
    "failing.go": "go",
    "failing.js": "js",
    SHARE: "python",
}
SHOWN: Final = {**PRINTED, "FailingStreams.java": "java"}
"""All programs that the document shows with their languages; `test_streams.py` runs the last one."""

TOPIC: Final = "orders.retry"
START_TIMEOUT_S: Final = 120


def call_of(program: Path, folder: Path) -> list[str]:
    match program.suffix:
        case ".java":
            return java(program)
        case ".go":
            return golang(program, folder)
        case ".js":
            return node(program, folder)
    return [sys.executable, str(program)]


@pytest.fixture(scope="module")
def retrying(kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, str, str]]:
    """Yield the stage, retry topic and target topic of a running router; in the end the audit must find no fault."""
    stage = Stage(kafka.bootstrap, tmp_path_factory.mktemp("failing"))
    target, dead = stage.target(), stage.target("dead")
    retry = {"first": "100ms", "attempts": 3, "dead_letter": dead}
    delay = stage.delay("retry", default_target=target, retry=retry)
    with stage.router() as router:
        router.start_and_wait()
        yield stage, delay, target
        assert stage.settle().ok
    stage.print_logs()


@pytest.mark.parametrize("name", PRINTED)
def test_what_fails_comes_back(name: str, retrying: tuple[Stage, str, str], tmp_path: Path) -> None:
    stage, delay, target = retrying
    # KafkaJS cannot write a header that is null.
    none = () if name.endswith(".js") else (("none", None),)
    before = len(stage.records(target))
    stage.send(delay, ("trace", b"1"), *none, key=b"42", value=name.encode())
    first = stage.wait_records(target, before + 1)[-1]
    program = tmp_path / name
    program.write_text((HERE / name).read_text(encoding="utf-8").replace(TOPIC, delay), encoding="utf-8")
    (folder := tmp_path / "built").mkdir()
    try:
        call = call_of(program, folder)
    except (ClientMissing, local_kafka.KafkaUnavailable) as missing:
        pytest.skip(f"the client of this example cannot be had: {missing}")
    if name == SHARE:
        # A share group begins at the end of a topic, unless its configuration says otherwise.
        kafka_tools.configure(stage.bootstrap, "groups", "failing-share", {"share.auto.offset.reset": "earliest"})
    arguments = [*call, stage.bootstrap, target, str(first.offset)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    again = stage.wait_records(target, before + 2)[-1]
    assert [header(each, "delay-attempt") for each in (first, again)] == [b"1", b"2"]
    assert (again.key, again.value, header(again, "trace")) == (b"42", name.encode(), b"1")


@pytest.mark.parametrize("name", SHOWN)
def test_the_document_shows_what_is_run(name: str) -> None:
    run = stripped((HERE / name).read_text(encoding="utf-8"))
    printed = [stripped(each.text) for each in blocks(ROOT / "PRODUCERS.md") if is_shown(each, SHOWN[name])]
    shown = [lines for lines in printed if any(run[at : at + len(lines)] == lines for at in range(len(run)))]
    assert [len(lines) <= 5 for lines in shown] == [True], f"{name} runs something else"


def test_everything_shown_is_run() -> None:
    printed = [each for each in blocks(ROOT / "PRODUCERS.md") if is_shown(each, *SHOWN.values())]
    assert len(printed) == len(SHOWN)


def is_shown(block: Piece, *languages: str) -> bool:
    return block.language in languages and TOPIC in block.text


def stripped(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines()]
