"""Runs README's first commands as printed: build, install with uv into a new environment, and `dev`."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from sidecar.dev import local_kafka
from tests.support.paths import ROOT

TIMEOUT_S: Final = 120
PORT: Final = 9092


def first_commands() -> list[str]:
    """Return the lines of the first block under `Try it`."""
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Try it\n")[1]
    block = re.search(r"```sh\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [line.partition(" #")[0].strip() for line in block[1].splitlines()]


def shell(line: str, folder: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Return variables without a trace of this project, and with a folder of the test for uv's installations."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent))
    assert uv is not None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").symlink_to(uv)
    dropped = ("PYTHON", "VIRTUAL_ENV", "DELAY_ROUTER", local_kafka.SERVERS_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return environment | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_PYTHON": sys.base_prefix + "/bin/python3",
        "DOCKER_HOST": "unix:///nowhere",
    }


@pytest.mark.timeout(600)
def test_the_first_commands_lead_to_a_delayed_record(
    wheel: Path, bare: dict[str, str], needs_own_nodes: None, tmp_path: Path
) -> None:
    if not local_kafka.is_free(PORT):
        pytest.skip(f"somebody listens on port {PORT}, which is dev's by default")
    make, install, dev = first_commands()
    # The fixture has built it like `make wheel`; a test must not install into the environment that runs it.
    assert make == "make wheel"
    (tmp_path / "dist").mkdir()
    shutil.copy(wheel, tmp_path / "dist")
    shell(install, tmp_path, bare)
    with subprocess.Popen(
        ["sh", "-c", f"exec {dev}"],
        cwd=tmp_path,
        env={**bare, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as running:
        try:
            assert running.stdout is not None
            shown: list[str] = []
            for line in running.stdout:
                shown.append(line)
                if line.startswith("Records that arrive in"):
                    break
            commands = [line.strip() for line in shown if "--config" in line]
            assert [command.split()[:2] for command in commands] == [
                ["delay-router", word] for word in ("send", "lookup", "status")
            ], "".join(shown)
            for command in commands:
                assert "orders.delay" in shell(command, tmp_path, bare)
            assert "  orders  key 42  value hello  " in running.stdout.readline()
        finally:
            running.send_signal(signal.SIGINT)
            running.wait(TIMEOUT_S)
    assert running.returncode == 0
