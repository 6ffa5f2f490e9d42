"""The warning of ``check`` about a delay topic whose state another router group has claimed."""

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import RefusedError
from sidecar.cluster.topics.findings import Finding, Level
from sidecar.config.model import Config
from sidecar.engine.ports import Place, Stored
from sidecar.kafka.client.admin import Denied, Described, TopicFacts
from sidecar.operations.asking import state_groups
from snapshots.state.claim import claim_key, encode_claim

CONFIG = Config.model_validate(
    {
        "kafka": {"bootstrap.servers": "b:1"},
        "router": {"group_id": "new"},
        "delay_topics": [{"name": "orders.delay", "default_target": "orders"}],
    }
)
(TOPIC,) = CONFIG.delay_topics
STATE = TopicFacts(TOPIC.state, "id", 3, 1, frozenset(), None)


def claims(*groups: str) -> list[Stored]:
    return [Stored(number, claim_key(group), encode_claim()) for number, group in enumerate(groups)]


def found(
    monkeypatch: pytest.MonkeyPatch, states: Sequence[Sequence[Stored] | Exception], answer: Described = STATE
) -> list[Finding]:
    closed: list[bool] = []

    class Readers:
        def __init__(self, _: Config) -> None:
            """Read from ``states``."""

        def state_since(self, place: Place, offset: int) -> tuple[Any, int]:
            assert (place[0], offset) == (TOPIC.state, 0)
            state = states[place[1]]
            if isinstance(state, Exception):
                raise state
            return state, len(state)

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(state_groups, "Readers", Readers)
    result = [*state_groups.findings(CONFIG, {TOPIC.state: answer})]
    assert closed == [True] * isinstance(answer, TopicFacts)
    return result


def test_another_group_is_named_with_the_own_one_and_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    (warning,) = found(monkeypatch, [claims("old"), claims("new", "old"), claims("new")])
    assert (warning.level, warning.thing, warning.topic) == (Level.WARN, "delay topic orders.delay", "orders.delay")
    assert warning.message.startswith(
        "the state of 2 of 3 partitions belongs to routers of group old, and router.group_id is new: "
    )
    assert warning.remedy == (
        'set router.group_id = "old"; or, to change the name, drain orders.delay and stop every router of old first:'
        ' OPERATIONS, "Changing group_id"'
    )


def test_each_other_group_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings = found(monkeypatch, [claims("b"), claims("a", "b"), []])
    assert [("group a," in each.message, "group b," in each.message) for each in warnings] == [
        (True, False),
        (False, True),
    ]


def test_the_own_group_is_not_worth_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    removed = [Stored(5, claim_key("old"), None)]
    assert found(monkeypatch, [claims("new"), [], [*claims("old"), *removed]]) == []


@pytest.mark.parametrize("answer", [None, Denied(TOPIC.state)])
def test_a_state_that_is_not_there_is_told_elsewhere(monkeypatch: pytest.MonkeyPatch, answer: Described) -> None:
    assert found(monkeypatch, [], answer) == []


@pytest.mark.parametrize("error", [RefusedError("damaged"), KafkaException(KafkaError(KafkaError._TIMED_OUT, "late"))])
def test_a_state_that_cannot_be_read_is_not_passed_over(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    (warning,) = found(monkeypatch, [[], error])
    assert warning.level is Level.WARN
    assert warning.message.startswith("the groups that its state names are not known: ")
