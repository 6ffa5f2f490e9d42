"""Beginnings and ends of partitions, asked of brokers that do not lead them yet, or never answer."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from sidecar.dev.audit import AuditError, ranges

KAFKA = {"bootstrap.servers": "nowhere:1"}

Edges = tuple[int, int] | None


class Answering:
    """A consumer of one topic with one partition; the edges are answered in this order."""

    def __init__(self, *edges: Edges | int) -> None:
        self._edges = list(edges)

    def __call__(self, _: object) -> "Answering":
        return self

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=[0])})

    def get_watermark_offsets(self, at: TopicPartition, timeout: float) -> Edges:
        answer = self._edges.pop(0)
        if isinstance(answer, int):
            raise KafkaException(KafkaError(answer))
        return answer

    def close(self) -> None:
        assert not self._edges, "not asked often enough"


def told(monkeypatch: pytest.MonkeyPatch, *edges: Edges | int) -> dict[tuple[str, int], tuple[int, int]]:
    # The package has a function with the name of this module.
    monkeypatch.setattr(importlib.import_module("sidecar.dev.audit.read"), "Consumer", Answering(*edges))
    return ranges(KAFKA, ["t"])


def test_a_broker_that_has_just_been_started_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    not_yet = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert told(monkeypatch, *not_yet, (3, 8)) == {("t", 0): (3, 8)}


def test_what_does_not_mend_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        told(monkeypatch, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuditError, match="t/0: no end offset within 30 s"):
        told(monkeypatch, None)
