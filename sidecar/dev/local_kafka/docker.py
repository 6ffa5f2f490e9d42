"""Runs a broker in a container of a Docker engine (extra ``local``: testcontainers).

A broker tells its clients its address, which may be known only once the container runs: if this process runs in a
container itself, testcontainers reaches the other container by the address of its gateway, or by its own. So the
container waits until this process gives it its address, and then starts the broker.
"""

import importlib.util
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from sidecar.dev.local_kafka.errors import KafkaUnavailable
from sidecar.dev.local_kafka.maven import kafka_version
from sidecar.dev.local_kafka.own import Cluster
from sidecar.dev.local_kafka.probe import answers
from sidecar.dev.local_kafka.settings import base_properties, free_addresses, one_address

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

_CONTROLLER_PORT: Final = 29_093
_START_TIMEOUT_S: Final = 120.0

_ADDRESS_FILE: Final = "/tmp/advertised"  # noqa: S108 - in the container, which is ours alone
_START_WHEN_TOLD: Final = (
    f"until [ -f {_ADDRESS_FILE} ]; do sleep 0.1; done; "
    f'export KAFKA_ADVERTISED_LISTENERS="$(cat {_ADDRESS_FILE})"; exec /etc/kafka/docker/run'
)
# Moved into place, so that the container never reads a half-written file.
_TELL: Final = f'printf %s "$1" >{_ADDRESS_FILE}.new && mv {_ADDRESS_FILE}.new {_ADDRESS_FILE}'


def check() -> None:
    """Raise :class:`KafkaUnavailable` unless a Docker engine answers and testcontainers is installed."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    try:
        _connect(host)
    except OSError as error:
        raise KafkaUnavailable("no Docker engine answers") from error
    if importlib.util.find_spec("testcontainers") is None:
        raise KafkaUnavailable("testcontainers is not installed (extra 'local')")


def _connect(host: str) -> None:
    """Connect to the engine's socket; this comes first, because docker-py leaks a socket if there is no engine."""
    url = urlsplit(host)
    if url.scheme == "unix":
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(2.0)
            probe.connect(url.path)
    else:
        socket.create_connection((url.hostname or "", url.port or 0), timeout=2.0).close()


def image() -> str:
    """Return the name of the Kafka project's own image, in the version of the jars."""
    return f"apache/kafka:{kafka_version()}"


@contextmanager
def in_container(properties: Mapping[str, str], port: int | None = None) -> Iterator[Cluster]:
    """Run one node in a container, on ``port`` or on a free port.

    Raise :class:`KafkaUnavailable` when there is no image or the container does not start.
    """
    port = (free_addresses(1) if port is None else one_address(port))[0].port
    with ExitStack() as stack:
        try:
            container = container_for(port, properties)
            stack.callback(container.stop)
            container.start()
            host = container.get_container_host_ip()
            _tell(container, f"PLAINTEXT://{host}:{port}")
        except Exception as error:
            # docker, requests and testcontainers have a tree of errors each; any of them rules this way out.
            raise KafkaUnavailable(f"the container {image()} did not start: {error}") from error
        if not answers(f"{host}:{port}", _START_TIMEOUT_S):
            raise KafkaUnavailable(f"the container {image()} did not answer in {_START_TIMEOUT_S:.0f} s")
        yield Cluster(f"{host}:{port}", "docker")


def _tell(container: "DockerContainer", listeners: str) -> None:
    given = container.exec(["sh", "-c", _TELL, "sh", listeners])
    if given.exit_code:
        raise OSError(f"it could not be given its address: {given.output!r}")


def container_for(port: int, properties: Mapping[str, str]) -> "DockerContainer":
    """Return the container, not started: it runs one node on ``port``, inside and outside, once it has its address.

    It is the generic container of testcontainers with the Kafka project's own image, in the version of the jars. Every
    broker setting goes in as ``KAFKA_<KEY>``. (The Kafka module of testcontainers only knows other images.)
    """
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - optional, see check()

    settings = {
        **base_properties(1),
        "node.id": "1",
        "listeners": f"PLAINTEXT://:{port},CONTROLLER://:{_CONTROLLER_PORT}",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
        **properties,
    }
    container = DockerContainer(image()).with_bind_ports(port, port).with_command(["sh", "-c", _START_WHEN_TOLD])
    for key, value in settings.items():
        container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
    return container
