"""Runs several routers of one group, static members as in the chart, and writes the policies that they follow."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from index.errors import DelayRouterError
from sidecar.dev.demo.router import RouterProcess
from sidecar.dev.local_kafka.reaper import Reaper
from sidecar.policies.policy import Policy, Scope, encode
from tests.bench import router, workload
from tests.bench.results import BenchmarkFailed

SHARED_OUT_S: Final = 60.0
POLL_S: Final = 0.1


class PolicyWriter:
    """Writes policies as the router's own commands do, over an open connection."""

    def __init__(self, bootstrap: str, policies_topic: str) -> None:
        self._topic = policies_topic
        self._producer = Producer(
            workload.QUIET | {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )

    def write(self, scope: Scope, policy: Policy | None) -> tuple[int, int]:
        """Set a policy, or remove it. Return the times of the hand-over and of the acknowledgement, in epoch ms."""
        acknowledged_ms: list[int] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is None:
                acknowledged_ms.append(workload.now_ms())

        handed_ms = workload.now_ms()
        value = None if policy is None else encode(policy)
        self._producer.produce(self._topic, value, scope.key, 0, on_delivery=delivered)
        self._producer.flush(workload.REQUEST_TIMEOUT_S)
        if not acknowledged_ms:
            raise BenchmarkFailed(f"policy {scope} was not written in {workload.REQUEST_TIMEOUT_S:.0f} s")
        return handed_ms, acknowledged_ms[0]


@dataclass(frozen=True, slots=True)
class Group:
    """Routers that share the partitions of one delay topic."""

    routers: tuple[RouterProcess, ...]
    delay_topic: str
    target: str
    policies_topic: str

    @property
    def rejected(self) -> str:
        """The topic of rejected records."""
        return f"{self.delay_topic}.rejected"

    def partitions(self) -> list[dict[str, Any]]:
        """Return the partitions that each router reports; empty for a router that does not answer."""
        with ThreadPoolExecutor(len(self.routers)) as pool:
            return list(pool.map(_partitions_of, self.routers))

    def wait_shared_out(self, partitions: int) -> None:
        """Wait until every router has its equal share, active. Raise BenchmarkFailed after the timeout."""
        until_s = time.monotonic() + SHARED_OUT_S
        share = partitions // len(self.routers)
        while True:
            states = [[each["state"] for each in own.values()] for own in self.partitions()]
            if all(own == ["active"] * share for own in states):
                return
            if time.monotonic() > until_s:
                raise BenchmarkFailed(f"{partitions} partitions are not shared out equally: {states}")
            time.sleep(POLL_S)

    def wait_released(self) -> None:
        """Wait until no record is pending any more."""
        self.wait_pending(0, workload.now_ms() + int(workload.REQUEST_TIMEOUT_S * 1_000))

    def wait_pending(self, wanted: int, until_ms: int) -> None:
        """Wait until this number of records is pending. Raise BenchmarkFailed at ``until_ms``."""
        while (pending := sum(each["pending"] for own in self.partitions() for each in own.values())) != wanted:
            if workload.now_ms() > until_ms:
                raise BenchmarkFailed(f"{pending} records are pending, not {wanted}")
            time.sleep(POLL_S)


def _partitions_of(process: RouterProcess) -> dict[str, Any]:
    status, text = process.http("/readyz")
    known: dict[str, Any] = json.loads(text)["partitions"] if status == HTTPStatus.OK else {}
    return known


@contextmanager
def running(bootstrap: str, count: int, partitions: int, *, topic: router.Settings | None = None) -> Iterator[Group]:
    """Start ``count`` routers, each with its share of the partitions; remove everything in the end.

    ``topic`` are settings of the delay topic beyond the common ones.
    """
    delay_topic, target, policies = (workload.name(role) for role in ("delay", "target", "policies"))
    group_id = workload.name("router")
    with ExitStack() as stack:
        topics = [target, policies, *(delay_topic + suffix for suffix in router.TOPIC_SUFFIXES)]
        stack.callback(workload.delete, bootstrap, topics)
        workload.create(bootstrap, target, workload.APPEND_TIME)
        # The brokers then stamp the time of a rejection, too.
        workload.create(bootstrap, f"{delay_topic}.rejected", workload.APPEND_TIME)
        reaper = Reaper()
        stack.callback(reaper.close)
        routers: list[RouterProcess] = []
        for number in range(count):
            directory = Path(stack.enter_context(TemporaryDirectory(prefix="delay-router-bench-")))
            reaper.watch(directory)
            settings = {
                "kafka": {"bootstrap.servers": bootstrap},
                "router": {"group_id": group_id, "instance_id": f"router-{number}", "policies_topic": policies},
                "delay_topics": [{"name": delay_topic, "default_target": target, **(topic or {})}],
            }
            routers.append(stack.enter_context(router.process_in(directory, settings)))
        router.init(routers[0].config, partitions)
        group = Group(tuple(routers), delay_topic, target, policies)
        try:
            for process in routers:
                process.start()
            for process in routers:
                process.wait_ready()
            group.wait_shared_out(partitions)
            yield group
        except (BenchmarkFailed, DelayRouterError) as error:
            told = "\n".join(line for process in routers for line in process.last_lines(10))
            raise BenchmarkFailed(f"{error}; the last the routers wrote:\n{told}") from error
