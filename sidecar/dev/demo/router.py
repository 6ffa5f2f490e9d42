"""Runs a router in a process of its own: starts it with a configuration file, asks if it is ready, ends it."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from index.errors import DelayRouterError
from sidecar.dev.local_kafka.reaper import Reaper

READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
"""Longest time that a router may take from SIGTERM to its end."""

_COMMAND_TIMEOUT_S: Final = 60.0
_PROBE_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05


class RouterProcessError(DelayRouterError):
    """The router process ended, did not get ready, or is not in the state that a call needs."""


def toml(value: object) -> str:
    """Return a value as TOML; strings, numbers, booleans and lists look as in JSON, mappings are inline tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value)


def config_text(sections: Mapping[str, Mapping[str, Any] | Sequence[Mapping[str, Any]]]) -> str:
    """Return the text of a configuration file: a mapping is a table, a sequence of mappings an array of tables."""
    lines: list[str] = []
    for name, content in sections.items():
        single = isinstance(content, Mapping)
        for table in [content] if isinstance(content, Mapping) else content:
            lines.append(f"[{name}]" if single else f"[[{name}]]")
            lines += [f"{json.dumps(key)} = {toml(value)}" for key, value in table.items()]
            lines.append("")
    return "\n".join(lines)


def init(config: Path) -> None:
    """Create the delay topic and the topics beside it as a user would."""
    command = [sys.executable, "-m", "sidecar", "init", "--config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_TIMEOUT_S, check=False)
    if done.returncode:
        raise RouterProcessError(f"init ended with exit code {done.returncode}:\n{done.stdout}{done.stderr}".rstrip())


class RouterProcess:
    """``delay-router run`` as a child process; its output goes to `log`, over restarts too.

    The process has a session of its own: Ctrl-C in the terminal reaches only the parent, which then stops the router
    itself. If the parent is killed, the router is killed too. ``module`` is the program that is given the arguments,
    and ``options`` are further arguments of ``run``.
    """

    def __init__(self, config: Path, port: int, log: Path) -> None:
        self.module = "sidecar"
        self.options: Sequence[str] = ()
        self.config = config
        self.port = port
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: Reaper | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        if self._reaper is not None:
            self._reaper.close()
            self._reaper = None

    @property
    def pid(self) -> int:
        """Process id of the router, also after it has ended."""
        return self._started().pid

    @property
    def running(self) -> bool:
        """Says that the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last run, negative for a signal; None while it runs."""
        return self._started().poll()

    def start(self) -> None:
        """Start the process and return at once."""
        if self.running:
            raise RouterProcessError(f"router {self.pid} is running already")
        command = [sys.executable, "-m", self.module, "run", "--config", str(self.config), *self.options]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        if self._reaper is None:
            self._reaper = Reaper()
        self._reaper.watch(self.pid)

    def ready(self) -> bool:
        """Say whether ``/readyz`` reports ready; raise RouterProcessError when the process has ended."""
        if not self.running:
            raise RouterProcessError(f"the router ended with exit code {self.exit_code}")
        return self.http("/readyz")[0] == HTTPStatus.OK

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Wait until the router is ready; raise RouterProcessError when it ends before or takes longer."""
        deadline = time.monotonic() + timeout_s
        while not self.ready():
            if time.monotonic() > deadline:
                body = self.http("/readyz")[1]
                raise RouterProcessError(f"the router is not ready after {timeout_s:.0f} s: {body}")
            time.sleep(_POLL_S)

    def http(self, path: str, timeout_s: float = _PROBE_TIMEOUT_S) -> tuple[int, str]:
        """GET a path and return status and body, or (0, cause) if the router does not answer."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, HTTPException) as error:
            return 0, str(error)
        finally:
            connection.close()

    def kill(self) -> None:
        """End the process with SIGKILL, also a paused one; do nothing if it has ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._forget()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """End the process with SIGTERM and return its exit code.

        If it takes longer than ``timeout_s``, kill it and raise RouterProcessError.
        """
        process = self._started()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RouterProcessError(f"the router did not end within {timeout_s:.0f} s") from None
        self._forget()
        return code

    def last_lines(self, count: int = 20) -> list[str]:
        """Return the last lines of the log."""
        return self.log_text().splitlines()[-count:]

    def log_text(self) -> str:
        """Return the whole log, of all runs together."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._started().send_signal(number)

    def _forget(self) -> None:
        # Another process may soon have its id.
        if self._reaper is not None and self._process is not None:
            self._reaper.forget(self._process.pid)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RouterProcessError("the router was never started")
        return self._process
