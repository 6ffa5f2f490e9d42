"""Lets the workers of a process compute one after the other, so that a commit does not wait for all of them.

Python computes in one thread at a time, and hands its lock to any thread that waits. With a hundred workers, the thread
that leads a commit waits behind many of them each time the client returns to it. All of them wake up again and again to
ask for the lock. So a worker enters the turnstile before it computes, and leaves it before it waits for a due time, for
a commit or for a record of the broker. One worker is inside, and the others sleep without asking for the lock. ::

    worker 1   ─wait─►│ index, plan, screen │─commit─►          │ confirm │─wait─►
    worker 2   ─wait────────────────────────►│ index, plan, screen │─commit─►
    leader     ─────────write, commit, wake the workers─────────────────────────►

The turnstile protects nothing, since each worker has a state of its own. A worker waits for it for at most
``LONGEST_S``, and then computes beside the worker inside. So a worker that computes for long, or that waits for an
answer of the cluster after all, holds up each other one for no longer than that.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Final

from sidecar.clock import Clock

LONGEST_S: Final = 0.02
"""The longest wait for the turnstile. A worker with a few due records is inside for 0.5 ms, so forty fit into it."""


class Visitor:
    """A worker that enters and leaves the turnstile of its process, a lock; used by its thread only."""

    def __init__(self, turnstile: Lock) -> None:
        self._turnstile = turnstile
        self._is_computing = self._is_inside = False

    def enter(self) -> None:
        """Wait until the worker may compute."""
        self._is_computing = True
        if not self._is_inside:
            self._is_inside = self._turnstile.acquire(timeout=LONGEST_S)

    def leave(self) -> None:
        """Let the next worker compute; do nothing outside."""
        self._is_computing = False
        if self._is_inside:
            self._is_inside = False
            self._turnstile.release()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Leave while the worker waits; a worker that was computing enters again at the end."""
        was_computing = self._is_computing
        self.leave()
        try:
            yield
        finally:
            if was_computing:
                self.enter()


class VisitorClock:
    """The clock of a worker, which leaves the turnstile while it sleeps."""

    def __init__(self, clock: Clock, visitor: Visitor) -> None:
        self.now_ms = clock.now_ms
        self.now_ns = clock.now_ns
        self.running_s = clock.running_s
        self._clock = clock
        self._visitor = visitor

    def sleep(self, seconds: float) -> None:
        """Wait for a number of seconds."""
        with self._visitor.outside():
            self._clock.sleep(seconds)
