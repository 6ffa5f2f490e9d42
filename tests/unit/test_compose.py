"""compose.yaml: a Kafka and a router that find each other, can be reached from outside, and start in order."""

import re
import shlex
import subprocess
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from sidecar.cli.program import cli
from sidecar.config import model as configuration
from sidecar.config.listeners import is_loopback
from sidecar.dev.local_kafka import maven
from tests.support.paths import ROOT

FILE: Final = ROOT / "compose.yaml"
SERVICES: Final[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
KAFKA: Final[dict[str, str]] = SERVICES["kafka"]["environment"]


def _listeners(key: str) -> dict[str, str]:
    """Return the names of listeners with their addresses."""
    return dict(each.split("://") for each in KAFKA[key].split(","))


def _published(service: str) -> dict[int, tuple[str, int]]:
    """Return the ports in the container, with address and port of this machine."""
    found = (port.rsplit(":", 2) for port in SERVICES[service]["ports"])
    return {int(inside): (host, int(outside)) for host, outside, inside in found}


@pytest.mark.parametrize("service", ["init", "router"])
def test_the_router_reads_its_configuration(service: str) -> None:
    config = configuration.load(None, SERVICES[service]["environment"])
    assert [(topic.name, topic.default_target) for topic in config.delay_topics] == [("orders.delay", "orders")]
    assert config.bootstrap == _listeners("KAFKA_ADVERTISED_LISTENERS")["INSIDE"]


def test_the_router_can_be_reached_from_outside_its_container() -> None:
    config = configuration.load(None, SERVICES["router"]["environment"])
    assert not is_loopback(config.http.host)
    assert _published("router") == {config.http.port: ("127.0.0.1", 8080)}


def test_each_client_is_sent_where_it_can_go() -> None:
    advertised = {name: address.rsplit(":", 1) for name, address in _listeners("KAFKA_ADVERTISED_LISTENERS").items()}
    bound = {name: address.rsplit(":", 1)[1] for name, address in _listeners("KAFKA_LISTENERS").items()}
    assert {name: host for name, (host, _) in advertised.items()} == {"INSIDE": "kafka", "OUTSIDE": "localhost"}
    assert all(bound[name] == port for name, (_, port) in advertised.items())
    assert _published("kafka") == {int(bound["OUTSIDE"]): ("127.0.0.1", int(advertised["OUTSIDE"][1]))}
    known = {each.split(":")[0] for each in KAFKA["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    assert known == set(bound)
    assert KAFKA["KAFKA_INTER_BROKER_LISTENER_NAME"] == "INSIDE"


def test_topics_are_there_before_the_router_starts() -> None:
    assert SERVICES["router"]["depends_on"] == {"init": {"condition": "service_completed_successfully"}}
    assert SERVICES["init"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}


def test_the_kafka_is_the_one_that_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(maven.VERSION_VARIABLE, raising=False)
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{maven.kafka_version()}"


def test_commands_that_are_run_and_shown_exist() -> None:
    shown = re.findall(r"exec router delay-router (.*)", FILE.read_text(encoding="utf-8"))
    assert len(shown) == 3
    for arguments in (
        *(shlex.split(line) for line in shown),
        SERVICES["init"]["command"],
        SERVICES["router"]["command"],
    ):
        options = [argument for argument in arguments if argument.startswith("--")]
        known = CliRunner().invoke(cli, [arguments[0], "--help"])
        assert known.exit_code == 0, arguments
        assert all(option in known.output for option in options), arguments


def test_docker_compose_takes_it() -> None:
    try:
        found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no docker client")
    if found.returncode:
        pytest.skip("the docker client has no compose")
    call = ["docker", "compose", "--file", str(FILE), "config", "--quiet"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
