"""The report of quotas by which brokers slow the router down."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from sidecar.kafka.client.throttling import LASTS_S, Throttling
from tests.support.hand_clock import HandClock

if TYPE_CHECKING:
    from confluent_kafka import ThrottleEvent


def event(throttle_s: float) -> "ThrottleEvent":
    return cast("ThrottleEvent", SimpleNamespace(throttle_time=throttle_s, broker_id=7))


def test_it_is_counted_and_told_until_no_further_delay_follows() -> None:
    clock, counted, noted = HandClock(), list[float](), list[str]()
    throttling = Throttling(clock, counted.append, noted.append)
    assert throttling.why(clock.running_s()) == ""
    throttling.note(event(1.5))
    assert counted == [1.5]
    assert noted == [throttling.why(clock.running_s())]
    assert "broker 7 throttles the writes, the last one by 1.5 s" in noted[0]
    clock.go_on(1.5 + LASTS_S - 0.1)
    assert throttling.why(clock.running_s()) == noted[0]
    clock.set_back(3_600)
    assert throttling.why(clock.running_s()) == noted[0], "the time of day says nothing of it"
    clock.go_on(0.2)
    assert throttling.why(clock.running_s()) == ""


def test_a_broker_that_no_longer_throttles_is_nothing_to_tell_of() -> None:
    clock, counted, noted = HandClock(), list[float](), list[str]()
    Throttling(clock, counted.append, noted.append).note(event(0))
    assert (counted, noted) == ([], [])
