"""Missing rights are named all at once, each with the command that grants it to the user who lacks it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AclOperation, AdminClient

from index.errors import ConfigError, DelayRouterError
from sidecar.cli.program import cli
from sidecar.cli.side import needs_of
from sidecar.cluster.topics import check, reach
from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.kafka.client import admin
from sidecar.kafka.client.admin import Denied, Described, TopicFacts
from sidecar.kafka.client.commands import principal_of

PLAIN = {"bootstrap.servers": "b:9092"}
SCRAM = PLAIN | {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
ADMIN = cast("AdminClient", None)


def config(kafka: Mapping[str, str] = PLAIN, **topic: Any) -> Config:
    topics = [{"name": "orders.delay", "default_target": "orders", **topic}]
    return Config.model_validate({"kafka": {**kafka, "sasl.password": "p"}, "delay_topics": topics})


def facts(name: str, *operations: AclOperation) -> TopicFacts:
    return TopicFacts(name, "id", 1, 1, frozenset(operations), {})


def refusal(monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, Described], needs: reach.Needs, **more: str) -> str:
    """Return the message about missing rights; empty where none is missing."""
    monkeypatch.setattr(admin, "topic_facts", lambda _client, names: {name: answers[name] for name in names})
    try:
        reach.require_rights(config(SCRAM), ADMIN, needs, **more)
    except DelayRouterError as error:
        return str(error)
    return ""


def test_the_principal_is_known_where_a_name_is_sent() -> None:
    assert principal_of(SCRAM) == "User:alice"
    assert principal_of(SCRAM | {"sasl.mechanism": "", "sasl.mechanisms": "PLAIN"}) == "User:alice"
    for other in (PLAIN, SCRAM | {"sasl.mechanism": "GSSAPI"}, SCRAM | {"security.protocol": "SSL"}):
        assert principal_of(other) == "User:<router>"


def test_every_missing_right_has_a_line_with_the_command_that_grants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Described] = {"a": Denied("a"), "b": facts("b", AclOperation.READ, AclOperation.DESCRIBE)}
    needs = {"a": ("Read", "Write"), "b": ("Read", "Write")}
    grant = "kafka-acls.sh --bootstrap-server b:9092 --add --allow-principal User:alice"
    both = f"{grant} --operation Read --operation Write --topic a"
    assert refusal(monkeypatch, answers, needs, otherwise="; or ask").splitlines() == [
        f"User:alice may not Read and Write topic a; to grant it: {both}; or ask",
        f"User:alice may not Write topic b; to grant it: {grant} --operation Write --topic b; or ask",
    ]


def test_no_right_is_missing_without_an_authorizer_or_a_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Described] = {"a": None, "b": facts("b")}
    answers |= {"c": facts("c", AclOperation.ALL), "d": facts("d", AclOperation.READ)}
    assert refusal(monkeypatch, answers, dict.fromkeys("abc", ("Write",)) | {"d": ("Read",)}) == ""


@pytest.mark.parametrize(
    ("more", "operations"),
    [([], "Read"), (["--producer-id", "7", "--start-offset", "1", "--outcome", "aborted"], "Read and Write")],
)
def test_end_transaction_names_the_rights_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: list[str], operations: str
) -> None:
    file = tmp_path / "router.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "b:9092"\n[[delay_topics]]\nname = "orders.delay"\n')
    monkeypatch.setattr(reach, "connect", lambda _: ADMIN)
    monkeypatch.setattr(admin, "topic_facts", lambda _client, names: {name: Denied(name) for name in names})
    call = ["end-transaction", "orders.delay/0", "orders/3", "--config", str(file), *more]
    done = CliRunner().invoke(cli, call)
    assert done.exit_code == 1
    first, second = done.stderr.splitlines()
    assert first.startswith(f"error: this user may not {operations} topic orders.delay.delay-state; to grant it: ")
    assert second.startswith(f"error: this user may not {operations} topic orders; to grant it: ")


def test_a_command_needs_the_topics_that_it_uses() -> None:
    one = config()
    assert needs_of("lookup", one, "orders.delay") == {"orders.delay": ("Read",), "orders.delay.delay-state": ("Read",)}
    assert needs_of("status", one, "") == {
        "__delay_router_policies": ("Read",),
        "__delay_router_status": ("Read",),
        "orders.delay": ("Describe",),
    }
    assert needs_of("pause", one, "") == {"__delay_router_policies": ("Read", "Write")}
    assert needs_of("cancel", one, "orders.delay") == {"orders.delay": ("Write",), "orders.delay.receipts": ("Read",)}
    assert needs_of("dev", one, "") == {}
    with pytest.raises(ConfigError, match="is not a configured delay topic"):
        needs_of("lookup", one, "order.delay")


def test_check_names_all_topics_that_it_cannot_see() -> None:
    seen = config(SCRAM, allowed_targets=["orders", "billing"])
    roles = [name for _, _, name in seen.delay_topics[0].roles()]
    answers: dict[str, Described] = {name: Denied(name) for name in (*roles, "orders", "billing")}
    found = {finding.thing: finding for finding in check.topic_findings(seen, answers)}
    assert set(found) == {
        "delay topic orders.delay",
        *(f"{role} {name}" for role, _, name in seen.delay_topics[0].roles()),
        "target topic orders",
        "target topic billing",
    }
    assert {thing for thing, finding in found.items() if finding.level is Level.WARN} == {
        "backfill topic orders.delay.delay-backfill",
        "target topic billing",
    }
    assert all("--allow-principal User:alice" in finding.remedy for finding in found.values())
    answers["orders.delay.rejected"] = None
    assert "rejected topic orders.delay.rejected" not in {each.thing for each in check.topic_findings(seen, answers)}
