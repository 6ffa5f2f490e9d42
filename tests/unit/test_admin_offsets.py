"""Offsets that the client answers in place of brokers, and when it asks the brokers again."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from sidecar.engine.ports import Place
from sidecar.kafka.client import admin
from sidecar.kafka.client.admin import LogOffset, log_range, offsets

NOBODY = KafkaError(KafkaError._NOENT, "No leaders found")
AWAY = KafkaError(KafkaError._TRANSPORT, "away")
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")
HERE, THERE = ("here", 0), ("there", 3)

Answer = int | KafkaError


class Asked:
    """An admin client with prepared answers, one row for each question; the last row stays."""

    def __init__(self, *answers: Mapping[Place, Answer], led: Iterable[Place] = (), away: bool = False) -> None:
        self._answers = list(answers)
        self._led = list(led)
        self._away = away
        self.questions: list[list[Place]] = []
        self.looks = 0

    def list_offsets(self, asked: Mapping[TopicPartition, OffsetSpec], **_: Any) -> dict[TopicPartition, Future[Any]]:
        self.questions.append([(at.topic, at.partition) for at in asked])
        answers = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        return {at: self._answer(answers[at.topic, at.partition]) for at in asked}

    def list_topics(self, *, timeout: float) -> Any:
        assert 0 < timeout <= admin.ASK_AGAIN_WITHIN_S
        self.looks += 1
        if self._away:
            raise KafkaException(AWAY)
        topics = {name: SimpleNamespace(partitions={n: SimpleNamespace(leader=-1) for n in range(4)}) for name in "x"}
        for name, partition in self._led:
            facts = topics.setdefault(name, SimpleNamespace(partitions={}))
            facts.partitions[partition] = SimpleNamespace(leader=1)
        return SimpleNamespace(topics=topics)

    @staticmethod
    def _answer(answer: Answer) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(answer, KafkaError):
            future.set_exception(KafkaException(answer))
        else:
            future.set_result(SimpleNamespace(offset=answer, leader_epoch=7))
        return future


def _ask(asked: Asked, *places: Place) -> dict[Place, LogOffset | KafkaError]:
    wanted = dict.fromkeys(places, OffsetSpec.latest())
    return offsets(cast("AdminClient", asked), wanted, IsolationLevel.READ_COMMITTED)


def test_what_is_answered_is_asked_for_once() -> None:
    asked = Asked({HERE: 5, THERE: -1})
    assert _ask(asked, HERE, THERE) == {HERE: LogOffset(5, 7), THERE: LogOffset(-1, 7)}
    assert (asked.questions, asked.looks) == ([[HERE, THERE]], 0)


OLD_LEADER = KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION)
NEW_LEADER = KafkaError(KafkaError.OFFSET_NOT_AVAILABLE)


@pytest.mark.parametrize("lost", [NOBODY, AWAY, OFFSET_INVALID, OLD_LEADER, NEW_LEADER], ids=str)
def test_what_a_client_without_connections_says_is_asked_for_again(lost: Answer) -> None:
    asked = Asked({HERE: 5, THERE: lost}, {THERE: lost}, {THERE: 9}, led=[HERE, THERE])
    assert _ask(asked, HERE, THERE) == {HERE: LogOffset(5, 7), THERE: LogOffset(9, 7)}
    assert asked.questions == [[HERE, THERE], [THERE], [THERE]]


def test_no_offset_is_never_taken_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "ASK_AGAIN_WITHIN_S", 0.1)
    asked = Asked({HERE: OFFSET_INVALID}, led=[HERE])
    answer = _ask(asked, HERE)[HERE]
    assert isinstance(answer, KafkaError)
    assert (answer.code(), answer.str()) == (KafkaError._TRANSPORT, "here/0: no broker has told its offsets")
    with pytest.raises(KafkaException, match="here/0: no broker has told its offsets"):
        log_range(cast("AdminClient", asked), *HERE)


@pytest.mark.parametrize("place", [("missing", 0), ("x", 1), ("x", 9)], ids=["no topic", "no leader", "no partition"])
def test_nobody_is_asked_twice_where_nobody_leads(place: Place) -> None:
    asked = Asked({place: NOBODY, HERE: 1}, led=[HERE])
    assert _ask(asked, place, HERE) == {place: NOBODY, HERE: LogOffset(1, 7)}
    assert (len(asked.questions), asked.looks) == (1, 1)
    with pytest.raises(KafkaException, match=f"{place[0]}/{place[1]}: no broker leads it now, or it does not exist"):
        log_range(cast("AdminClient", asked), *place)


def test_brokers_that_are_away_are_not_asked_again() -> None:
    asked = Asked({HERE: NOBODY}, away=True)
    assert _ask(asked, HERE) == {HERE: NOBODY}
    assert (len(asked.questions), asked.looks) == (1, 1)


def test_a_refusal_stands() -> None:
    asked = Asked({HERE: DENIED}, led=[HERE])
    assert _ask(asked, HERE) == {HERE: DENIED}
    assert (len(asked.questions), asked.looks) == (1, 0)
