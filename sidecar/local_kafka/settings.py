"""Broker and JVM settings of local clusters, and the ports they listen on."""

import random
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"

# For demo and tests: small, without a parallel collector's threads, and without the compiler that pays off
# only in minutes (two restarts each: 3.5 s without it, 4.8 and 5.4 s with it).
TEST_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

# For benchmarks: a broker as one would run it, so that the ceiling is the client's and not the heap's.
BENCH_JVM: Final = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")

# Below 32768, from where Linux takes the ports of outgoing connections: a client that keeps dialling the port
# of a stopped broker could be given that very port, connect to itself, and keep the broker from coming back.
PORTS: Final = range(15_000, 28_000)

PORTS_BESIDE: Final = range(28_000, 32_000)
"""For whoever needs ports before a cluster has chosen its own."""

_COMMON: Final[dict[str, str]] = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    # By default a first member waits 3 s for others and a session may not be under 6 s: too slow for tests of
    # both.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # Each partition of these is a few files and, at a start after SIGKILL, a recovery: 50 of each by default.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # Expired transactions are looked for every 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    # A quarter of the default 512 MB heap would go to the cleaner's buffer.
    "log.cleaner.dedupe.buffer.size": str(16 << 20),
    # After SIGKILL a broker is refused as its own duplicate until the session of its old self has run out: 9 s by
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
"""Gives the settings of one node, where they depend on its id and ports."""


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
    """Return the address of a single node on a port that was asked for."""
    return (Address(1, port, *free_ports(1)),)


def free_addresses(nodes: int) -> tuple[Address, ...]:
    """Return addresses for ``nodes`` nodes on ports that nobody listens on at this moment."""
    ports = free_ports(2 * nodes)
    return tuple(Address(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(nodes))


def free_ports(count: int, among: range = PORTS) -> list[int]:
    """Return ``count`` different ports that nobody listens on at this moment."""
    # SystemRandom: a test that seeds the module's generator must not make two runs choose the same ports.
    choose = random.SystemRandom().choice
    ports: list[int] = []
    while len(ports) < count:
        port = choose(among)
        if port not in ports and is_free(port):
            ports.append(port)
    return ports


def is_free(port: int) -> bool:
    """Whether nobody listens on a port at this moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
