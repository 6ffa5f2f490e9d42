"""What the brokers say of quotas: they answer, but hold back what they take."""

from collections.abc import Callable

from confluent_kafka import ThrottleEvent

from sidecar.clock import Clock

LASTS_S = 2.0
"""How much longer than the delay itself a quota is told of: the next one follows at once while it is in force."""


class Throttling:
    """Of one producer after another of a partition; told in the thread that serves the producer, the worker's."""

    def __init__(self, clock: Clock, count: Callable[[float], None], noted: Callable[[str], None]) -> None:
        self._clock = clock
        self._count = count
        self._noted = noted
        self._until_s = 0.0
        self._why = ""

    def note(self, event: ThrottleEvent) -> None:
        """A broker held back a request for ``throttle_time`` seconds; 0 says that it no longer does."""
        if event.throttle_time <= 0:
            return
        self._count(event.throttle_time)
        self._until_s = self._clock.running_s() + event.throttle_time + LASTS_S
        self._why = (
            f"broker {event.broker_id} throttles what is written, by {event.throttle_time:.1f} s at last: a quota"
            " (producer_byte_rate or request_percentage) is used up"
        )
        self._noted(self._why)

    def why(self, now_s: float) -> str:
        """What there is to tell of it at ``now_s``, of the seconds that only go forward."""
        return self._why if now_s < self._until_s else ""
