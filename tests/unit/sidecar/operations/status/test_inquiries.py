"""The status of a group by reports: each partition has an answer, and the brokers are asked once for all of them."""

from collections.abc import Mapping
from typing import Any

import pytest
from confluent_kafka import KafkaError

from index.protocol.recurring import Occurrence, Recurrence
from sidecar.config.model import Config
from sidecar.engine.ownership.attempts import AttemptCounts
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import LogOffset, TopicFacts
from sidecar.operations.finding.wanted import Pending, SchedulePage
from sidecar.operations.status import inquiries
from sidecar.operations.status.answers import UNSERVED, RecurrenceAnswer
from sidecar.operations.status.inquiries import GroupInquiries, schedules_answer
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


def test_a_recurring_schedule_is_told_with_its_rule_and_what_is_foreseen() -> None:
    cron = Recurrence(cron="0 9 * * *", zone="Europe/Berlin", times=9, occurrence=Occurrence(3, 8, 0))
    found = [
        Pending(0, 0, 7, ("out",), None, 3, None, None, cron),
        Pending(5, 0, 8, ("out",), None, 8, None, None, Recurrence(period_ms=10, until_ms=17)),
        Pending(5, 0, 9, ("out",), None, 9, None, None, Recurrence(cron="0 9 * * *", zone="Not/Known")),
        Pending(5, 0, 10, ("out",), None, 10, None, None, Recurrence(cron="61 9 30 2 *")),
        Pending(5, 0, 11, ("out",), None, None, None),
    ]
    by_cron, by_period, unknown, wrong, none = schedules_answer("d", SchedulePage(found, None), 5).schedules
    assert by_cron.series == "d/0/3"
    assert by_cron.recurrence == RecurrenceAnswer(
        every_ms=None, cron="0 9 * * *", zone="Europe/Berlin", number=8, times=9, next_ms=(0, 8 * 3_600_000)
    )
    assert by_period.recurrence == RecurrenceAnswer(every_ms=10, until_ms=17, number=1, times=None, next_ms=(5, 15))
    assert unknown.recurrence is not None
    assert wrong.recurrence is not None
    assert wrong.recurrence.next_ms == ()
    assert (unknown.recurrence.zone, unknown.recurrence.next_ms, none.recurrence) == ("Not/Known", (), None)


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
