"""Asks the brokers again and again whether they answer at all.

A request to absent brokers ends only after its own timeout, which may be 20 s; until then old answers look current. The
pulse sends one small request after another, so it tells within seconds that the brokers are silent, and since when.
"""

import threading
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sidecar.clock import Clock
from sidecar.kafka.client.errors import error_of, is_unanswered

EVERY_S: Final = 0.5
WITHIN_S: Final = 2.5
"""Timeout of one request; a request without an answer is followed by the next one almost at once."""

SILENT_AFTER_S: Final = 3.0
"""Silence that counts as absence: longer than a busy broker takes, and below the 5 s within which people are told."""

_END_WITHIN_S: Final = 0.5


class Pulse(Protocol):
    """Tells whether the brokers answer."""

    def silent_since_ms(self) -> int | None:
        """Return the epoch time of the last answer if that is too long ago, or None while the brokers answer."""


class AlwaysAnswering:
    """A pulse that never asks and reports that the brokers answer."""

    def silent_since_ms(self) -> int | None:
        """Return None."""
        return None


class BrokerPulse:
    """Asks from ``start`` to ``stop``, in a thread of its own; any thread may read the result."""

    def __init__(self, ask: Callable[[], None], clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._answered = (clock.running_s(), clock.now_ms())
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker pulse", daemon=True)

    def start(self) -> "BrokerPulse":
        """Start to ask."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop asking, and wait a moment for the thread to end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_END_WITHIN_S)

    def silent_since_ms(self) -> int | None:
        """Return the epoch time of the last answer if that is too long ago, or None while the brokers answer."""
        answered_s, answered_ms = self._answered
        return answered_ms if self._clock.running_s() - answered_s > SILENT_AFTER_S else None

    def beat(self) -> bool:
        """Ask once and return whether a broker answered; a refusal is an answer too."""
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
            except Exception:  # noqa: BLE001 - a defect of ours must not end the thread silently
                structlog.get_logger().exception("broker_pulse_failed")
                is_answered = True
            # A request without an answer has taken time already, unless the client failed at once.
            self._stopping.wait(EVERY_S if is_answered else EVERY_S / 5)


def pulse_of(admin: AdminClient, clock: Clock) -> BrokerPulse:
    """Return a pulse that asks the cluster for its brokers."""

    def ask() -> None:
        admin.describe_cluster(request_timeout=WITHIN_S).result(WITHIN_S + 1)

    return BrokerPulse(ask, clock)
