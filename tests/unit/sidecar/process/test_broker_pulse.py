"""The time since when brokers do not answer, by a clock that the test moves."""

import time
from collections.abc import Callable

import pytest
from confluent_kafka import KafkaError, KafkaException

from sidecar.clock import SystemClock
from sidecar.process.broker_pulse import SILENT_AFTER_S, BrokerPulse
from tests.support.hand_clock import HandClock

AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


def failing(code: int) -> Callable[[], None]:
    def ask() -> None:
        raise KafkaException(KafkaError(code))

    return ask


def test_brokers_are_silent_once_they_have_not_answered_for_some_seconds() -> None:
    clock = HandClock(now_ms=5_000_000)
    pulse = BrokerPulse(lambda: None, clock)
    assert pulse.beat()
    clock.go_on(SILENT_AFTER_S)
    assert pulse.silent_since_ms() is None
    clock.go_on(0.1)
    assert pulse.silent_since_ms() == 5_000_000, "since the last answer"
    assert pulse.beat()
    assert pulse.silent_since_ms() is None


@pytest.mark.parametrize("code", AWAY)
def test_no_answer_is_none_and_a_refusal_is_one(code: int) -> None:
    clock = HandClock()
    away = BrokerPulse(failing(code), clock)
    refused = BrokerPulse(failing(KafkaError.CLUSTER_AUTHORIZATION_FAILED), clock)
    clock.go_on(SILENT_AFTER_S + 1)
    assert not away.beat()
    assert refused.beat()
    assert away.silent_since_ms() == 1_000_000
    assert refused.silent_since_ms() is None


def test_a_client_that_gives_up_late_is_no_answer() -> None:
    def ask() -> None:
        raise TimeoutError

    assert not BrokerPulse(ask, HandClock()).beat()


def test_it_asks_until_it_is_stopped_whatever_happens() -> None:
    asked: list[float] = []

    def ask() -> None:
        asked.append(time.monotonic())
        if len(asked) == 1:
            raise RuntimeError("a defect")

    pulse = BrokerPulse(ask, SystemClock()).start()
    try:
        until_s = time.monotonic() + 20
        while len(asked) < 3 and time.monotonic() < until_s:
            time.sleep(0.01)
    finally:
        pulse.stop()
    assert len(asked) >= 3
