"""Tests of ``delay-router dev`` as a user meets it: printed commands work as they are, and Ctrl-C leaves nothing."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import psutil

from sidecar.dev import local_kafka
from sidecar.dev.demo.dev import folder
from sidecar.dev.local_kafka import free_port
from tests.support.paths import ROOT

LAST_LINE: Final = "Records that arrive in orders, billing, orders.delay.rejected:"


@contextmanager
def running_dev(directory: Path, port: int) -> Iterator["subprocess.Popen[str]"]:
    own = {local_kafka.SERVERS_VARIABLE: "", "DOCKER_HOST": "unix:///nowhere", "TMPDIR": str(directory)}
    dev = subprocess.Popen(
        [sys.executable, "-m", "sidecar", "dev", "--port", str(port)],
        env={**os.environ, **own},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield dev
    finally:
        dev.kill()
        dev.communicate()


def pasted(line: str, directory: Path) -> str:
    """Run a line in a shell with a folder of its own, and return the output."""
    elsewhere = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = ["sh", "-c", line]
    done = subprocess.run(call, cwd=directory, env=elsewhere, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_what_it_shows_works_as_it_is_and_nothing_is_left(needs_own_nodes: None, tmp_path: Path) -> None:
    own, elsewhere = tmp_path / "own", tmp_path / "elsewhere"
    own.mkdir()
    elsewhere.mkdir()
    port = free_port()
    with running_dev(own, port) as dev:
        assert dev.stdout is not None
        shown: list[str] = []
        for line in dev.stdout:
            shown.append(line)
            if LAST_LINE in line:
                break
        send, lookup, status = (line.strip() for line in shown if "--config" in line)
        assert f"Kafka answers on 127.0.0.1:{port}" in "".join(shown)
        url, token = re.findall(r"browser: (\S+)\s+which asks for the token (\w+)", "".join(shown))[0]
        asked = httpx.get(f"{url}/api/v1/caller", headers={"authorization": f"Bearer {token}"}, trust_env=False)
        assert asked.json()["role"] == "operate"
        assert "<title>Delay router</title>" in httpx.get(f"{url}/", trust_env=False).text
        assert pasted(send, elsewhere).startswith("orders.delay/0/0 due ")
        assert "orders.delay/0/0: pending; due " in pasted(lookup, elsewhere)
        assert "orders.delay" in pasted(status, elsewhere)
        arrived = dev.stdout.readline()
        assert arrived.startswith("  orders  key 42  value hello  ")
        assert "orders.delay/0/0: released; " in pasted(lookup, elsewhere)
        children = psutil.Process(dev.pid).children(recursive=True)
        dev.send_signal(signal.SIGINT)
        out, err = dev.communicate(timeout=60)
    assert (dev.returncode, err) == (0, "")
    assert out.splitlines()[-1] == "stopped; nothing is left running"
    assert [child for child in children if child.is_running()] == []
    assert [*own.iterdir(), *elsewhere.iterdir()] == []
    assert not folder(port).exists()
