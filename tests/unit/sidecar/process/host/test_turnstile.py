"""One worker computes at a time, but none waits for long for another one."""

import threading
from random import Random

import pytest

from sidecar.clock import SystemClock
from sidecar.process.host import turnstile
from sidecar.process.host.turnstile import Visitor, VisitorClock

EVER_S = 10.0


class OtherWorker:
    """A worker in a thread of its own, which enters once it may."""

    def __init__(self, lock: threading.Lock) -> None:
        self.entered, self.visitor = threading.Event(), Visitor(lock)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.visitor.enter()
        self.entered.set()

    def join(self) -> None:
        self._thread.join(EVER_S)
        assert not self._thread.is_alive()


def one_inside() -> tuple[threading.Lock, Visitor]:
    """Return a turnstile, and the worker inside."""
    lock = threading.Lock()
    visitor = Visitor(lock)
    visitor.enter()
    return lock, visitor


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let workers wait for as long as the one inside stays."""
    monkeypatch.setattr(turnstile, "LONGEST_S", EVER_S)


@pytest.mark.usefixtures("patient")
def test_a_worker_enters_when_the_other_one_leaves() -> None:
    lock, mine = one_inside()
    other = OtherWorker(lock)
    assert not other.entered.wait(0.05)
    mine.leave()
    assert other.entered.wait(EVER_S)
    other.join()


@pytest.mark.usefixtures("patient")
def test_a_worker_that_waits_for_a_commit_lets_the_next_one_in_and_enters_behind_it() -> None:
    lock, mine = one_inside()
    other = OtherWorker(lock)
    with mine.outside():
        assert other.entered.wait(EVER_S)
        other.visitor.leave()
    assert lock.locked()
    other.join()
    mine.leave()
    assert not lock.locked()


def test_a_worker_that_has_not_entered_stays_outside_after_a_wait() -> None:
    lock = threading.Lock()
    with Visitor(lock).outside():
        pass
    assert not lock.locked()


def test_a_worker_that_stays_inside_does_not_hold_up_the_others() -> None:
    lock, mine = one_inside()
    other = OtherWorker(lock)
    assert other.entered.wait(EVER_S)
    other.join()
    # It was never inside, so the turnstile is still the place of the first one.
    other.visitor.leave()
    assert lock.locked()
    mine.leave()
    assert not lock.locked()


def test_a_worker_leaves_while_it_sleeps() -> None:
    lock, mine = one_inside()
    locked_asleep: list[bool] = []

    class Clock(SystemClock):
        def sleep(self, seconds: float) -> None:
            locked_asleep.append(lock.locked())

    VisitorClock(Clock(), mine).sleep(1.0)
    assert (locked_asleep, lock.locked()) == ([False], True)


@pytest.mark.parametrize("seed", range(50))
def test_the_turnstile_is_taken_exactly_while_a_worker_is_inside(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnstile, "LONGEST_S", 0)
    random, lock = Random(seed), threading.Lock()
    visitors = [Visitor(lock) for _ in range(3)]
    inside: Visitor | None = None
    for _ in range(200):
        visitor = random.choice(visitors)
        if random.random() < 0.5:
            visitor.enter()
            inside = inside or visitor
        else:
            visitor.leave()
            inside = None if inside is visitor else inside
        assert lock.locked() == (inside is not None)
