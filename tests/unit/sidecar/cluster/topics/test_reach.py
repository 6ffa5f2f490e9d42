"""Commands without a reachable broker: done in seconds, with one sentence, and without lines of the client itself."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from threading import Timer

import pytest

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


CHECK = ("check", "--json")
RUN = ("run",)
VERBOSE = ("--verbose", "status")
UNKNOWN = ("pending", "order.delay")
VERIFY = ("verify", "orders.delay")

Running = Mapping[tuple[str, ...], "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Start all of them at once, since each waits until it is sure."""
    file = tmp_path_factory.mktemp("unreachable") / "delay-router.toml"
    file.write_text(CONFIG)
    started: Running = {
        command: _start(*command, "--config", str(file))
        for command in (*COMMANDS, CHECK, RUN, VERBOSE, UNKNOWN, VERIFY)
    }
    yield started
    for process in started.values():
        process.kill()
        process.communicate(timeout=60)


def _start(*command: str) -> "subprocess.Popen[str]":
    call = [sys.executable, "-m", "sidecar", *command]
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_one_sentence_and_quiet(running: Running, command: tuple[str, ...]) -> None:
    output, errors = running[command].communicate(timeout=60)
    assert running[command].returncode == 1
    assert output == ""
    (sentence,) = errors.splitlines()
    assert sentence == (
        "error: 127.0.0.1:1 does not answer: Connect to ipv4#127.0.0.1:1 failed: Connection refused;"
        ' check that Kafka runs, and "bootstrap.servers" and the security keys under [kafka]'
    )


def test_what_the_client_says_is_shown_when_asked_for(running: Running) -> None:
    _, errors = running[VERBOSE].communicate(timeout=60)
    *lines, sentence = errors.splitlines()
    assert sentence.startswith("error: 127.0.0.1:1 does not answer: ")
    assert any(json.loads(line)["library"] == "librdkafka" for line in lines)


def test_a_topic_that_is_not_configured_is_known_without_a_broker(running: Running) -> None:
    _, errors = running[UNKNOWN].communicate(timeout=60)
    assert running[UNKNOWN].returncode == 2
    assert errors == (
        "error: order.delay is not a configured delay topic (orders.delay); did you mean 'orders.delay'?\n"
    )


def test_verify_says_the_same_and_that_it_could_not_look(running: Running) -> None:
    output, errors = running[VERIFY].communicate(timeout=60)
    assert (running[VERIFY].returncode, output) == (2, "")
    (sentence,) = errors.splitlines()
    assert sentence.startswith("error: 127.0.0.1:1 does not answer: Connect to ")


def test_check_says_the_same_among_its_findings(running: Running) -> None:
    output, errors = running[CHECK].communicate(timeout=60)
    assert running[CHECK].returncode == 1
    assert errors == ""
    (finding,) = [each for each in json.loads(output) if each["level"] == "error"]
    assert finding["thing"] == "brokers"
    assert finding["message"].startswith("127.0.0.1:1 does not answer: ")
    assert "Connection refused" in finding["message"]
    assert finding["remedy"]


def test_the_router_says_why_too(running: Running) -> None:
    process = running[RUN]
    ended = Timer(60, process.kill)
    ended.start()
    try:
        assert process.stderr is not None
        assert any("Connection refused" in line for line in iter(process.stderr.readline, ""))
    finally:
        ended.cancel()
