"""Tests of answers of brokers that lag behind, for instance of a broker that has just started."""

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, TopicDescription

from sidecar.config.model import load
from tests.integration.one_worker import one_worker
from tests.integration.scenario import Stage


def test_one_wrong_answer_of_a_broker_rejects_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has just started may not know the target yet, and a rejection is final."""
    out = stage.target()
    delay = stage.delay(default_target=out)
    describe = AdminClient.describe_topics
    lies = [out]

    def first_a_lie(
        client: AdminClient, topics: TopicCollection, **options: Any
    ) -> "dict[str, Future[TopicDescription]]":
        found: dict[str, Future[TopicDescription]] = describe(client, topics, **options)
        if lies and lies[0] in found:
            lie: Future[TopicDescription] = Future()
            lie.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            found[lies.pop()] = lie
        return found

    monkeypatch.setattr(AdminClient, "describe_topics", first_a_lie)
    with one_worker(load(stage.router().config, {})):
        stage.send(delay)
        assert [each.value for each in stage.wait_records(out, 1)] == [b"v"]
        assert not lies
        assert stage.records(f"{delay}.rejected") == []
