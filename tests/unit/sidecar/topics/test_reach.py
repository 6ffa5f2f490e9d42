"""Commands where no broker answers: done in seconds, one sentence, and nothing of the client's own."""

import subprocess
import sys
import time
from pathlib import Path
from threading import Timer

from sidecar.topics.reach import SURE_AFTER_S

CONFIG = """
[kafka]
"bootstrap.servers" = "127.0.0.1:1"
[[delay_topics]]
name = "orders.delay"
default_target = "orders"
"""

COMMANDS = (
    ("init",),
    ("send", "orders.delay", "--value", "x", "--after", "10s"),
    ("status",),
    ("pending", "orders.delay"),
    ("lookup", "orders.delay/0/1"),
    ("policy", "get"),
    ("pause", "orders.delay"),
)


def _run(directory: Path, command: tuple[str, ...]) -> "subprocess.Popen[str]":
    file = directory / "delay-router.toml"
    file.write_text(CONFIG)
    call = [sys.executable, "-m", "sidecar", *command, "--config", str(file)]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_one_sentence_and_quiet(tmp_path: Path) -> None:
    running = {command: _run(tmp_path, command) for command in COMMANDS}
    for command, process in running.items():
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 1, command
        assert output == "", command
        (sentence,) = errors.splitlines()
        assert sentence.startswith("error: 127.0.0.1:1 does not answer: "), command
        assert "Connection refused" in sentence
        assert sentence.endswith('check that Kafka runs, and "bootstrap.servers" and the security keys under [kafka]')


def test_check_says_the_same_among_its_findings(tmp_path: Path) -> None:
    began_s = time.monotonic()
    output, errors = _run(tmp_path, ("check",)).communicate(timeout=60)
    # A request alone takes 10 s to time out.
    assert time.monotonic() - began_s < SURE_AFTER_S + 6
    assert errors == ""
    assert "brokers: 127.0.0.1:1 does not answer: " in output
    assert "Connection refused" in output


def test_the_router_says_why_too(tmp_path: Path) -> None:
    process = _run(tmp_path, ("run",))
    ended = Timer(60, process.kill)
    ended.start()
    try:
        assert process.stderr is not None
        assert any("Connection refused" in line for line in iter(process.stderr.readline, ""))
    finally:
        ended.cancel()
        process.terminate()
        process.communicate(timeout=60)
