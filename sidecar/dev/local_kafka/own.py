"""Runs a cluster of one or three local nodes in one temporary directory, from its first format to its removal."""

import base64
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sidecar.dev.local_kafka.errors import KafkaUnavailable
from sidecar.dev.local_kafka.node import START_TIMEOUT_S, Node, PortTaken
from sidecar.dev.local_kafka.probe import answers
from sidecar.dev.local_kafka.reaper import Reaper
from sidecar.dev.local_kafka.settings import PerNode, free_addresses, node_properties, one_address

# A port is used a second after it was found free; no other process will take one three times in a row.
_ATTEMPTS: Final = 3


@dataclass
class Cluster:
    """A running cluster of any origin.

    ``nodes`` is empty and ``logs_dir`` is None for a cluster whose processes are not ours (a given one, a container).
    Set ``keep_logs`` before the end of the ``with`` block to keep the logs of our own nodes.
    """

    bootstrap: str
    origin: str
    nodes: tuple[Node, ...] = ()
    logs_dir: Path | None = None
    keep_logs: bool = field(default=False, kw_only=True)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the metadata of every running node lists all running nodes."""
        deadline = time.monotonic() + timeout_s
        running = [node for node in self.nodes if node.running]
        for node in running:
            node.wait_ready(max(0.0, deadline - time.monotonic()))
        expected = {node.node_id for node in running}
        while any(not expected <= answers(node.bootstrap, timeout_s=2.0) for node in running):
            if time.monotonic() > deadline:
                raise KafkaUnavailable(f"the nodes did not see each other in {timeout_s:.0f} s")
            time.sleep(0.05)


class LocalCluster:
    """Owner of the processes and the directory of a cluster run from jars, from ``start`` to ``remove``."""

    def __init__(self, nodes: int, launcher: Sequence[str], properties: PerNode, port: int | None = None) -> None:
        self._nodes = nodes
        self._port = port
        self._launcher = launcher
        self._properties = properties
        self._reaper = Reaper()
        self._directory = Path(tempfile.mkdtemp(prefix="delay-router-kafka-"))
        self._reaper.watch(self._directory)
        self._logs = self._directory / "logs"
        self._logs.mkdir()
        self._running: tuple[Node, ...] = ()

    def start(self) -> Cluster:
        """Format and start all nodes and wait until they answer; raise :class:`KafkaUnavailable` if they do not."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start(self._directory / f"try-{attempt}")
            except PortTaken:
                self._kill_all()
                for log in self._logs.iterdir():
                    log.unlink()
            else:
                bootstrap = ",".join(node.bootstrap for node in self._running)
                return Cluster(bootstrap, "jars", self._running, self._logs)
        raise KafkaUnavailable(f"ports were taken by others in {_ATTEMPTS} attempts to start a broker")

    def remove(self, *, keep_logs: bool) -> None:
        """Kill the nodes and remove the directory; with ``keep_logs`` its ``logs`` stay, and their place is printed.

        SIGKILL saves 3 s against an orderly stop, and the data is never read again.
        """
        self._kill_all()
        if keep_logs:
            self._reaper.forget(self._directory)
            for other in self._directory.iterdir():
                if other != self._logs:
                    shutil.rmtree(other, ignore_errors=True)
            print(f"logs of the local Kafka kept in {self._logs}", file=sys.stderr)
        else:
            shutil.rmtree(self._directory, ignore_errors=True)
        self._reaper.close()

    def _start(self, directory: Path) -> None:
        addresses = free_addresses(self._nodes) if self._port is None else one_address(self._port)
        self._running = tuple(
            Node(
                address,
                directory / f"node-{address.node_id}",
                self._logs / f"node-{address.node_id}.log",
                self._launcher,
                self._reaper,
            )
            for address in addresses
        )
        cluster_id = _cluster_id()
        for node, address in zip(self._running, addresses, strict=True):
            data = directory / f"node-{address.node_id}" / "data"
            node.configure(node_properties(address, addresses, data, self._properties(address)))
            node.format(cluster_id)
        for node in self._running:
            node.finish_format()
        for node in self._running:
            node.start(wait=False)
        Cluster("", "jars", self._running).wait_ready()

    def _kill_all(self) -> None:
        for node in self._running:
            node.kill()


def _cluster_id() -> str:
    """Return a random id in the form of Kafka: 16 bytes in URL-safe base64, without a dash at the beginning."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text
