"""A thread that follows topics for as long as the process runs: it logs each failure and tries again."""

import threading
from abc import ABC, abstractmethod
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException

from sidecar.kafka.client.errors import error_of
from sidecar.logs.events import Trouble

AFTER_DEFECT_S: Final = 5.0
"""Pause after an error of the program itself, which would otherwise repeat at once."""


class TopicFollower(threading.Thread, ABC):
    """Calls ``_follow`` again and again, from ``start`` to ``stop``; errors end an attempt and never the thread."""

    def __init__(self, name: str, log: Any, *, stop_within_s: float = 0.0) -> None:
        """Name the thread, and with it the event ``NAME_failed``; ``stop`` waits ``stop_within_s`` for its end."""
        super().__init__(name=name, daemon=True)
        self._stop_within_s = stop_within_s
        self._log = log
        self._trouble = Trouble(log)
        self._stopping = threading.Event()

    @abstractmethod
    def _follow(self) -> None:
        """Follow until ``_stopping`` is set. The method may return earlier, after a pause, and is then called again."""

    @abstractmethod
    def _interrupted(self, error: KafkaError) -> float:
        """Report that the cluster failed and return the seconds until the next attempt."""

    def run(self) -> None:
        """Follow until stopped."""
        while not self._stopping.is_set():
            try:
                self._follow()
            except KafkaException as exception:
                self._stopping.wait(self._interrupted(error_of(exception)))
            except Exception:  # noqa: BLE001 - a defect of ours must not end the thread silently
                self._log.exception(f"{self.name}_failed")
                self._stopping.wait(AFTER_DEFECT_S)

    def stop(self) -> None:
        """End the thread; do nothing if it was never started."""
        self._stopping.set()
        if self._stop_within_s and self.is_alive():
            self.join(self._stop_within_s)
