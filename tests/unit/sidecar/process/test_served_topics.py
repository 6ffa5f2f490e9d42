"""The partitions of served delay topics, as a router tells them to Prometheus."""

from dataclasses import replace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from sidecar.cluster.topics import check
from sidecar.cluster.topics.findings import error
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Denied, Described, TopicFacts
from sidecar.process.health import ProcessHealth
from sidecar.process.partition_collector import TopicCollector
from sidecar.process.served_topics import UsableTopics

NAMES = ("a", "b")
CONFIG = Config.model_validate(
    {"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": [{"name": name, "default_target": "t"} for name in NAMES]}
)


def test_the_partitions_of_served_topics_are_exported_as_last_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: dict[str, Described] = {name: TopicFacts(name, "id", 4, 1, frozenset(), {}) for name in NAMES}
    wrong: list[Any] = []
    monkeypatch.setattr(check, "topic_answers", lambda *_: answers)
    monkeypatch.setattr(check, "topic_findings", lambda *_: wrong)
    registry = CollectorRegistry()
    health = ProcessHealth(registry, list)
    usable = UsableTopics(CONFIG, cast("Any", None), health, [])
    registry.register(TopicCollector(usable.partitions))

    def exported(name: str) -> float | None:
        return registry.get_sample_value("delay_router_delay_topic_partitions", {"topic": name})

    assert exported("a") is None
    wrong = [replace(error("delay topic b", "is wrong", "mend it"), topic="b")]
    usable.look()
    assert (exported("a"), exported("b")) == (4, None), "a router leaves b out"
    wrong = []
    answers["a"] = TopicFacts("a", "id", 6, 1, frozenset(), {})
    usable.look()
    assert (exported("a"), exported("b")) == (6, 4)
    answers["a"], answers["b"] = None, Denied("b")
    usable.look()
    assert (exported("a"), exported("b")) == (6, 4), "nobody has the partitions of a lost topic"
