"""Broker and JVM settings of local clusters, and the choice of their ports."""

import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"

# Options for demo and tests: a small heap, no threads of a parallel collector, and no second compiler, which pays off
# only after minutes (two restarts each: 3.5 s without it, 4.8 and 5.4 s with it).
TEST_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# Options for benchmarks: those of a real broker, so that the client and not the heap sets the limit.
BENCH_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")

# From 32768 on Linux gives ports to outgoing connections and to programs that let it choose. A client that keeps
# dialling a stopped broker's port in that range could get that port itself, connect to itself, and keep the broker from
# coming back. Another program could get the port of a router before the router listens there.
PORTS: Final = range(10_000, 20_000)

PORTS_BESIDE: Final = range(20_000, 32_000)
"""Ports for routers, for other servers, and for brokers whose ports are needed before the cluster starts."""

_COMMON: Final[dict[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # By default a first member waits 3 s for others, and a session must be 6 s at least: both are too slow for tests.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Each partition of these topics means a few files, and a recovery at a start after SIGKILL; the default is 50.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # By default the broker looks for expired transactions only every 10 s.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # The default buffer of the cleaner would take a quarter of the 512 MB heap.
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    # After SIGKILL the controller refuses the restarted broker as a duplicate until its old session has expired: 9 s by
    # default. With 3 s, heartbeats timed out on two busy cores.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
}

_SINGLE: Final[dict[str, str]] = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}

_REPLICATED: Final[dict[str, str]] = {
    "default.replication.factor": "3",
}


class Address(NamedTuple):
    """The two ports of a node on :data:`HOST`."""

    node_id: int
    port: int
    controller_port: int


PerNode = Callable[[Address], Mapping[str, str]]
"""Returns the settings of one node that depend on its id and ports."""


def base_properties(nodes: int) -> dict[str, str]:
    """Return the broker settings that do not depend on the node, for a cluster of 1 or 3 nodes."""
    return _COMMON | (_SINGLE if nodes == 1 else _REPLICATED)


def node_properties(
    address: Address, cluster: tuple[Address, ...], data_dir: Path, overrides: Mapping[str, str]
) -> dict[str, str]:
    """Return the whole ``server.properties`` of one node; ``overrides`` win."""
    listeners = f"PLAINTEXT://{HOST}:{address.port},CONTROLLER://{HOST}:{address.controller_port}"
    voters = ",".join(f"{node.node_id}@{HOST}:{node.controller_port}" for node in cluster)
    return {
        **base_properties(len(cluster)),
        "node.id": str(address.node_id),
        "listeners": listeners,
        "advertised.listeners": listeners,
        "controller.quorum.voters": voters,
        "log.dirs": str(data_dir),
        **overrides,
    }


def one_address(port: int) -> tuple[Address, ...]:
    """Return the address of a single node on the given port."""
    return (Address(1, port, *free_ports(1)),)


def free_addresses(nodes: int) -> tuple[Address, ...]:
    """Return addresses for ``nodes`` nodes on ports that are free at this moment."""
    ports = free_ports(2 * nodes)
    return tuple(Address(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(nodes))


def free_ports(count: int, among: range = PORTS) -> list[int]:
    """Return ``count`` different ports that are free at this moment."""
    # SystemRandom: a test that seeds the module's generator must not make two runs choose the same ports.
    choose = random.SystemRandom().choice
    ports: list[int] = []
    while len(ports) < count:
        port = choose(among)
        if port not in ports and is_free(port):
            ports.append(port)
    return ports


def free_port() -> int:
    """Return a port of :data:`PORTS_BESIDE` that is free at this moment."""
    return free_ports(1, PORTS_BESIDE)[0]


def is_free(port: int) -> bool:
    """Say whether a port is free at this moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
