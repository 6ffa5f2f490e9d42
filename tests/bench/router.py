"""A router under test: topics of its own, the process, and what its metrics say."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from index.errors import DelayRouterError
from sidecar.demo.router import RouterProcess, config_text, free_port
from sidecar.local_kafka.reaper import Reaper
from tests.bench import workload
from tests.bench.child import ROOT
from tests.bench.results import BenchmarkFailed

POLL_S: Final = 0.1

TOPIC_SUFFIXES: Final = ("", ".delay-state", ".delay-snapshots", ".rejected")
"""Of the topics that ``delay-router init`` creates for a delay topic."""


@dataclass(frozen=True, slots=True)
class Router:
    """A running router with one delay topic and one target topic."""

    process: RouterProcess
    delay_topic: str
    target: str

    def pending(self) -> int:
        """Return how many records are indexed and not released yet, as ``/metrics`` says."""
        return int(self.metric("delay_router_pending_records"))

    def metric(self, name: str) -> float:
        """Return the sum of all samples of a metric; 0 while there is none."""
        if not self.process.running:
            raise BenchmarkFailed("the router ended by itself")
        status, text = self.process.http("/metrics")
        if status != HTTPStatus.OK:
            raise BenchmarkFailed(f"/metrics answers {status}: {text}")
        samples = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def wait_pending(self, reached: Callable[[int], bool], until_ms: int) -> None:
        """Wait until the number of pending records is right; BenchmarkFailed at ``until_ms``."""
        while not reached(pending := self.pending()):
            if workload.now_ms() > until_ms:
                raise BenchmarkFailed(f"the router still has {pending} records pending")
            time.sleep(POLL_S)


@contextmanager
def running(bootstrap: str, partitions: int = 1) -> Iterator[Router]:
    """Create topics, start a router over them, wait until it is ready; remove everything in the end.

    What the router wrote to its log is shown when something goes wrong.
    """
    delay_topic, target = workload.name("delay"), workload.name("target")
    workload.create(bootstrap, target, workload.APPEND_TIME)
    reaper = Reaper()
    try:
        with tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
            reaper.watch(Path(directory))
            with _process(bootstrap, Path(directory), delay_topic, target) as process:
                _init(process.config, partitions)
                process.start()
                reaper.watch(process.pid)
                try:
                    process.wait_ready()
                    yield Router(process, delay_topic, target)
                    process.stop()
                except (BenchmarkFailed, DelayRouterError) as error:
                    told = "\n".join(process.last_lines())
                    raise BenchmarkFailed(f"{error}; the last the router wrote:\n{told}") from error
                finally:
                    process.kill()
                    reaper.forget(process.pid)
    finally:
        reaper.close()
        workload.delete(bootstrap, [target, *(delay_topic + suffix for suffix in TOPIC_SUFFIXES)])


def _init(config: Path, partitions: int) -> None:
    command = [sys.executable, "-m", "sidecar", "init", "--config", str(config), "--partitions", str(partitions)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkFailed(f"delay-router init ended with {done.returncode}: {done.stdout}{done.stderr}")


def _process(bootstrap: str, directory: Path, delay_topic: str, target: str) -> RouterProcess:
    port = free_port()
    config = directory / "delay-router.toml"
    config.write_text(
        config_text(
            {
                "kafka": {"bootstrap.servers": bootstrap},
                "router": {"group_id": workload.name("router")},
                "http": {"listen": f"127.0.0.1:{port}"},
                "delay_topics": [{"name": delay_topic, "default_target": target}],
            }
        )
    )
    return RouterProcess(config, port, directory / "router.log")
