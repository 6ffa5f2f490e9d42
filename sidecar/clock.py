"""The clock of the router's rooms: a host makes one and passes it down.

Code that decides whether records are due gets the time as an argument (``now_ms``), because a pause stops that time.
Code that waits or measures durations gets the clock itself when it is made.
"""

import time
from typing import Protocol


class Clock(Protocol):
    """The time of day, which may be set forward and back, and a time for durations, which only goes forward."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""

    def now_ns(self) -> int:
        """Return the nanoseconds since the epoch."""

    def running_s(self) -> float:
        """Return the seconds since some moment in the past, unaffected by changes of the time of day."""

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""


def now_ms() -> int:
    """Return the milliseconds since the epoch, for answers to people; code that decides gets a clock instead."""
    return time.time_ns() // 1_000_000


class SystemClock:
    """The clock of this machine."""

    def now_ms(self) -> int:
        """Return the milliseconds since the epoch."""
        return now_ms()

    def now_ns(self) -> int:
        """Return the nanoseconds since the epoch."""
        return time.time_ns()

    def running_s(self) -> float:
        """Return the seconds since some moment in the past, unaffected by changes of the time of day."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        time.sleep(seconds)
