"""Tests that the image runs like in Kubernetes, without root, writable files and capabilities, and delivers."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import sidecar
from sidecar.dev import local_kafka
from sidecar.dev.demo.router import config_text
from sidecar.dev.local_kafka import free_port
from tests.image import engine
from tests.image.engine import docker
from tests.integration.scenario import Stage, now_ms, wait_until

TAG: Final = "kafka-delay-router:test"
CONFINED: Final = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")  # noqa: S108
SBOM: Final = "/usr/share/doc/kafka-delay-router/sbom.cdx.json"

pytestmark = pytest.mark.timeout(1_200)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the image, built once."""
    engine.build(engine.base_image(), TAG, tmp_path_factory.mktemp("context"))
    return TAG


def _run(image: str, *command: str) -> str:
    return docker("run", "--rm", "--network", "none", *CONFINED, image, *command)


def _run_instead(program: str, image: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run another program in place of the router, with any exit code."""
    return engine.call("run", "--rm", "--network", "none", *CONFINED, "--entrypoint", program, image, *arguments)


def test_it_knows_its_version(image: str) -> None:
    assert _run(image, "--version").startswith(f"delay-router, version {sidecar.__version__}, commit ")


def test_it_is_nobody_and_can_write_nowhere_but_tmp(image: str) -> None:
    program = "import os, tempfile; print(os.getuid(), os.getgid(), tempfile.gettempdir())"
    assert _run_instead("python3", image, "-c", program).stdout.strip() == "10001 10001 /tmp"
    refused = _run_instead("touch", image, "/opt/delay-router/new")
    assert "Read-only file system" in refused.stderr
    user = engine.inspect(image)["Config"]["User"]
    assert user == "10001:10001", "numeric, or runAsNonRoot could not be checked"


def test_it_runs_the_kernel_and_has_no_compiler(image: str) -> None:
    assert _run_instead("python3", image, "-m", "sidecar.kernel").stdout == "kernel: native\n"
    compilers = _run_instead("sh", image, "-c", "command -v cc gcc g++ clang as")
    assert (compilers.returncode != 0, compilers.stdout) == (True, "")


def test_failpoints_cannot_be_armed(image: str) -> None:
    variable = "DELAY_ROUTER_FAILPOINT=seal.before_manifest"
    servers = "DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS=127.0.0.1:1"
    topics = 'DELAY_ROUTER__DELAY_TOPICS=[{"name": "orders.delay", "default_target": "orders"}]'
    settings = [argument for each in (variable, servers, topics) for argument in ("--env", each)]
    refused = engine.call("run", "--rm", "--network", "none", *CONFINED, *settings, image)
    assert refused.returncode == 2
    assert "only tests in the source tree" in refused.stderr


def test_it_holds_what_is_locked_and_no_installer(image: str) -> None:
    program = (
        "import importlib.metadata as m, sysconfig, json;"
        "p = sysconfig.get_path('purelib');"
        "print(json.dumps({d.name.lower().replace('_', '-'): d.version for d in m.distributions(path=[p])}))"
    )
    installed = json.loads(_run_instead("python3", image, "-c", program).stdout)
    assert installed.pop("kafka-delay-router") == sidecar.__version__
    pins = (line.split("==") for line in (engine.ROOT / "requirements.lock").read_text().splitlines() if "==" in line)
    assert installed == {name: version.split()[0] for name, version in pins}


def test_the_list_of_components_names_what_wheels_carry(image: str) -> None:
    sbom: dict[str, Any] = json.loads(_run_instead("cat", image, SBOM).stdout)
    assert sbom["bomFormat"] == "CycloneDX"
    versions: dict[str, set[str]] = {}
    for component in sbom["components"]:
        versions.setdefault(component["name"], set()).add(component.get("version", ""))
    assert {"confluent-kafka", "librdkafka", "openssl", "zlib", "zstd", "lz4", "curl", "croaring", "cpython"} <= set(
        versions
    )
    assert all(versions[name] - {""} for name in ("librdkafka", "openssl", "zlib", "zstd", "lz4", "croaring"))
    assert {"pydantic_core", "serde_json"} <= set(versions), "crates within extension modules"
    assert "libc6" in versions, "packages of the base image"
    references = [component["bom-ref"] for component in sbom["components"]]
    assert len(references) == len(set(references))
    below = {edge["ref"]: edge.get("dependsOn", []) for edge in sbom["dependencies"]}
    (kafka,) = (each["bom-ref"] for each in sbom["components"] if each["name"] == "confluent-kafka")
    assert any("librdkafka" in reference for reference in below[kafka])


def test_without_a_configuration_it_says_what_is_missing(image: str) -> None:
    done = engine.call("run", "--rm", "--network", "none", *CONFINED, image)
    assert done.returncode == 2
    assert "no such configuration file" in done.stderr


class Container:
    """A router in a container."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port

    def health(self) -> str:
        """Return the result of the engine's health check."""
        return str(engine.inspect(self.name)["State"]["Health"]["Status"])

    def exit_code(self) -> int:
        """Wait for the end of the container, and return its exit code."""
        return int(docker("wait", self.name))


@contextmanager
def _router(image: str, stage: Stage, folder: Path, name: str) -> Iterator[Container]:
    port = free_port()
    file = folder / "delay-router.toml"
    file.write_text(
        config_text(
            {
                "kafka": stage.kafka,
                "router": {"group_id": stage.group_id, "instance_id": "one", "session_timeout": "6s"},
                "http": {"listen": f"127.0.0.1:{port}"},
                "delay_topics": list(stage.delays.values()),
            }
        )
    )
    file.chmod(0o644)
    folder.chmod(0o755)
    options = ("--network", "host", "--volume", f"{file}:/etc/delay-router/{file.name}:ro", "--health-interval", "1s")
    docker("run", "--rm", *options[:4], *CONFINED, image, "init", "--partitions", "1")
    container = Container(f"{stage.word}-{name}", port)
    docker("run", "--detach", "--name", container.name, *options, *CONFINED, image)
    try:
        yield container
    finally:
        logs = engine.call("logs", "--tail", 40, container.name)
        print(logs.stdout, logs.stderr)
        docker("rm", "--force", container.name)


def test_it_delivers_is_killed_and_delivers_on(image: str, kafka: local_kafka.Cluster, tmp_path: Path) -> None:
    """The demo has the same steps: nothing is lost, doubled or early, despite the end of the container."""
    stage = Stage(kafka.bootstrap, tmp_path)
    delay, target = f"{stage.word}.delay", stage.target()
    stage.delays[delay] = {"name": delay, "default_target": target}
    sent = 40
    with _router(image, stage, tmp_path, "first") as first:
        wait_until(lambda: first.health() == "healthy", "a healthy container", 60)
        for number in range(sent):
            stage.post(delay, ("deliver-at", b"%d" % (now_ms() + 100 * number)), value=b"%d" % number)
        stage.flush()
        stage.wait_records(target, sent // 4)
        docker("kill", "--signal", "KILL", first.name)
    with _router(image, stage, tmp_path, "second") as second:
        stage.wait_records(target, sent, 60)
        wait_until(lambda: second.health() == "healthy", "a healthy container", 60)
        started_s = time.monotonic()
        docker("kill", "--signal", "SIGTERM", second.name)
        assert second.exit_code() == 0
        assert time.monotonic() - started_s < 30
    report = stage.audit()
    counted = (report.sent, report.released_once, report.duplicated, report.early, report.lost)
    assert counted == (sent, sent, 0, 0, 0), report
