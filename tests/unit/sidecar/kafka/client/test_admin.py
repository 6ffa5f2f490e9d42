"""Tests of requests to the controller: they are sent again, to another broker, where one is silent."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.kafka.client.admin import TRIES_S, topic_settings


class Brokers:
    """Brokers that do not answer the first ``silent`` requests; then they answer with ``error``, if there is one."""

    def __init__(self, silent: int = 0, error: int | None = None) -> None:
        self.silent = silent
        self.error = error
        self.timeouts_s: list[float] = []
        self.listed = 0

    def describe_configs(self, resources: Sequence[Any], request_timeout: float) -> dict[Any, "Future[Any]"]:
        self.timeouts_s.append(request_timeout)
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


def test_a_request_without_an_answer_is_sent_again_after_the_brokers_were_listed() -> None:
    brokers = Brokers(silent=2)
    assert brokers.settings() == {"a": {}, "b": {}}
    assert (brokers.timeouts_s, brokers.listed) == (list(TRIES_S), 2)


def test_an_answer_is_an_answer_also_if_it_is_an_error() -> None:
    brokers = Brokers(error=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert brokers.settings() == {"a": None, "b": None}
    assert (len(brokers.timeouts_s), brokers.listed) == (1, 0)


def test_brokers_that_never_answer_end_the_request() -> None:
    brokers = Brokers(silent=9)
    with pytest.raises(KafkaException, match="_TIMED_OUT"):
        brokers.settings()
    assert brokers.timeouts_s == list(TRIES_S)
