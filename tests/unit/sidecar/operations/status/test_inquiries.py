"""The status of a group by reports: each partition has an answer, and the brokers are asked once for all of them."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from index.errors import ConfigError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ownership.attempts import AttemptCounts
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import LogOffset, TopicFacts
from sidecar.operations.finding.wanted import PagePlace, ScheduleFilter, SchedulePage
from sidecar.operations.status import inquiries
from sidecar.operations.status.answers import UNSERVED
from sidecar.operations.status.inquiries import GroupInquiries
from sidecar.operations.status.reports import Reported, Vitals
from sidecar.policies.table import WITHOUT_POLICIES

NAMES = ("a", "b", "c")
CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "x:1"},
        "delay_topics": [{"name": name, "default_target": "out"} for name in NAMES[:2]]
        + [{"name": "c", "default_target": "out", "retry": {"attempts": 2, "dead_letter": "dead"}}],
    }
)


def told(topic: str, partition: int, **facts: Any) -> Reported:
    return Reported(PartitionStatus(topic, partition, PartitionState.ACTIVE, **facts), "r", 1_000, 7)


class FakeReports:
    """The recent reports, and the last ones told."""

    def __init__(self, lately: list[Reported], last: list[Reported]) -> None:
        self._lately = lately
        self._last = {(each.status.topic, each.status.partition): each for each in last}

    def start(self) -> None:
        pass

    def close(self) -> None:
        pass

    def wait(self, timeout_s: float) -> None:
        pass

    def reported(self) -> tuple[list[Reported], dict[str, str]]:
        return self._lately, {"r": "native"}

    def vitals(self) -> dict[str, Vitals]:
        return {}

    def last_told(self) -> dict[Place, Reported]:
        return self._last


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[set[Place]]:
    """Note the places of each question for offsets; partition 1 of each topic has no leader."""
    questions: list[set[Place]] = []

    def offsets(_: Any, wanted: Mapping[Place, Any], __: Any) -> dict[Place, LogOffset | KafkaError]:
        questions.append(set(wanted))
        nobody = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return {place: nobody if place[1] else LogOffset(100, None) for place in wanted}

    def facts(_: Any, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "id", 3, 1, frozenset(), {}) for name in names}

    monkeypatch.setattr(inquiries, "offsets", offsets)
    monkeypatch.setattr(inquiries, "topic_facts", facts)
    return questions


def group(lately: list[Reported], last: list[Reported]) -> GroupInquiries:
    client: Any = None
    return GroupInquiries(CONFIG, client, WITHOUT_POLICIES, FakeReports(lately, last))


def test_the_ends_of_all_unserved_partitions_are_asked_for_at_once(asked: list[set[Place]]) -> None:
    lately = [told("a", 0, pending=5, lag=1), told("a", 2, pending=7)]
    last = [*lately, *(told(name, number, cursor=60) for name in ("b", "c") for number in (0, 1))]
    answer = group(lately, last).status()
    assert asked == [{("b", 0), ("b", 1), ("c", 0), ("c", 1)}]
    shown = {
        (topic.topic, each.partition): (each.state, each.lag) for topic in answer.topics for each in topic.partitions
    }
    assert shown == {
        ("a", 0): ("active", 1),
        ("a", 1): (UNSERVED, None),
        ("a", 2): ("active", 0),
        **{(name, 0): (UNSERVED, 40) for name in ("b", "c")},
        **{(name, number): (UNSERVED, None) for name in ("b", "c") for number in (1, 2)},
    }
    assert [topic.pending for topic in answer.topics] == [12, 0, 0]


class Finder:
    """Notes each question."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    def page(self, topic: DelayTopicConfig, *asked: Any) -> SchedulePage:
        self.asked.append((topic.name, *asked))
        return SchedulePage([], None)


def test_a_page_is_of_all_partitions_or_of_one(asked: list[set[Place]], monkeypatch: pytest.MonkeyPatch) -> None:
    finder, all_of = Finder(), ScheduleFilter("a")
    monkeypatch.setattr(inquiries, "Finder", lambda *_: finder)
    made = group([], [])
    made.schedules(all_of, "", 5)
    made.schedules(all_of, "1/log/7", 5)
    made.schedules(all_of, "", 5, partition=1)
    made.schedules(all_of, "1/log/7", 5, partition=1)
    one = "a", 2, all_of
    assert finder.asked == [
        ("a", 3, all_of, PagePlace(0), 5),
        ("a", 3, all_of, PagePlace(1, is_held=False, offset=7), 5),
        (*one, PagePlace(1), 5),
        (*one, PagePlace(1, is_held=False, offset=7), 5),
    ]
    with pytest.raises(ConfigError, match="a has no partition 3: it has 3, from 0 on"):
        made.schedules(all_of, "", 5, partition=3)
    with pytest.raises(ConfigError, match="1/log/7 is no place in partition 0 of a"):
        made.schedules(all_of, "1/log/7", 5, partition=0)


def test_nothing_is_asked_where_everything_is_served(asked: list[set[Place]]) -> None:
    everything = [told(name, number) for name in NAMES for number in range(3)]
    assert all(
        each.state == "active" for topic in group(everything, everything).status().topics for each in topic.partitions
    )
    assert asked == []


def test_of_one_topic_only_that_one_is_told(asked: list[set[Place]]) -> None:
    (topic,) = group([told("a", 0)], [told("a", 0), told("b", 0), told("c", 0)]).status("b").topics
    assert (topic.topic, len(topic.partitions), asked) == ("b", 3, [{("b", 0)}])


def test_attempts_are_told_of_a_topic_that_counts_them(asked: list[set[Place]]) -> None:
    lately = [told("c", 0, attempts=AttemptCounts(5, (3, 1, 0, 0, 0, 1))), told("a", 0)]
    plain, _, counting = group(lately, []).status().topics
    assert plain.retries is None
    assert counting.retries is not None
    assert [(each.attempt, each.released) for each in counting.retries.by_attempt] == [("1", 3), ("2", 1)]
    assert (counting.retries.exhausted, counting.retries.uncounted) == (1, (1, 2))
    assert asked == []
