"""The topics that ``init`` would create, before any broker is asked, and its failures where topics do not appear."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka.admin import NewTopic

from sidecar.cluster.topics import first_start, init
from sidecar.cluster.topics.findings import Finding
from sidecar.cluster.topics.init import InitOptions, InitReport, _first, initialise
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Denied, Described, TopicFacts
from tests.support.hand_clock import HandClock


def wanted(**options: Any) -> dict[str, str | None]:
    """Return the kind of timestamp by the name of the topic."""
    topics = [
        {"name": "a.delay", "default_target": "a", "allowed_targets": ["shared", "x.*"]},
        {"name": "b.delay", "default_target": "b", "allowed_targets": ["shared"]},
    ]
    config = Config.model_validate({"kafka": {"bootstrap.servers": "b:1"}, "delay_topics": topics})
    return {each.name: each.settings.get("message.timestamp.type") for each in _first(config, InitOptions(**options))}


def test_targets_get_the_time_of_release_unless_they_are_stamped_otherwise() -> None:
    delay_topics = dict.fromkeys(("a.delay", "b.delay"), "LogAppendTime")
    assert wanted() == delay_topics
    assert wanted(create_targets=True, stamped=frozenset({"b", "shared", "x.1"})) == {
        **delay_topics,
        "a": "LogAppendTime",
        "b": "CreateTime",
        "shared": "CreateTime",
    }


class Cluster:
    """Takes the place of brokers, accepts everything, and shows a topic as late as the test says.

    ``described`` and ``listed`` give for each topic the seconds after which it shows, in descriptions of single topics
    and in the metadata of all. ``grows_to`` is how many partitions a topic shows at most.
    """

    def __init__(self, clock: HandClock, **late: Mapping[str, float]) -> None:
        self.clock = clock
        self.described, self.listed = late.get("described", {}), late.get("listed", {})
        self.grows_to: dict[str, int] = {}
        self.denied: set[str] = set()
        self.made: dict[str, tuple[int, float, dict[str, str]]] = {}

    def create_topic(self, _: Any, topic: NewTopic) -> None:
        settings = cast("Any", topic).config
        self.made[topic.topic] = (max(topic.num_partitions, 1), self.clock.running_s(), settings)

    def topic_facts(self, _: Any, names: Any) -> dict[str, Described]:
        return {name: self._facts(name) for name in names}

    def list_topics(self, timeout: float) -> Any:
        assert timeout
        there = {
            name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(self._count(name))))
            for name, (_, made_s, _) in self.made.items()
            if self.clock.running_s() - made_s >= self.listed.get(name, 0)
        }
        return SimpleNamespace(topics=there)

    def _count(self, name: str) -> int:
        return min(self.made[name][0], self.grows_to.get(name, 1_000))

    def _facts(self, name: str) -> Described:
        if name not in self.made or self.clock.running_s() - self.made[name][1] < self.described.get(name, 0):
            return None
        if name in self.denied:
            return Denied(name)
        settings = {**self.made[name][2], "max.message.bytes": "1048588"}
        return TopicFacts(name, "id", self._count(name), 1, frozenset(), settings)


CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "b:1"},
        "router": {"policies_topic": "__policies", "status_topic": "__status"},
        "delay_topics": [{"name": "d", "default_target": "out"}],
    }
)


def made(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> InitReport:
    monkeypatch.setattr(init, "create_topic", cluster.create_topic)
    monkeypatch.setattr(init, "topic_facts", cluster.topic_facts)
    monkeypatch.setattr(first_start, "begin", lambda *_, **__: iter(()))
    options = InitOptions(partitions=100, create_targets=True)
    return initialise(CONFIG, cast("Any", cluster), options, cluster.clock)


def failures(report: InitReport) -> list[Finding]:
    return [finding for finding in report.findings if finding.is_error]


def test_a_topic_that_comes_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    cluster = Cluster(clock, described={"d": 40, "d.receipts": 20}, listed={"d": 45, "__status": 50, "d.rejected": 2})
    report = made(cluster, monkeypatch)
    assert failures(report) == []
    assert {row.action for row in report.rows} == {"created"}
    assert len(report.rows) == 9
    assert clock.running_s() - 1_000 < 120


@pytest.mark.parametrize("missing", ["d.rejected", "__status", "__policies", "d.delay-state", "out", "d"])
@pytest.mark.parametrize("shown", ["described", "listed"])
def test_a_topic_that_brokers_said_they_made_and_do_not_show_is_a_failure(
    missing: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    late = {"listed": {missing: 1e9}, shown: {missing: 1e9}}
    report = made(Cluster(clock, **late), monkeypatch)
    (finding,) = failures(report)
    assert finding.thing.endswith(f"topic {missing}")
    assert finding.message == "was made, and after 60 s the brokers tell of no such topic"
    assert "run init again" in finding.remedy
    assert [row.name for row in report.rows if row.action == "failed"] == [missing]
    assert clock.running_s() - 1_000 < 200, "bounded"


def test_a_delay_topic_that_shows_too_late_is_a_failure_since_nothing_was_made_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = made(Cluster(HandClock(), described={"d": 70}), monkeypatch)
    (finding,) = failures(report)
    assert (finding.thing, finding.message) == (
        "delay topic d",
        "was made, and after 60 s the brokers tell of it only now",
    )
    assert {row.name: row.action for row in report.rows} == {"d": "failed", "out": "created"}


def test_a_topic_that_is_there_with_fewer_partitions_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(HandClock())
    cluster.grows_to["d.delay-snapshots"] = 7
    report = made(cluster, monkeypatch)
    messages = [finding.message for finding in failures(report)]
    assert "was made, and after 60 s the brokers tell of 7 of 100 partitions" in messages


def test_a_topic_that_may_not_be_described_is_told_without_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = HandClock()
    cluster = Cluster(clock, listed={"d.rejected": 1e9})
    cluster.denied.add("d.rejected")
    (finding,) = failures(made(cluster, monkeypatch))
    assert (finding.thing, finding.message) == ("rejected topic d.rejected", "may not be described")
    assert clock.running_s() - 1_000 < 20
