"""The choice of a local Kafka, the messages when there is none, and the clean-up by the reaper; no broker."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from testcontainers.core.exceptions import ContainerStartException

from sidecar.dev import local_kafka
from sidecar.dev.local_kafka import choose, docker, maven
from sidecar.dev.local_kafka.own import Cluster
from sidecar.dev.local_kafka.reaper import Reaper
from sidecar.dev.local_kafka.settings import PORTS, PORTS_BESIDE, free_addresses, free_port, node_properties


def _missing(what: str) -> Callable[[], None]:
    def check() -> None:
        raise local_kafka.KafkaUnavailable(what)

    return check


def _present() -> None:
    return


@pytest.fixture(autouse=True)
def no_given_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(local_kafka.SERVERS_VARIABLE, raising=False)
    monkeypatch.delenv(maven.VERSION_VARIABLE, raising=False)


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that a Docker engine and the means to run jars are there, or not."""

    def pretend(*, docker_there: bool, jars_there: bool) -> None:
        monkeypatch.setattr(docker, "check", _present if docker_there else _missing("no Docker engine answers"))
        monkeypatch.setattr(maven, "check", _present if jars_there else _missing("Java is missing"))

    return pretend


@pytest.mark.parametrize(
    ("docker_there", "jars_there", "own_nodes", "way"),
    [
        (True, True, False, "docker"),
        (True, False, False, "docker"),
        (False, True, False, "jars"),
        (True, True, True, "jars"),
    ],
)
def test_the_order_of_ways(
    ways: Callable[..., None], docker_there: bool, jars_there: bool, own_nodes: bool, way: str
) -> None:
    ways(docker_there=docker_there, jars_there=jars_there)
    assert local_kafka.check_available(own_nodes=own_nodes) == way


def test_given_servers_come_first(monkeypatch: pytest.MonkeyPatch, ways: Callable[..., None]) -> None:
    ways(docker_there=True, jars_there=True)
    monkeypatch.setenv(local_kafka.SERVERS_VARIABLE, "10.0.0.1:9092")
    monkeypatch.setattr(choose, "answers", lambda servers, timeout_s: frozenset({1, 2, 3}))
    assert local_kafka.check_available() == "given"
    assert local_kafka.check_available(own_nodes=True) == "jars"
    with local_kafka.cluster(3) as kafka:
        assert kafka == Cluster("10.0.0.1:9092", "given")


@pytest.mark.parametrize(("brokers", "nodes", "said"), [(0, 1, "does not answer"), (1, 3, "has 1 of the 3 brokers")])
def test_given_servers_that_will_not_do(monkeypatch: pytest.MonkeyPatch, brokers: int, nodes: int, said: str) -> None:
    monkeypatch.setenv(local_kafka.SERVERS_VARIABLE, "10.0.0.1:9092")
    monkeypatch.setattr(choose, "answers", lambda servers, timeout_s: frozenset(range(brokers)))
    with (
        pytest.raises(local_kafka.KafkaUnavailable, match=rf"KAFKA_BOOTSTRAP_SERVERS=10\.0\.0\.1:9092 {said}"),
        local_kafka.cluster(nodes),
    ):
        pytest.fail("was not to start")


def test_nothing_there_is_one_line_that_says_what_to_do(ways: Callable[..., None]) -> None:
    ways(docker_there=False, jars_there=False)
    with pytest.raises(local_kafka.KafkaUnavailable) as caught:
        local_kafka.check_available()
    (line,) = str(caught.value).splitlines()
    for wanted in ("KAFKA_BOOTSTRAP_SERVERS", "Java 17", "Maven", "apt-get install", "Docker", "the extra local"):
        assert wanted in line
    assert line.endswith("[no Docker engine answers; Java is missing]")


def test_a_container_that_will_not_start_leads_to_the_jars(
    monkeypatch: pytest.MonkeyPatch, ways: Callable[..., None]
) -> None:
    ways(docker_there=True, jars_there=True)

    def no_container(port: int, properties: object) -> object:
        raise OSError("cannot pull")

    @contextmanager
    def own(*_: object) -> Iterator[Cluster]:
        yield Cluster("own:1", "jars")

    monkeypatch.setattr(docker, "container_for", no_container)
    monkeypatch.setattr(choose, "_own", own)
    said: list[str] = []
    with local_kafka.cluster(say=said.append) as kafka:
        assert kafka.origin == "jars"
    assert said == [f"the container {docker.image()} did not start: cannot pull; trying the jars instead"]


class _Executed(NamedTuple):
    exit_code: int
    output: bytes


class _FakeContainer:
    """A container as another container sees it: its address is known once it runs."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.env: dict[str, str] = {}
        self.ports: dict[int, int] = {}
        self.command: list[str] = []
        self.told: list[list[str]] = []
        self.exit_code = 0
        self.running = False

    def with_command(self, command: list[str]) -> "_FakeContainer":
        self.command = command
        return self

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False

    def get_container_host_ip(self) -> str:
        if not self.running:
            raise ContainerStartException("Container is not started")
        return "172.17.0.1"

    def exec(self, command: list[str]) -> _Executed:
        self.told.append(command)
        return _Executed(self.exit_code, b"read-only")

    def with_env(self, key: str, value: str) -> "_FakeContainer":
        self.env[key] = value
        return self

    def with_bind_ports(self, container: int, host: int) -> "_FakeContainer":
        self.ports[container] = host
        return self


def test_what_the_container_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", _FakeContainer)
    made: Any = docker.container_for(20_001, {"log.retention.check.interval.ms": "1000"})
    assert made.image == f"apache/kafka:{maven.kafka_version()}"
    assert made.ports == {20_001: 20_001}
    assert made.env["KAFKA_LISTENERS"] == "PLAINTEXT://:20001,CONTROLLER://:29093"
    assert made.env["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"
    assert made.env["KAFKA_LOG_RETENTION_CHECK_INTERVAL_MS"] == "1000"
    assert made.env["KAFKA_PROCESS_ROLES"] == "broker,controller"


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> _FakeContainer:
    """Replace the real container by a fake one, with brokers that answer."""
    fake = _FakeContainer(docker.image())
    monkeypatch.setattr("testcontainers.core.container.DockerContainer", lambda image: fake)
    monkeypatch.setattr(docker, "answers", lambda servers, timeout_s: frozenset({1}))
    return fake


def test_the_container_is_asked_where_it_is_when_it_runs(container: _FakeContainer) -> None:
    with docker.in_container({}) as kafka:
        (port,) = container.ports
        assert kafka == Cluster(f"172.17.0.1:{port}", "docker")
        assert [command[-1] for command in container.told] == [f"PLAINTEXT://172.17.0.1:{port}"]
        assert container.running
    assert not container.running


def test_a_container_that_cannot_be_told_its_address_is_none(container: _FakeContainer) -> None:
    container.exit_code = 1
    with (
        pytest.raises(local_kafka.KafkaUnavailable, match="could not be given its address: b'read-only'"),
        docker.in_container({}),
    ):
        pytest.fail("was not to start")
    assert not container.running


def test_the_container_starts_the_broker_once_it_is_told(container: _FakeContainer, tmp_path: Path) -> None:
    """The test runs both shell programs, with the files of a container in a directory of its own."""
    with docker.in_container({}):
        start, tell = container.command, container.told[0]
    run = tmp_path / "run"
    _program(run, 'echo "told: $KAFKA_ADVERTISED_LISTENERS"')
    places = {"/tmp/advertised": str(tmp_path / "advertised"), "/etc/kafka/docker/run": str(run)}  # noqa: S108
    start, tell = (_moved(command, places) for command in (start, tell))
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.5)
        subprocess.run(tell, check=True)
        output, _ = waiting.communicate(timeout=30)
    assert output == f"told: {container.told[0][-1]}\n"


def _moved(command: list[str], places: dict[str, str]) -> list[str]:
    for place, other in places.items():
        command = [part.replace(place, other) for part in command]
    return command


def test_the_size_is_one_or_three() -> None:
    with pytest.raises(ValueError, match="1 or 3 nodes, not 2"), local_kafka.cluster(2):
        pytest.fail("was not to start")


def _program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a directory whose ``bin`` comes first on the PATH, with an empty cache."""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return tmp_path


def test_java_home_comes_before_the_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _program(machine / "bin" / "java", 'echo "openjdk version \\"21.0.1\\"" >&2')
    assert maven.java().path == str(machine / "bin" / "java")
    _program(machine / "home" / "bin" / "java", 'echo "openjdk version \\"17\\"" >&2')
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    assert maven.java().path == str(machine / "home" / "bin" / "java")


@pytest.mark.parametrize(("version", "said"), [("1.8.0_402", "version 8"), ("11.0.2", "version 11"), ("x", "unknown")])
def test_an_old_java_is_named(machine: Path, version: str, said: str) -> None:
    _program(machine / "bin" / "java", f'echo "openjdk version \\"{version}\\"" >&2')
    with pytest.raises(local_kafka.KafkaUnavailable, match=f"Java 17 or newer is needed, .* is .*{said}"):
        maven.check()


_FAKE_MAVEN = """
for argument; do case $argument in -DoutputDirectory=*) libs=${argument#*=};; esac; done
test -f pom.xml || exit 3
mkdir -p "$libs" && touch "$libs/kafka_2.13-%s.jar"
echo called >> %s
"""


def test_jars_are_fetched_once(machine: Path) -> None:
    calls = machine / "calls"
    _program(machine / "bin" / "mvn", _FAKE_MAVEN % (maven.kafka_version(), calls))
    said: list[str] = []
    libs = maven.jars(said.append)
    assert [path.name for path in libs.iterdir()] == [f"kafka_2.13-{maven.kafka_version()}.jar"]
    assert libs.parent == machine / "cache" / "kafka-delay-router"
    assert maven.jars(said.append) == libs
    assert calls.read_text(encoding="utf-8") == "called\n"
    assert len(said) == 1


def test_another_version_has_jars_of_its_own(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = maven.cache_dir()
    monkeypatch.setenv(maven.VERSION_VARIABLE, "3.9.1")
    _program(machine / "bin" / "mvn", f'echo "$@" >{machine}/asked\n' + _FAKE_MAVEN % ("3.9.1", machine / "calls"))
    libs = maven.jars(lambda _: None)
    assert libs != own
    assert [path.name for path in libs.iterdir()] == ["kafka_2.13-3.9.1.jar"]
    assert "-Dkafka.version=3.9.1 " in (machine / "asked").read_text(encoding="utf-8")
    assert docker.image() == "apache/kafka:3.9.1"


@pytest.mark.parametrize("named", ["4", "4.0", "newest", "4.0.0/.."])
def test_what_is_no_version_is_refused(machine: Path, monkeypatch: pytest.MonkeyPatch, named: str) -> None:
    monkeypatch.setenv(maven.VERSION_VARIABLE, named)
    with pytest.raises(local_kafka.KafkaUnavailable, match=r"KAFKA_VERSION=.* is no version"):
        maven.jars(lambda _: None)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('echo "[ERROR] no such artifact"; echo "[ERROR] -X for more"; exit 1', "no such artifact$"),
        ("exit 0", "it printed nothing$"),
    ],
)
def test_a_failed_download_leaves_nothing(machine: Path, script: str, said: str) -> None:
    _program(machine / "bin" / "mvn", script)
    with pytest.raises(local_kafka.KafkaUnavailable, match=said):
        maven.jars(lambda _: None)
    left = [path.name for path in (machine / "cache" / "kafka-delay-router").iterdir()]
    assert left == [maven.lock_file(maven.cache_dir()).name]


def test_ports_are_free_distinct_and_not_for_outgoing_connections() -> None:
    addresses = free_addresses(3)
    ports = {port for address in addresses for port in (address.port, address.controller_port)}
    assert len(ports) == 6
    assert all(port in PORTS for port in ports)
    assert free_port() in PORTS_BESIDE
    assert max(*PORTS, *PORTS_BESIDE) < 32_768
    assert not set(PORTS) & set(PORTS_BESIDE)


def test_settings_of_three_nodes(tmp_path: Path) -> None:
    addresses = free_addresses(3)
    settings = node_properties(addresses[1], addresses, tmp_path, {"num.io.threads": "2"})
    assert settings["node.id"] == "2"
    assert settings["num.io.threads"] == "2"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["controller.quorum.voters"].count("@") == 3
    assert "transaction.state.log.replication.factor" not in settings, "three nodes keep Kafka's default of 3"


def test_the_reaper_removes_what_is_registered_when_it_ends(tmp_path: Path) -> None:
    kept, removed = tmp_path / "kept", tmp_path / "removed"
    kept.mkdir()
    removed.mkdir()
    sleepers = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) for _ in range(2)]
    try:
        reaper = Reaper()
        for directory in (kept, removed):
            reaper.watch(directory)
        for sleeper in sleepers:
            reaper.watch(sleeper.pid)
        reaper.forget(kept)
        reaper.forget(sleepers[0].pid)
        reaper.close()
        assert sleepers[1].wait(10) == -signal.SIGKILL
        assert sleepers[0].poll() is None
        assert (kept.exists(), removed.exists()) == (True, False)
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
