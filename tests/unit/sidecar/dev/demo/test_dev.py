"""``delay-router dev`` without Kafka: its lines about records, the commands it shows, and its reasons not to start."""

import io
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sidecar.dev import local_kafka
from sidecar.dev.demo import dev
from sidecar.dev.demo.orders import Topics
from sidecar.dev.demo.router import RouterProcess
from sidecar.dev.local_kafka import maven

PAGE = dev.PageAddress("http://localhost:8081", "0123456789abcdef0123456789abcdef")


class Arrived:
    """A record as a consumer hands it over."""

    def __init__(self, topic: str, value: bytes | None, **headers: bytes) -> None:
        self._topic = topic
        self._value = value
        self._headers = [(name.replace("_", "-"), raw) for name, raw in headers.items()]

    def topic(self) -> str:
        return self._topic

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes]]:
        return self._headers

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_003


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (Arrived("orders", b"hello", delay_due=b"1000"), "  orders  key null  value hello  3 ms after it was due"),
        (Arrived("orders", None, delay_due=b"1000"), "  orders  key null  value null  3 ms after it was due"),
        (
            Arrived("orders.delay.rejected", b"v", delay_error=b"INVALID_SCHEDULE", delay_error_message=b"no time"),
            "  orders.delay.rejected  key null  value v  INVALID_SCHEDULE: no time",
        ),
        (
            Arrived("orders.delay.rejected", None, delay_redriven_offsets=b"0"),
            "  orders.delay.rejected  key null  value null  delay-redriven-offsets",
        ),
        (Arrived("orders", b"of others"), "  orders  key null  value of others"),
    ],
)
def test_what_arrives_is_a_line(record: Any, line: str) -> None:
    assert dev.arrival(record) == line


def test_nothing_that_a_record_holds_reaches_the_terminal_as_more_than_text() -> None:
    record: Any = Arrived("orders", b"\x1b[2J\n\xff" + 100 * b"x", delay_due=b"1000")
    line = dev.arrival(record)
    assert line.isprintable()
    assert len(line) < 150


@pytest.fixture
def router(tmp_path: Path) -> RouterProcess:
    return RouterProcess(tmp_path / "a place" / "delay-router.toml", 8080, tmp_path / "log")


def _commands(router: RouterProcess) -> list[str]:
    return [
        line.strip() for line in dev.introduction("127.0.0.1:9092", Topics.of(""), router, PAGE) if "--config" in line
    ]


def test_what_is_said_fits_a_terminal_of_80_columns_but_for_commands(router: RouterProcess) -> None:
    page = dev.PageAddress("http://127.0.0.1:65535", 32 * "f")
    said = dev.introduction("127.0.0.1:65535", Topics.of(""), router, page)
    assert [line for line in said if len(line) > 80 and "--config" not in line] == []


def test_commands_name_the_program_as_every_shell_finds_it(
    router: RouterProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "delay-router"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert all(command.startswith(f"{program} ") for command in _commands(router))
    monkeypatch.setenv("PATH", str(program.parent))
    assert [command.split()[:2] for command in _commands(router)] == [
        ["delay-router", "send"],
        ["delay-router", "lookup"],
        ["delay-router", "status"],
    ]
    # An environment is activated in one terminal only, so the commands name the whole path.
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    assert all(command.startswith(f"{program} ") for command in _commands(router))
    assert all(f"--config '{router.config}'" in command for command in _commands(router))


def _main(port: int) -> int:
    return dev.main(port, Console(file=io.StringIO()))


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(local_kafka.SERVERS_VARIABLE, raising=False)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere")
    monkeypatch.setattr(maven, "check", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert _main(port) == 1
    assert capsys.readouterr().err == f"port {port} of 127.0.0.1 is taken: choose another one with --port\n"


def test_with_a_cluster_given_it_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(local_kafka.SERVERS_VARIABLE, "kafka:9092")
    assert _main(9092) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "unset it" in line
    assert "delay-router run" in line
