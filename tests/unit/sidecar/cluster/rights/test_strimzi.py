"""Rights as a KafkaUser of Strimzi: the same rights, for every configuration, and as YAML."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from sidecar.cli.program import cli
from sidecar.cluster.rights import acls, acls_jobs
from sidecar.cluster.rights.acls import Acl
from sidecar.config.model import load
from tests.support.configuration import configured

_KINDS = {"topic": "topic", "group": "group", "transactionalId": "transactional-id"}
_PATTERNS = {"literal": "literal", "prefix": "prefixed"}


def run(file: Path, *arguments: str, bootstrap: str = "b:9093") -> Result:
    environ = {"DELAY_ROUTER__KAFKA__BOOTSTRAP_SERVERS": bootstrap}
    file.write_text(file.read_text().replace('"bootstrap.servers" = "b:9093"', ""))
    return CliRunner().invoke(
        cli, ["check", "--acls", "--format", "strimzi", "--config", str(file), *arguments], env=environ
    )


def user(file: Path, *arguments: str, bootstrap: str = "b:9093") -> dict[str, Any]:
    done = run(file, *arguments, bootstrap=bootstrap)
    assert done.exit_code == 0, done.stderr
    (found,) = yaml.safe_load_all(done.stdout)
    return dict(found)


def rights(found: dict[str, Any]) -> list[Acl]:
    """Return the rights that Strimzi would grant."""
    return [
        Acl(
            _KINDS[rule["resource"]["type"]],
            rule["resource"]["name"],
            _PATTERNS[rule["resource"]["patternType"]],
            each,
            "",
        )
        for rule in found["spec"]["authorization"]["acls"]
        for each in rule["operations"]
    ]


@pytest.mark.parametrize("group", ["delay-router", 'the router\'s "$(group)": #1'])
def test_it_grants_what_a_router_needs_and_nothing_else(tmp_path: Path, group: str) -> None:
    file = configured(tmp_path, "billing.*", "*.out", trim=True, group=group.replace('"', '\\"'))
    wanted = acls.needed(load(file, {}))
    assert rights(user(file)) == [acl._replace(why="") for acl in wanted.acls]
    assert f"# NOTE: {wanted.notes[0]}" in run(file).stdout.splitlines()


def test_it_grants_what_a_job_needs(tmp_path: Path) -> None:
    file = configured(tmp_path)
    wanted = acls_jobs.needed(load(file, {}), ["audit"])
    found = user(file, "--job", "audit", "--principal", "User:audit")
    assert found["metadata"]["name"] == "audit"
    assert rights(found) == [acl._replace(why="") for acl in wanted.acls]


@pytest.mark.parametrize(
    ("principal", "name", "authentication"),
    [((), "delay-router", "scram-sha-512"), (("User:a.b-1",), "a.b-1", "scram-sha-512"), (("User:CN=a",), "a", "tls")],
)
def test_the_user_logs_in_as_the_principal_does(
    tmp_path: Path, principal: tuple[str, ...], name: str, authentication: str
) -> None:
    found = user(configured(tmp_path), *(word for each in principal for word in ("--principal", each)))
    assert (found["apiVersion"], found["kind"]) == ("kafka.strimzi.io/v1", "KafkaUser")
    assert (found["metadata"]["name"], found["spec"]["authentication"]) == (name, {"type": authentication})


@pytest.mark.parametrize("principal", ["User:<router>", "User:Router", "User:CN=a,O=b", "router", "User:", "User:a-"])
def test_a_name_that_no_user_can_have_is_refused(tmp_path: Path, principal: str) -> None:
    refused = run(configured(tmp_path), "--principal", principal)
    assert refused.exit_code == 2
    assert "write User:NAME for SCRAM-SHA-512" in refused.stderr


@pytest.mark.parametrize(
    ("bootstrap", "cluster"),
    [
        ("my-cluster-kafka-bootstrap:9093", "my-cluster"),
        ("eu-kafka-bootstrap.kafka.svc.cluster.local:9093, other:9093", "eu"),
        ("kafka:9093", "<cluster>"),
    ],
)
def test_the_cluster_is_named_by_the_brokers_service(tmp_path: Path, bootstrap: str, cluster: str) -> None:
    file = configured(tmp_path)
    assert user(file, bootstrap=bootstrap)["metadata"]["labels"] == {"strimzi.io/cluster": cluster}
    assert ("put it in place of <cluster>" in run(file, bootstrap=bootstrap).stdout) == (cluster == "<cluster>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--acls", "--format", "strimzi", "--json"], "leave out --json"),
        (["--acls", "--format", "strimzi", "--job", "audit"], "name the user of the job"),
        (["--format", "strimzi"], "--format belongs to --acls"),
    ],
)
def test_wrong_usage(tmp_path: Path, arguments: list[str], message: str) -> None:
    refused = CliRunner().invoke(cli, ["check", "--config", str(configured(tmp_path)), *arguments])
    assert refused.exit_code == 2
    assert message in refused.stderr
