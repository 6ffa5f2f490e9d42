"""Several routers on one machine: their addresses, and what happens when one of them ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
from structlog.testing import capture_logs

from index.errors import ConfigError
from sidecar.config.model import Config, load
from sidecar.process import router_processes
from sidecar.process.router_processes import RouterProcesses, settings_of

WITHIN_S = 20.0
RUNS = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
place = pathlib.Path(os.environ["PLACE"])
with place.open("a") as starts:
    starts.write(f"{os.getpid()}\\n")
time.sleep(60)
"""


@pytest.fixture
def configured(tmp_path: Path) -> Callable[..., Config]:
    """Return a function that loads a configuration with these settings from the environment."""
    file = tmp_path / "router.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "localhost:9092"\n')
    return lambda **settings: load(file, {f"DELAY_ROUTER__{name}": value for name, value in settings.items()})


class Started:
    """Runs the processes in a thread, each with a file of its starts, until the block ends."""

    def __init__(self, tmp_path: Path, count: int, script: str = RUNS) -> None:
        self.places = [tmp_path / f"router {number}" for number in range(count)]
        environments = [{"PLACE": str(place)} for place in self.places]
        self._processes = RouterProcesses([sys.executable, "-c", script], environments)
        self._is_stopping = False
        self._codes: list[int] = []
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        self._codes.append(self._processes.run(lambda: self._is_stopping))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopping = True
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    @property
    def exit_code(self) -> int:
        return self._codes[0]

    def pids(self, number: int) -> list[int]:
        place = self.places[number]
        return [int(line) for line in place.read_text().split()] if place.exists() else []


def wait_for(holds: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_each_router_has_addresses_and_a_name_of_its_own(configured: Callable[..., Config]) -> None:
    named = configured(ROUTER__INSTANCE_ID="pod-3", HTTP__LISTEN="[::1]:8080")
    assert settings_of(named, 2) == [
        {"DELAY_ROUTER__HTTP__LISTEN": "[::1]:8080", "DELAY_ROUTER__ROUTER__INSTANCE_ID": "pod-3-0"},
        {"DELAY_ROUTER__HTTP__LISTEN": "[::1]:8090", "DELAY_ROUTER__ROUTER__INSTANCE_ID": "pod-3-1"},
    ]


def test_a_port_of_the_systems_choice_stays_so(configured: Callable[..., Config]) -> None:
    assert settings_of(configured(HTTP__LISTEN="127.0.0.1:0"), 2) == [{"DELAY_ROUTER__HTTP__LISTEN": "127.0.0.1:0"}] * 2


def test_too_many_routers_for_the_ports_are_refused(configured: Callable[..., Config]) -> None:
    with pytest.raises(ConfigError, match=r"\[http\] listen: router 1 would need port 65540.*Choose a lower port"):
        settings_of(configured(HTTP__LISTEN="127.0.0.1:65530"), 2)


def test_a_killed_router_is_started_again_and_the_others_run_on(tmp_path: Path) -> None:
    with capture_logs() as logs, Started(tmp_path, 2) as started:
        wait_for(lambda: len(started.pids(0)) == len(started.pids(1)) == 1)
        [killed] = started.pids(0)
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(started.pids(0)) == 2)
        assert len(started.pids(1)) == 1
    assert started.exit_code == 0
    assert [(each["event"], each["router"], each["exit_code"]) for each in logs] == [("router_ended", 0, -9)]


def test_a_router_with_a_wrong_configuration_ends_all(tmp_path: Path) -> None:
    script = RUNS.replace("time.sleep(60)", "sys.exit(2) if place.name == 'router 1' else time.sleep(60)")
    with capture_logs(), Started(tmp_path, 2, script) as started:
        started._thread.join(WITHIN_S)
    assert started.exit_code == 2
    assert [len(started.pids(number)) for number in range(2)] == [1, 1]


def test_a_wrong_configuration_ends_none_once_a_router_has_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_processes, "SERVED_S", 0.1)
    monkeypatch.setattr(router_processes, "FIRST_PAUSE_S", 0.1)
    lives = "is_first = len(place.read_text().split()) == 1\ntime.sleep(60 if place.name == 'router 0' else is_first)"
    script = RUNS.replace("time.sleep(60)", f"{lives}\nsys.exit(1 if is_first else 2)")
    with capture_logs() as logs, Started(tmp_path, 2, script) as started:
        wait_for(lambda: len(started.pids(1)) == 4)
        assert len(started.pids(0)) == 1
    assert started.exit_code != 2
    assert [(each["router"], each["exit_code"]) for each in logs][:3] == [(1, 1), (1, 2), (1, 2)]


def test_a_router_that_cannot_be_started_is_started_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[Any] = []

    def start(*arguments: Any, **options: Any) -> "subprocess.Popen[bytes]":
        starts.append(options)
        if len(starts) <= 2:
            raise BlockingIOError("no process is left")
        return popen(*arguments, **options)

    popen = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    started = Started(tmp_path, 1)
    started._processes._routers[0].pause_s = 0.1
    with capture_logs() as logs, started:
        wait_for(lambda: len(started.pids(0)) == 1)
    assert started.exit_code == 0
    ended = {"event": "router_ended", "router": 0, "exit_code": None, "error": "no process is left"}
    assert logs == [{**ended, "started_again_in_s": pause_s, "log_level": "error"} for pause_s in (0.1, 0.2)]


def test_a_router_that_does_not_end_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_processes, "END_WITHIN_S", 0.2)
    script = RUNS.replace("lambda *_: sys.exit(0)", "signal.SIG_IGN")
    with Started(tmp_path, 1, script) as started:
        wait_for(lambda: bool(started.pids(0)))
    assert started.exit_code == 1
