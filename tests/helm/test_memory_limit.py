"""Tests that the router's defaults fit into the chart's default memory limit, by the count of ``check``."""

import yaml

from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.kafka.client.admin import TopicFacts
from sidecar.operations.sizing.container_memory import finding
from sidecar.operations.sizing.memory import MIB
from tests.helm.chart import CHART

PARTITIONS = 25


def test_the_defaults_fit_into_the_default_limit() -> None:
    limit = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["resources"]["limits"]["memory"]
    assert limit.endswith("Gi")
    config = Config.model_validate(
        {"kafka": {"bootstrap.servers": "b:9092"}, "delay_topics": [{"name": "d", "default_target": "out"}]}
    )
    facts = TopicFacts("d", "id", PARTITIONS, 3, frozenset(), {})
    found = finding(config, {"d": facts}, int(limit.removesuffix("Gi")) * 1_024 * MIB)
    assert found is not None
    assert found.level is Level.OK, found
