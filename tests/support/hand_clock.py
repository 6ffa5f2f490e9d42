"""A clock that a test moves by hand."""


class HandClock:
    """Stands still until it is told to go on; the time of day begins at ``now_ms``."""

    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._now_ns = now_ms * 1_000_000
        self._running_s = 1_000.0

    def now_ms(self) -> int:
        """Return milliseconds since the epoch."""
        return self._now_ns // 1_000_000

    def now_ns(self) -> int:
        """Return nanoseconds since the epoch."""
        return self._now_ns

    def running_s(self) -> float:
        """Return seconds that only go forward."""
        return self._running_s

    def sleep(self, seconds: float) -> None:
        """Let time go on instead of sleeping."""
        self.go_on(seconds)

    def go_on(self, seconds: float) -> None:
        """Move both times on by so much."""
        self._now_ns += round(seconds * 1_000_000_000)
        self._running_s += seconds

    def set_back(self, seconds: float) -> None:
        """Set back only the time of day."""
        self._now_ns -= round(seconds * 1_000_000_000)
