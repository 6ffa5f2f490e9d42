"""Tests the example for Strimzi: it matches the router's code, Strimzi's schema, and the chart's values."""

import copy
import re
from typing import Any, Final

import jsonschema
import pytest
import yaml

from tests.helm import chart, strimzi

_NAME: Final = {"type": "string", "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"}
_OPERATIONS: Final = ["Read", "Write", "Create", "Delete", "Alter", "Describe", "AlterConfigs", "DescribeConfigs"]


def _closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": [*properties], "properties": properties}


_KAFKA_TOPIC: Final = _closed(
    topicName={"type": "string", "maxLength": 249},
    partitions={"type": "integer", "minimum": 1},
    replicas={"type": "integer", "minimum": 1, "maximum": 32_767},
    config={"type": "object", "additionalProperties": {"type": "string"}},
)
_RULE: Final = _closed(
    resource=_closed(
        type={"enum": ["topic", "group", "cluster", "transactionalId"]},
        name={"type": "string"},
        patternType={"enum": ["literal", "prefix"]},
    ),
    operations={"type": "array", "minItems": 1, "items": {"enum": _OPERATIONS}},
)
_KAFKA_USER: Final = _closed(
    authentication=_closed(type={"enum": ["tls", "tls-external", "scram-sha-512"]}),
    authorization=_closed(type={"const": "simple"}, acls={"type": "array", "minItems": 1, "items": _RULE}),
)
_SPECS: Final = {"KafkaTopic": _KAFKA_TOPIC, "KafkaUser": _KAFKA_USER}
"""The used parts of the two resources, from Strimzi's reference for kafka.strimzi.io/v1."""


def _resources() -> list[dict[str, Any]]:
    return [*yaml.safe_load_all(strimzi.FILE.read_text())]


def _validate(resource: dict[str, Any]) -> None:
    schema = _closed(
        apiVersion={"const": "kafka.strimzi.io/v1"},
        kind={"enum": [*_SPECS]},
        metadata=_closed(name=_NAME, labels=_closed(**{"strimzi.io/cluster": _NAME})),
        spec=_SPECS[resource["kind"]],
    )
    jsonschema.Draft202012Validator(schema).validate(resource)


def test_it_is_what_the_router_asks_for() -> None:
    assert strimzi.FILE.read_text() == strimzi.rendered(), "run: python -m tests.helm.strimzi"


def test_strimzi_takes_it() -> None:
    resources = _resources()
    for resource in resources:
        _validate(resource)
    names = [(resource["kind"], resource["metadata"]["name"]) for resource in resources]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("key", ["topicNames", "replica"])
def test_the_schemas_are_strict(key: str) -> None:
    resource = copy.deepcopy(_resources()[0])
    resource["spec"][key] = 1
    with pytest.raises(jsonschema.ValidationError):
        _validate(resource)


def test_every_topic_is_there_and_every_right_is_on_one_of_them() -> None:
    config = strimzi.config()
    topics = {each["spec"]["topicName"] for each in chart.of_kind(_resources(), "KafkaTopic")}
    of_router = {config.router.policies_topic, config.router.status_topic} | config.forbidden_targets()
    targets = {name for topic in config.delay_topics for name in topic.named_targets()}
    assert topics == of_router | targets
    (user,) = chart.of_kind(_resources(), "KafkaUser")
    rules = [rule["resource"] for rule in user["spec"]["authorization"]["acls"]]
    assert {rule["name"] for rule in rules if rule["type"] == "topic"} == topics


def test_the_values_name_what_strimzi_makes() -> None:
    """The secret of a KafkaUser has its name and only a password; the authority is named after the cluster."""
    values = yaml.safe_load(strimzi.VALUES.read_text())
    (user,) = chart.of_kind(_resources(), "KafkaUser")
    assert {values["sasl"]["existingSecret"], values["sasl"]["username"]} == {user["metadata"]["name"]}
    cluster = user["metadata"]["labels"]["strimzi.io/cluster"]
    assert values["tls"]["ca"]["existingSecret"] == f"{cluster}-cluster-ca-cert"
    assert re.match(rf"{cluster}-kafka-bootstrap:(\d+)$", values["config"]["kafka"]["bootstrap.servers"])
    assert "sasl" not in values["topicsInit"], "with all topics there, init needs no rights beyond the router's"
