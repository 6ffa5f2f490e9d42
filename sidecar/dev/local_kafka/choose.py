"""Chooses the Kafka: the given servers, else a container, else our own processes from the jars."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from sidecar.dev.local_kafka import docker, maven
from sidecar.dev.local_kafka.errors import KafkaUnavailable, nothing_to_run
from sidecar.dev.local_kafka.launch import launcher
from sidecar.dev.local_kafka.own import Cluster, LocalCluster
from sidecar.dev.local_kafka.probe import answers
from sidecar.dev.local_kafka.settings import HOST, TEST_JVM, Address, PerNode, is_free

SERVERS_VARIABLE: Final = "KAFKA_BOOTSTRAP_SERVERS"
_GIVEN_TIMEOUT_S: Final = 15.0
_SIZES: Final = (1, 3)


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def check_available(*, own_nodes: bool = False) -> str:
    """Return the way to a broker on this machine (``given``, ``docker``, ``jars``) without starting one.

    ``own_nodes`` demands processes of ours, as in :func:`cluster`. Raise :class:`KafkaUnavailable`, with one line that
    says how to get a broker, when there is no way.
    """
    servers = _given_servers()
    if servers and not own_nodes:
        _given(servers, nodes=1)
        return "given"
    reasons: list[str] = []
    for way, check in _ways(own_nodes=own_nodes):
        try:
            check()
        except KafkaUnavailable as error:
            reasons.append(str(error))
        else:
            return way
    raise nothing_to_run(reasons)


@contextmanager
def cluster(
    nodes: int = 1,
    *,
    properties: Mapping[str, str] | None = None,
    per_node: PerNode | None = None,
    jvm: Sequence[str] = TEST_JVM,
    own_nodes: bool = False,
    port: int | None = None,
    say: Callable[[str], None] = _to_stderr,
) -> Iterator[Cluster]:
    """Provide a cluster of 1 or 3 nodes for the length of the ``with`` block.

    ``properties`` are broker settings that win over ours (a given cluster keeps its own). ``per_node`` returns further
    settings for each node of our own, from its id and ports. ``jvm`` are options for the Java of each broker.
    ``own_nodes`` demands processes of ours, which can be killed and paused through ``.nodes``. ``port`` is the port of
    a single node, by default a free one. ``say`` gets a line before each slow step. If an exception leaves the block,
    the logs of our own nodes stay.

    Raise :class:`KafkaUnavailable` when there is no way to a cluster.
    """
    if nodes not in _SIZES:
        raise ValueError(f"a local cluster has 1 or 3 nodes, not {nodes}")
    if port is not None and not is_free(port):
        raise KafkaUnavailable(f"port {port} of {HOST} is taken: choose another one with --port")
    overrides = dict(properties or {})
    with ExitStack() as stack:
        servers = _given_servers()
        if servers and not own_nodes:
            yield _given(servers, nodes)
            return
        way = check_available(own_nodes=own_nodes or nodes > 1)
        if way == "docker":
            try:
                running = stack.enter_context(docker.in_container(overrides, port))
            except KafkaUnavailable as error:
                # The engine may lack both the image and a registry to pull it from; the jars may still work.
                say(f"{error}; trying the jars instead")
                check_available(own_nodes=True)
            else:
                yield running
                return
        yield stack.enter_context(_own(nodes, lambda address: overrides | _more(per_node, address), jvm, port, say))


def _more(per_node: PerNode | None, address: Address) -> dict[str, str]:
    return {} if per_node is None else dict(per_node(address))


def _given_servers() -> str:
    return os.environ.get(SERVERS_VARIABLE, "").strip()


def _ways(*, own_nodes: bool) -> tuple[tuple[str, Callable[[], None]], ...]:
    jars = ("jars", maven.check)
    return (jars,) if own_nodes else (("docker", docker.check), jars)


def _given(servers: str, nodes: int) -> Cluster:
    found = len(answers(servers, _GIVEN_TIMEOUT_S))
    if not found:
        raise KafkaUnavailable(f"{SERVERS_VARIABLE}={servers} does not answer within {_GIVEN_TIMEOUT_S:.0f} s")
    if found < nodes:
        raise KafkaUnavailable(f"{SERVERS_VARIABLE}={servers} has {found} of the {nodes} brokers needed")
    return Cluster(servers, "given")


@contextmanager
def _own(
    nodes: int, properties: PerNode, jvm: Sequence[str], port: int | None, say: Callable[[str], None]
) -> Iterator[Cluster]:
    owner = LocalCluster(nodes, [*launcher(say), *jvm], properties, port)
    running: Cluster | None = None
    failed = False
    try:
        running = owner.start()
        yield running
    except Exception:
        failed = True
        raise
    finally:
        owner.remove(keep_logs=failed or (running is not None and running.keep_logs))
