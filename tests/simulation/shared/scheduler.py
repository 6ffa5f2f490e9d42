"""Lets one thread run at a time, and picks the next one by a random generator, so that a seed is a run."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tests.simulation.violation import Violation

WITHIN_S: Final = 60.0
"""Longest time between two switches; a thread that needs longer hangs in a call that the scheduler does not know."""


class Unwound(BaseException):
    """The thread has to end here: its process was killed, or the run is over. Its code cannot catch that."""


def _taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


@dataclass(eq=False)
class Task:
    """A thread of the run; ``is_killed`` tells whether its process was killed."""

    name: str
    is_killed: Callable[[], bool]
    goes: threading.Lock = field(default_factory=_taken)
    can_go: Callable[[], bool] = lambda: True
    error: BaseException | None = None
    has_ended: bool = False
    is_unwinding: bool = False


class Scheduler:
    """Runs threads in turns; the methods ``switch`` and ``wait_for`` are for the thread that runs.

    A thread keeps its turn with a probability that each run draws. So in some runs a thread stands still for long.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._keeps = rng.choice([0.0, 0.5, 0.9, 0.98])
        self._tasks: list[Task] = []
        self._present: Task | None = None
        self._returns = _taken()
        self._is_over = False
        self.switches = 0

    def lock(self) -> "ScheduledLock":
        """Return a lock that stands for ``threading.Lock``."""
        return ScheduledLock(self)

    def start(self, name: str, function: Callable[[], None], is_killed: Callable[[], bool]) -> None:
        """Add a thread."""
        task = Task(name, is_killed)
        threading.Thread(target=self._run, args=(task, function), name=name, daemon=True).start()
        self._tasks.append(task)

    def switch(self) -> None:
        """Let other threads run; raise Unwound if this one has to end."""
        self.wait_for(lambda: True)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Let other threads run until the condition holds; raise Unwound if this one has to end."""
        task = self._present
        assert task is not None, "called by a thread of the run"
        if task.is_unwinding:
            return
        task.can_go = holds
        self._returns.release()
        task.goes.acquire()
        if self._is_over or task.is_killed():
            task.is_unwinding = True
            raise Unwound

    def turn(self) -> bool:
        """Let one thread run up to its next switch; return False if all have ended.

        Raise the error of the thread, and Violation if every thread waits for another one.
        """
        self._tasks = [each for each in self._tasks if not each.has_ended]
        if not self._tasks:
            return False
        ready = [each for each in self._tasks if each.is_killed() or each.can_go()]
        if not ready:
            raise Violation(f"every thread waits: {[each.name for each in self._tasks]}")
        if self._present not in ready or self._rng.random() >= self._keeps:
            self._present = self._rng.choice(ready)
        self._go(self._present)
        return True

    def end(self) -> None:
        """End all threads."""
        self._is_over = True
        for task in self._tasks:
            if not task.has_ended:
                self._present = task
                self._go(task)

    def _go(self, task: Task) -> None:
        self.switches += 1
        task.goes.release()
        if not self._returns.acquire(timeout=WITHIN_S):
            raise Violation(f"{task.name} hangs")
        if task.error is not None and not self._is_over:
            raise task.error

    def _run(self, task: Task, function: Callable[[], None]) -> None:
        task.goes.acquire()
        try:
            if not self._is_over:
                function()
        except Unwound:
            pass
        except BaseException as error:  # noqa: BLE001 - ``turn`` raises it
            task.error = error
        finally:
            task.has_ended = True
            self._returns.release()


class ScheduledLock:
    """A lock for which a thread waits by letting others run."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._is_held = False

    def acquire(self) -> bool:
        """Wait until the lock is free, and take it."""
        self._scheduler.wait_for(lambda: not self._is_held)
        self._is_held = True
        return True

    def release(self) -> None:
        """Free the lock."""
        self._is_held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
