"""Whether the brokers answer at all, asked of them again and again while somebody may want to know.

A request to brokers that are away ends after its own time, which may be 20 s, and until then old answers look like
news. The pulse is one small request after the other: it tells within seconds, and since when.
"""

import threading
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.clock import Clock
from sidecar.kafka.errors import error_of, is_unanswered

EVERY_S: Final = 0.5
WITHIN_S: Final = 2.5
"""Of one request; the next one begins at once after one without an answer."""

SILENT_AFTER_S: Final = 3.0
"""Longer than a busy broker takes, and short of the 5 s within which people are told."""

_END_WITHIN_S: Final = 0.5


class Pulse(Protocol):
    """Tells whether the brokers answer."""

    def silent_since_ms(self) -> int | None:
        """Return when brokers answered last, by the time of day, where that is too long ago; None while they answer."""


class AlwaysAnswering:
    """Brokers of which nobody has asked."""

    def silent_since_ms(self) -> int | None:
        """Return None."""
        return None


class BrokerPulse:
    """Asks from ``start`` to ``stop``, in a thread of its own; any thread may look."""

    def __init__(self, ask: Callable[[], None], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._answered = (clock.running_s(), clock.now_ms())
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker pulse", daemon=True)

    def start(self) -> "BrokerPulse":
        """Ask from now on."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, waiting for it a moment."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_END_WITHIN_S)

    def silent_since_ms(self) -> int | None:
        """Return when brokers answered last, by the time of day, where that is too long ago; None while they answer."""
        answered_s, answered_ms = self._answered
        return answered_ms if self._clock.running_s() - answered_s > SILENT_AFTER_S else None

    def beat(self) -> bool:
        """Ask once, and return whether there was an answer; a broker's refusal is one."""
        try:
            self._ask()
        except KafkaException as exception:
            if is_unanswered(error_of(exception)):
                return False
        except TimeoutError:
            return False
        self._answered = (self._clock.running_s(), self._clock.now_ms())
        return True

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                is_answered = self.beat()
            except Exception:  # noqa: BLE001 - a defect of ours must not end it in silence
                structlog.get_logger().exception("broker_pulse_failed")
                is_answered = True
            # Without an answer time has gone by already, unless the client says so at once.
            self._stopping.wait(EVERY_S if is_answered else EVERY_S / 5)


def pulse_of(admin: AdminClient, clock: Clock) -> BrokerPulse:
    """Return a pulse that asks a cluster which brokers it has."""

    def ask() -> None:
        admin.describe_cluster(request_timeout=WITHIN_S).result(WITHIN_S + 1)

    return BrokerPulse(ask, clock)
