"""The one way in which the router's rooms tell the time: a host makes a clock, and hands it down.

What is due is decided by a time that is passed in (``now_ms``), since a pause stops it. What has to wait, or measures
how long something took, is given the clock itself when it is made.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The time of day, which may be set forward and back, and a time for durations, which only goes forward."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""

    def running_s(self) -> float:
        """Seconds since some moment in the past, whatever becomes of the time of day."""

    def sleep(self, seconds: float) -> None:
        """Let so much time go by."""


def now_ms() -> int:
    """Milliseconds since the epoch, for who answers people and is no part of what decides."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        return now_ms()

    def now_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def running_s(self) -> float:
        """Seconds since some moment in the past, whatever becomes of the time of day."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Let so much time go by."""
        time.sleep(seconds)
