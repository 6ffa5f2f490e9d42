"""One broker process: formats its directory, starts, stops, kills, pauses, resumes it, and waits for its answer."""

import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from sidecar.dev.local_kafka.errors import KafkaUnavailable
from sidecar.dev.local_kafka.probe import answers
from sidecar.dev.local_kafka.reaper import Reaper
from sidecar.dev.local_kafka.settings import HOST, Address

_LOG4J: Final = Path(__file__).with_name("log4j2.yaml")

# A node answers after 2 to 5 s on two idle cores, and after several times that on busy ones.
START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 30.0

_POLL_S: Final = 0.05
_PORT_TAKEN: Final = "Address already in use"


class PortTaken(Exception):
    """Another process took a port between the search for free ports and the start of the broker."""


class Node:
    """A broker and controller in one JVM, with its own directory; the constructor does not start it.

    ``directory`` gets ``server.properties`` and ``data/``; the output of the JVM is appended to ``log_file``.
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
        """Process id of the broker; None while it does not run."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        """Says that the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    def configure(self, properties: dict[str, str]) -> None:
        """Write ``server.properties``, which takes effect at the next start."""
        self._directory.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self._properties_file.write_text(text, encoding="utf-8")

    def format(self, cluster_id: str) -> None:
        """Start formatting the data directory (about 1 s); :meth:`start` waits for its end."""
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self._properties_file)]
        self._spawn("kafka.tools.StorageTool", *arguments)

    def finish_format(self) -> None:
        """Wait for the end of :meth:`format`; raise :class:`KafkaUnavailable` when it failed."""
        if self._reap(START_TIMEOUT_S) != 0:
            raise KafkaUnavailable(f"formatting node {self.node_id} failed: {self._last_lines()}")

    def start(self, *, wait: bool = True, jvm: Sequence[str] = ()) -> None:
        """Start the broker (also again, with its old data) and wait until it answers, unless ``wait`` is false.

        ``jvm`` are options for this start only.
        """
        if self.running:
            raise RuntimeError(f"node {self.node_id} runs already")
        self._spawn("kafka.Kafka", str(self._properties_file), jvm=jvm)
        if wait:
            self.wait_ready()

    def stop(self) -> None:
        """Stop the broker in order, with SIGTERM; kill it if it does not end in time."""
        if self._process is None:
            return
        self.resume()
        self._process.send_signal(signal.SIGTERM)
        self._reap(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End the broker with SIGKILL, as a crash would, and wait until the process is gone."""
        if self._process is None:
            return
        self._process.kill()
        self._reap(STOP_TIMEOUT_S)
        self._paused = False

    def pause(self) -> None:
        """Freeze the broker with SIGSTOP: connections stay open, but it does not answer."""
        if self._process is None:
            raise RuntimeError(f"node {self.node_id} does not run")
        self._process.send_signal(signal.SIGSTOP)
        self._paused = True

    def resume(self) -> None:
        """Let a paused broker go on; do nothing if it is not paused."""
        if self._process is not None and self._paused:
            self._process.send_signal(signal.SIGCONT)
            self._paused = False

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the broker lists itself in answer to a metadata request.

        Raise :class:`KafkaUnavailable`, with the end of the log, when the broker ends or does not answer in time, and
        :class:`PortTaken` when it ended because its port was taken.
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
        """Say whether the port accepts connections: a refused Kafka client waits longer before each further try."""
        try:
            socket.create_connection((HOST, self._address.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _spawn(self, main_class: str, *arguments: str, jvm: Sequence[str] = ()) -> None:
        with self.log_file.open("ab") as log:
            # The broker has a session of its own: Ctrl-C in the terminal reaches only our process, which then ends the
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
        """Wait for the end of the process, kill it after ``timeout_s``, and return its exit code."""
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
        # The indented lines of a Java exception are only its stack trace; the others tell the cause.
        telling = [line for line in self._log().splitlines() if not line.startswith("\t")]
        return " | ".join(telling[-count:]) or "it printed nothing"
