"""Runs a router under test with its own topics, and reads its metrics."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, NamedTuple

import psutil

from index.errors import DelayRouterError
from sidecar.dev.demo.router import RouterProcess, config_text
from sidecar.dev.local_kafka import free_port
from sidecar.dev.local_kafka.reaper import Reaper
from tests.bench import workload
from tests.bench.child import ROOT
from tests.bench.results import BenchmarkFailed

POLL_S: Final = 0.1
TELL_EVERY_S: Final = 10.0

SCRAPE_TIMEOUT_S: Final = 10.0
"""The default timeout of Prometheus; a router with a hundred indexing partitions takes up to two seconds."""

TOPIC_SUFFIXES: Final = ("", ".delay-state", ".delay-snapshots", ".delay-backfill", ".rejected", ".receipts")
"""The suffixes of the topics that ``delay-router init`` creates for a delay topic."""

Settings = Mapping[str, object]


class Standing(NamedTuple):
    """The position of a partition in ``/readyz``: committed C, S, and the number of pending records."""

    cursor: int
    sealed_to: int
    pending: int


@dataclass(frozen=True, slots=True)
class Router:
    """A router with one delay topic and one target topic."""

    process: RouterProcess
    delay_topic: str
    target: str

    def start(self) -> int:
        """Start the router and wait until it is ready. Return the time of the start in epoch ms."""
        started_ms = workload.now_ms()
        self.process.start()
        self.process.wait_ready()
        return started_ms

    def resident_bytes(self) -> int:
        """Return the memory of the process."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def settled_bytes(self, settle_ms: int) -> int:
        """Return the memory of the process after a time in which it settles."""
        workload.sleep_until(workload.now_ms() + settle_ms)
        return self.resident_bytes()

    def pending(self) -> int:
        """Return the number of records that are indexed and not released yet, from ``/metrics``."""
        return int(self.metric("delay_router_pending_records"))

    def metric(self, name: str) -> float:
        """Return the sum of all samples of a metric, or 0 while there is none."""
        status, text = self._get("/metrics")
        if status != HTTPStatus.OK:
            raise BenchmarkFailed(f"/metrics answers {status}: {text}")
        samples = (line for line in text.splitlines() if line.startswith((name + "{", name + " ")))
        return sum(float(line.rpartition(" ")[2]) for line in samples)

    def standing(self) -> Standing:
        """Return the position of partition 0."""
        return self.standings()[0]

    def standings(self) -> list[Standing]:
        """Return the positions of all partitions."""
        status, text = self._get("/readyz")
        if status != HTTPStatus.OK:
            raise BenchmarkFailed(f"/readyz answers {status}: {text}")
        told = json.loads(text)["partitions"]
        partitions = [told[f"{self.delay_topic}/{number}"] for number in range(len(told))]
        return [Standing(each["cursor"], each["sealed_to"], each["pending"]) for each in partitions]

    def wait_pending(self, reached: Callable[[int], bool], until_ms: int) -> None:
        """Wait until the number of pending records is right. Raise BenchmarkFailed at ``until_ms``."""
        while not reached(pending := self.pending()):
            if workload.now_ms() > until_ms:
                raise BenchmarkFailed(f"the router still has {pending} records pending")
            time.sleep(POLL_S)

    def wait_standing(
        self, what: str, reached: Callable[[Standing], bool], until_ms: int, say: Callable[[str], None] | None = None
    ) -> Standing:
        """Wait until the partition has reached a position. Raise BenchmarkFailed at ``until_ms``.

        ``say`` gets a progress line from time to time.
        """
        told_s = time.monotonic()
        while not reached(standing := self.standing()):
            if workload.now_ms() > until_ms:
                raise BenchmarkFailed(f"not {what} in time: {standing}")
            if say is not None and time.monotonic() - told_s > TELL_EVERY_S:
                told_s = time.monotonic()
                say(f"indexed to {standing.cursor:,}, sealed to {standing.sealed_to:,}")
            time.sleep(POLL_S)
        return standing

    def _get(self, path: str) -> tuple[int, str]:
        if not self.process.running:
            raise BenchmarkFailed("the router ended by itself")
        return self.process.http(path, SCRAPE_TIMEOUT_S)


@contextmanager
def prepared(
    bootstrap: str,
    partitions: int = 1,
    *,
    topic: Settings | None = None,
    router: Settings | None = None,
    admin: Settings | None = None,
) -> Iterator[Router]:
    """Create topics and a router that is still to be started; remove everything in the end.

    ``topic``, ``router`` and ``admin`` are settings of the configuration file beyond the common ones. After a failure
    the router's log is shown.
    """
    delay_topic, target = workload.name("delay"), workload.name("target")
    workload.create(bootstrap, target, workload.APPEND_TIME)
    reaper = Reaper()
    try:
        with tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
            reaper.watch(Path(directory))
            settings = {
                "kafka": {"bootstrap.servers": bootstrap},
                "router": {"group_id": workload.name("router"), **(router or {})},
                **({"admin": admin} if admin else {}),
                "delay_topics": [{"name": delay_topic, "default_target": target, **(topic or {})}],
            }
            with process_in(Path(directory), settings) as process:
                init(process.config, partitions)
                try:
                    yield Router(process, delay_topic, target)
                except (BenchmarkFailed, DelayRouterError) as error:
                    told = "\n".join(process.last_lines())
                    raise BenchmarkFailed(f"{error}; the last the router wrote:\n{told}") from error
                finally:
                    process.kill()
    finally:
        reaper.close()
        workload.delete(bootstrap, [target, *(delay_topic + suffix for suffix in TOPIC_SUFFIXES)])


@contextmanager
def running(
    bootstrap: str,
    partitions: int = 1,
    *,
    topic: Settings | None = None,
    router: Settings | None = None,
    admin: Settings | None = None,
) -> Iterator[Router]:
    """Provide a started router that is ready; see ``prepared``. In the end it must stop in order."""
    with prepared(bootstrap, partitions, topic=topic, router=router, admin=admin) as made:
        made.start()
        yield made
        if made.process.running:
            made.process.stop()


def init(config: Path, partitions: int) -> None:
    """Create the topics of a configuration."""
    command = [sys.executable, "-m", "sidecar", "init", "--config", str(config), "--partitions", str(partitions)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkFailed(f"delay-router init ended with {done.returncode}: {done.stdout}{done.stderr}")


def process_in(directory: Path, settings: Mapping[str, Any]) -> RouterProcess:
    """Write the configuration of a router with its own port. Return the router, which is still to be started."""
    port = free_port()
    config = directory / "delay-router.toml"
    config.write_text(config_text({**settings, "http": {"listen": f"127.0.0.1:{port}"}}))
    return RouterProcess(config, port, directory / "router.log")
