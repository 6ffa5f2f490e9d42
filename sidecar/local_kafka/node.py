"""One broker process: format its directory, start, stop, kill, pause, resume it, see whether it answers."""

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sidecar.local_kafka.errors import KafkaUnavailable
from sidecar.local_kafka.probe import answers
from sidecar.local_kafka.reaper import Reaper
from sidecar.local_kafka.settings import HOST, Address

_LOG4J: Final = Path(__file__).with_name("log4j2.yaml")

# A node answers after 2 to 5 s on two idle cores; on busy ones several times that has been seen.
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 30.0

_POLL_S: Final = 0.05
_PORT_TAKEN: Final = "Address already in use"


class PortTaken(Exception):
    """Somebody took a port between the moment it was found free and the broker's start."""


class Node:
    """A broker and controller in one JVM, with its own directory; not started by the constructor.

    ``directory`` gets ``server.properties`` and ``data/``; what the JVM prints is appended to ``log_file``.
    """

    def __init__(
        self,
        address: Address,
        directory: Path,
        log_file: Path,
        launcher: Sequence[str],
        reaper: Reaper,
    ) -> None:
        self.node_id = address.node_id
        self.bootstrap = f"{HOST}:{address.port}"
        self.log_file = log_file
        self._address = address
        self._directory = directory
        self._launcher = tuple(launcher)
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None
        self._paused = False

    @property
    def pid(self) -> int | None:
        """Process id of the broker, None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Whether the process exists (a paused one does)."""
        return self._process is not None and self._process.poll() is None

    def configure(self, properties: dict[str, str]) -> None:
        """Write ``server.properties``; takes effect at the next start."""
        self._directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self._properties_file.write_text(text, encoding="utf-8")

    def format(self, cluster_id: str) -> None:
        """Start formatting the data directory (about 1 s); :meth:`start` waits for its end."""
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self._properties_file)]
        self._spawn("kafka.tools.StorageTool", *arguments)

    def finish_format(self) -> None:
        """Wait for :meth:`format`; raises :class:`KafkaUnavailable` when it failed."""
        if self._reap(START_TIMEOUT_S) != 0:
            raise KafkaUnavailable(f"formatting node {self.node_id} failed: {self._last_lines()}")

    def start(self, *, wait: bool = True, jvm: Sequence[str] = ()) -> None:
        """Start the broker (again, with the data it had) and wait until it answers, unless ``wait`` is false.

        ``jvm`` are options for this start only.
        """
        if self.running:
            raise RuntimeError(f"node {self.node_id} runs already")
        self._spawn("kafka.Kafka", str(self._properties_file), jvm=jvm)
        if wait:
            self.wait_ready()

    def stop(self) -> None:
        """Stop it in order, with SIGTERM; SIGKILL when it will not end."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        self._reap(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End it with SIGKILL, as a crash would; returns when the process is gone."""
        if self._process is None:
            return
        self._process.kill()
        self._reap(STOP_TIMEOUT_S)
        self._paused = False

    def pause(self) -> None:
        """Stop it in its tracks with SIGSTOP: connections stay open and nothing answers."""
        if self._process is None:
            raise RuntimeError(f"node {self.node_id} does not run")
        self._process.send_signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let a paused broker go on; nothing happens to one that is not paused."""
        if self._process is not None and self._paused:
            self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the broker lists itself in answer to a metadata request.

        Raises :class:`KafkaUnavailable` with the end of its log when it ends or does not answer in time, and
        :class:`PortTaken` when it ended because of its port.
        """
        deadline = time.monotonic() + timeout_s
        while not (self._listens() and self.node_id in answers(self.bootstrap, timeout_s=2.0)):
            if not self.running:
                if _PORT_TAKEN in self._log():
                    raise PortTaken(f"{self._address}")
                raise KafkaUnavailable(f"node {self.node_id} ended while starting: {self._last_lines()}")
            if time.monotonic() > deadline:
                raise KafkaUnavailable(f"node {self.node_id} did not answer in {timeout_s:.0f} s: {self._last_lines()}")
            time.sleep(_POLL_S)

    def _listens(self) -> bool:
        """Try the port first: a client that is refused once waits longer before each further try."""
        try:
            socket.create_connection((HOST, self._address.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _spawn(self, main_class: str, *arguments: str, jvm: Sequence[str] = ()) -> None:
        with self.log_file.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches only our process, which then ends the
            # broker.
            self._process = subprocess.Popen(
                [*self._launcher, *jvm, f"-Dlog4j2.configurationFile={_LOG4J}", main_class, *arguments],
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._reaper.watch(self._process.pid)

    def _reap(self, timeout_s: float) -> int:
        """Wait for the process, with SIGKILL after the time; returns its exit code."""
        if self._process is None:
            raise AssertionError("nothing was started")
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._reaper.forget(self._process.pid)
        self._process = None
        return code

    @property
    def _properties_file(self) -> Path:
        return self._directory / "server.properties"

    def _log(self) -> str:
        return self.log_file.read_text(encoding="utf-8", errors="replace") if self.log_file.exists() else ""

    def _last_lines(self, count: int = 5) -> str:
        # Of a Java exception the first lines tell what is wrong, and those behind them from where it came.
        telling = [line for line in self._log().splitlines() if not line.startswith("\t")]
        return " | ".join(telling[-count:]) or "it printed nothing"
