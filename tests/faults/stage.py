"""Provides a cluster behind proxies, a stage on it, and the checks after every fault."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from sidecar.dev import local_kafka
from sidecar.dev.audit import AuditReport
from sidecar.dev.local_kafka.settings import HOST, PORTS_BESIDE, free_ports
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import log_range, uncommitted_end
from tests.faults.proxy import ApiKey, Proxy
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import TIMEOUT_S, Stage, wait_until

CLIENTS = "PROXIED"
"""The listener that advertises the address of the proxy."""

SMALL_BUCKETS: dict[str, Any] = {
    "seal_records": 300,
    "seal_age": "1s",
    "seal_beyond": "0ms",
    "segment_records": 100,
    "max_buckets": 3,
    "time_step": "2s",
    "segment_bytes": "16KiB",
}
"""Small buckets keep seal, load, merge and removal going all the time, so that faults meet them."""

FENCED_S = 8.0
"""Longer than the session of a broker. One that comes back earlier tears transactions (tests.faults.early_restart)."""


@dataclass(frozen=True, slots=True)
class Proxied:
    """A cluster, and for each of its nodes the proxy for routers; tests use the brokers directly."""

    cluster: local_kafka.Cluster
    proxies: tuple[Proxy, ...]

    @property
    def bootstrap(self) -> str:
        """The address for routers."""
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)

    @property
    def effects(self) -> Counter[str]:
        """The effects of the faults of all proxies."""
        return sum((proxy.effects for proxy in self.proxies), Counter())

    def heal(self) -> None:
        """End the faults on all lines."""
        for proxy in self.proxies:
            proxy.heal()


@contextmanager
def proxied(nodes: int = 1, *, properties: Mapping[str, str] | None = None) -> Iterator[Proxied]:
    """Start a cluster of own nodes with a proxy in front of each."""
    ports = free_ports(2 * nodes, PORTS_BESIDE)
    behind, told = ports[:nodes], ports[nodes:]

    def listeners(address: local_kafka.Address) -> dict[str, str]:
        own = f"PLAINTEXT://{HOST}:{address.port}"
        number = address.node_id - 1
        return {
            "listeners": f"{own},CONTROLLER://{HOST}:{address.controller_port},{CLIENTS}://{HOST}:{behind[number]}",
            "advertised.listeners": f"{own},{CLIENTS}://{HOST}:{told[number]}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,{CLIENTS}:PLAINTEXT",
        }

    with ExitStack() as stack:
        proxies = tuple(stack.enter_context(Proxy(*ports)) for ports in zip(behind, told, strict=True))
        yield Proxied(
            stack.enter_context(local_kafka.cluster(nodes, own_nodes=True, per_node=listeners, properties=properties)),
            proxies,
        )


class FaultStage(Stage):
    """A stage whose topics are replicated to every node, and whose routers go through the proxies."""

    def __init__(self, proxied: Proxied, directory: Path) -> None:
        super().__init__(proxied.cluster.bootstrap, directory)
        self.proxied = proxied
        self.kafka = {**self.kafka, "topic.metadata.refresh.interval.ms": "5000"}

    def create(self, topics: Any) -> None:
        """Create topics with a replica on every node."""
        nodes = len(self.proxied.proxies)
        more = {} if nodes == 1 else {"min.insync.replicas": "2"}
        super().create([NewTopic(t.topic, t.num_partitions, nodes, config={**t.config, **more}) for t in topics])

    def router(self, name: str = "router", **options: Any) -> RouterProcess:
        """Return a router with short transactions, so that an abandoned one does not block readers for long."""
        through = {"bootstrap.servers": self.proxied.bootstrap}
        return super().router(name, kafka=through, **{"transaction_timeout": "15s", **options})

    def offsets(self, topic: str) -> int:
        """Return the number of offsets in the log of a topic, with or without records."""
        partitions = self.admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        edges = [log_range(self.admin, topic, partition) for partition in partitions]
        return sum(end - start for start, end in edges)

    def topics(self) -> list[str]:
        """Return every topic that routers write to."""
        beside = ("delay-state", "delay-snapshots", "rejected", "receipts")
        own = [f"{delay}.{name}" for delay in self.delays for name in beside]
        # A delay topic, too: routers write next occurrences and moved schedules to it.
        return [*self.targets, *self.delays, *own]

    def behind(self) -> list[str]:
        """Return the partitions of any topic without a leader, or with a replica that is not in sync."""
        known = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return [
            f"{topic}/{number}"
            for topic, facts in known.items()
            for number, each in facts.partitions.items()
            if each.leader < 0 or len(each.isrs) < len(each.replicas)
        ]

    def open_transactions(self) -> list[str]:
        """Return the partitions with unsettled records, which readers do not see."""
        known = self.admin.list_topics(timeout=TIMEOUT_S).topics
        return [
            f"{topic}/{partition}"
            for topic in self.topics()
            for partition in known[topic].partitions
            if is_open(self.admin, (topic, partition))
        ]


def is_open(admin: AdminClient, place: Place) -> bool:
    """Say whether a partition has unsettled records."""
    _, settled_end = log_range(admin, *place)
    return settled_end != uncommitted_end(admin, *place)


def settled(stage: FaultStage, *, at_least: int = 100, timeout_s: float = 180.0) -> AuditReport:
    """Wait until every record has left and no transaction is open. Raise AssertionError if a guarantee is broken."""
    report = stage.settle(timeout_s=timeout_s)
    assert report.sent >= at_least, f"only {report.sent} records were sent: too few to mean anything"
    wait_until(lambda: not stage.open_transactions(), "the end of every transaction")
    return report


def wait_until_lost(running: Proxied, key: ApiKey, number: int) -> None:
    """Wait until this number of answers to requests of this kind has been lost since the stage was set."""
    wait_until(lambda: running.effects[f"lost answer to {key.name}"] == number, f"{number} lost answers to {key.name}")
