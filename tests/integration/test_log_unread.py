"""Tests of a router whose standard error is a pipe without a reader: it releases, and reacts to SIGTERM, as always."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from random import Random

import pytest

from sidecar.dev.demo.router import STOP_TIMEOUT_S
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, wait_until


class Unread(RouterProcess):
    """A router whose standard error is a pipe that is already full."""

    def start(self) -> None:
        """Start the router, and keep the reading end of the pipe."""
        self.reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * 64)
        os.set_blocking(writer, True)
        command = [sys.executable, "-m", "sidecar", "run", "--config", str(self.config)]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=writer, start_new_session=True)
        os.close(writer)

    def read(self) -> str:
        """Return the output until the process has ended."""
        received = b""
        while piece := os.read(self.reader, 1 << 16):
            received += piece
        return received.decode()


def _unread(stage: Stage, name: str, monkeypatch: pytest.MonkeyPatch) -> RouterProcess:
    monkeypatch.setattr("tests.integration.scenario.RouterProcess", Unread)
    return stage.router(name, group_id=stage.group_id, instance_id="", log_level="debug")


def test_released_and_stopped_all_the_same(stage: Stage, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.delay("delay", 2, default_target=stage.target())
    with _unread(stage, "unread", monkeypatch) as router:
        router.start_and_wait()
        with Load(stage, list(stage.delays), rng, partitions=2, delays_ms=(0, 1_000)) as load:
            time.sleep(2)
            load.finish()
        stage.settle()
        router.signal(signal.SIGTERM)
        wait_until(lambda: not router.running, "the end of the router", STOP_TIMEOUT_S)
        assert router.exit_code == 0
        assert isinstance(router, Unread)
        assert set(router.read()) == {"x"}, "nothing else fitted into the pipe"
        os.close(router.reader)


def test_one_that_is_fenced_gives_way_at_once(stage: Stage, rng: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other routers take its partitions while it sleeps; a blocked log line about that must not stop it from serving
    again.
    """
    stage.delay("delay", 2, default_target=stage.target())
    with _unread(stage, "unread", monkeypatch) as fenced:
        fenced.start_and_wait()
        monkeypatch.undo()
        with Load(stage, list(stage.delays), rng, partitions=2, delays_ms=(0, 1_000)) as load:
            fenced.pause()
            with stage.router("other", group_id=stage.group_id, instance_id="") as other:
                other.start_and_wait()
                fenced.resume()
                time.sleep(3)
                assert other.stop() == 0
            wait_until(fenced.ready, "the one that was fenced serves both again")
            load.finish()
        stage.settle()
        assert fenced.stop() == 0
        assert isinstance(fenced, Unread)
        os.close(fenced.reader)
