"""The remark of ``check`` about a delay topic and a target whose records are placed apart."""

import pytest

from sidecar.cluster.topics import check
from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Described, TopicFacts

TOPIC = {"name": "orders.delay", "default_target": "orders", "allowed_targets": ["orders", "billing"]}


@pytest.mark.parametrize(("partitions", "is_said"), [(12, False), (4, False), (1, False), (5, True), (24, True)])
def test_a_default_target_whose_records_are_placed_apart_is_remarked_on(partitions: int, is_said: bool) -> None:
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:9092"}, "delay_topics": [TOPIC]})
    names = [name for _, _, name in config.delay_topics[0].roles()]
    answers: dict[str, Described] = {name: TopicFacts(name, "id", 12, 3, frozenset(), {}) for name in names}
    answers["orders"] = TopicFacts("orders", "id", partitions, 3, frozenset(), {})
    answers["billing"] = TopicFacts("billing", "id", 7, 3, frozenset(), {})
    found = [each for each in check.topic_findings(config, answers) if "marker" in each.message]
    assert [(each.thing, each.level) for each in found] == [("target topic orders", Level.OK)] * is_said
    for each in found:
        assert each.message.startswith(f"{partitions} partitions, and orders.delay 12: ")
