"""Tests of requests to the controller: they are sent again, to another broker, where one is silent."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from sidecar.kafka.client.admin import TRIES_S, add_partitions, create_topic, topic_settings
from tests.support.untold import Untold


class Brokers:
    """Brokers that do not answer the first ``silent`` requests; then they answer with ``error``, if there is one.

    Before these, the client does not tell the answers of the first ``untold`` requests.
    """

    def __init__(self, silent: int = 0, error: int | None = None, untold: int = 0) -> None:
        self.silent = silent
        self.untold = untold
        self.error = error
        self.timeouts_s: list[float] = []
        self.listed = 0

    def describe_configs(self, resources: Sequence[Any], request_timeout: float) -> dict[Any, "Future[Any]"]:
        self.timeouts_s.append(request_timeout)
        if len(self.timeouts_s) <= self.untold:
            return {resource: Untold() for resource in resources}
        code = KafkaError._TIMED_OUT if len(self.timeouts_s) <= self.silent else self.error
        found: dict[Any, Future[Any]] = {}
        for resource in resources:
            found[resource] = Future()
            if code is None:
                found[resource].set_result({})
            else:
                found[resource].set_exception(KafkaException(KafkaError(code)))
        return found

    def list_topics(self, timeout: float) -> None:
        self.listed += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"within {timeout} s"))

    def settings(self) -> dict[str, dict[str, str] | None]:
        return topic_settings(cast("AdminClient", self), ["a", "b"])


class Creating:
    """A client that tells no answers about topics and partitions to create."""

    def create_topics(self, topics: Sequence[NewTopic], request_timeout: float) -> dict[str, "Future[Any]"]:
        return {topic.topic: Untold() for topic in topics}

    def create_partitions(self, counts: Sequence[NewPartitions], request_timeout: float) -> dict[str, "Future[Any]"]:
        return {count.topic: Untold() for count in counts}


def test_a_request_without_an_answer_is_sent_again_after_the_brokers_were_listed() -> None:
    brokers = Brokers(silent=2)
    assert brokers.settings() == {"a": {}, "b": {}}
    assert (brokers.timeouts_s, brokers.listed) == (list(TRIES_S), 2)


def test_a_request_whose_answer_is_not_told_is_sent_again() -> None:
    brokers = Brokers(untold=1)
    assert brokers.settings() == {"a": {}, "b": {}}
    assert (brokers.timeouts_s, brokers.listed) == (list(TRIES_S[:2]), 1)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        Brokers(untold=9).settings()


def test_a_topic_whose_creation_is_not_told_is_an_error() -> None:
    """After a pause of the process nobody knows whether it exists, so the caller has to ask again."""
    client = cast("AdminClient", Creating())
    for error in (create_topic(client, NewTopic("a", 1)), add_partitions(client, "a", 2)):
        assert error is not None
        assert error.code() == KafkaError._TIMED_OUT


def test_an_answer_is_an_answer_also_if_it_is_an_error() -> None:
    brokers = Brokers(error=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert brokers.settings() == {"a": None, "b": None}
    assert (len(brokers.timeouts_s), brokers.listed) == (1, 0)


def test_brokers_that_never_answer_end_the_request() -> None:
    brokers = Brokers(silent=9)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        brokers.settings()
    assert brokers.timeouts_s == list(TRIES_S)
