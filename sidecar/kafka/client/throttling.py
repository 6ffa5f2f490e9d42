"""Reports of quotas: the brokers answer, but delay the requests of a producer."""

from collections.abc import Callable

from confluent_kafka import ThrottleEvent

from sidecar.clock import Clock

LASTS_S = 2.0
"""The time for which a quota is still reported after a delay: the next delay follows at once while it is used up."""


class Throttling:
    """The quotas that slow the producers of a partition, one after another; any thread of the lane may note one."""

    def __init__(self, clock: Clock, count: Callable[[float], None], noted: Callable[[str], None]) -> None:
        self._clock = clock
        self._count = count
        self._noted = noted
        self._until_s = 0.0
        self._why = ""

    def note(self, event: ThrottleEvent) -> None:
        """Note that a broker held back a request for ``throttle_time`` seconds; 0 says that it no longer does."""
        if event.throttle_time <= 0:
            return
        self._count(event.throttle_time)
        self._until_s = self._clock.running_s() + event.throttle_time + LASTS_S
        self._why = (
            f"broker {event.broker_id} throttles the writes, the last one by {event.throttle_time:.1f} s: a quota"
            " (producer_byte_rate or request_percentage) is used up"
        )
        self._noted(self._why)

    def why(self, now_s: float) -> str:
        """Return the report at ``now_s``, in seconds that only go forward; empty if no quota is used up."""
        return self._why if now_s < self._until_s else ""
