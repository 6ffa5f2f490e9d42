"""Tests of the limits that brokers set, where a broker does not tell them."""

from collections.abc import Sequence
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.cluster.topics.check import router_findings
from sidecar.cluster.topics.check_brokers import transaction_findings
from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from tests.support.untold import Untold

CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "b:9092"}, "delay_topics": [{"name": "orders.delay", "default_target": "orders"}]}
)


class Silent:
    """A client that tells none of its answers in time."""

    def describe_cluster(self, request_timeout: float) -> Untold:
        return Untold()

    def describe_configs(self, resources: Sequence[Any], request_timeout: float) -> dict[Any, Untold]:
        return {resource: Untold() for resource in resources}


SILENT = cast("AdminClient", Silent())


def test_an_answer_that_is_not_told_does_not_hold_up_a_start() -> None:
    (found,) = transaction_findings(CONFIG, SILENT, [1, 2])
    assert found.level is Level.OK
    assert "not every broker tells whether it allows that" in found.message


def test_brokers_that_are_not_told_are_an_error_of_kafka() -> None:
    with pytest.raises(KafkaException) as raised:
        router_findings(CONFIG, SILENT)
    assert raised.value.args[0].code() == KafkaError._TIMED_OUT
