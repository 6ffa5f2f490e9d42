"""Reading ahead pauses while there is little memory, before payloads would have to be left in the delay topic."""

import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from sidecar.engine.intake.decided import Decided
from sidecar.process.host import read_ahead
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.read_ahead import ReadAhead
from sidecar.process.host.turnstile import Visitor

MAX_BYTES = 1_600
WAIT_S = 10.0


class Fetches:
    """Gives the same fetch each time, and counts the requests."""

    def __init__(self) -> None:
        self.asked = threading.Semaphore(0)

    def read(self, wait_s: float, most_records: int) -> object:
        self.asked.release()
        return object()

    def log_end(self) -> int:
        return 0

    def close(self) -> None:
        pass


class Decides:
    has_ended = False
    taken_bytes = 0

    def decide(self, fetch: object) -> Decided:
        return Decided(steps=[[]])


def reading(fetches: Fetches, budget: PayloadBudget, needs_room: Callable[[], bool]) -> ReadAhead:
    visitor = Visitor(threading.Lock())
    return ReadAhead(cast("Any", fetches), cast("Any", Decides()), budget, needs_room, visitor, "delays/0")


def test_what_never_leaves_does_not_hold_up_the_others_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "FULL_FOR_S", 0.01)
    budget, fetches = PayloadBudget(MAX_BYTES), Fetches()
    budget.take(MAX_BYTES)
    ahead = reading(fetches, budget, lambda: True)
    ahead.start()
    try:
        assert fetches.asked.acquire(timeout=WAIT_S)
    finally:
        ahead.close()


def test_it_waits_for_room_while_others_give_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    budget, fetches = PayloadBudget(MAX_BYTES), Fetches()
    budget.take(MAX_BYTES)
    now_s = 0.0

    def needs() -> bool:
        # The time between two looks is shorter than the wait for room, but the total is far longer.
        nonlocal now_s
        now_s += 0.6 * read_ahead.FULL_FOR_S
        budget.take(1)
        budget.give_back(1)
        asked.release()
        return True

    asked = threading.Semaphore(0)
    monkeypatch.setattr(read_ahead, "WAIT_S", 0.001)
    monkeypatch.setattr("sidecar.process.host.read_ahead.time.monotonic", lambda: now_s)
    ahead = reading(fetches, budget, needs)
    ahead.start()
    try:
        for _ in range(20):
            assert asked.acquire(timeout=WAIT_S)
        assert not fetches.asked.acquire(blocking=False)
    finally:
        ahead.close()


@pytest.mark.parametrize("needs_room", [True, False])
def test_it_reads_nothing_when_memory_is_nearly_used_up(needs_room: bool) -> None:
    budget, fetches, asked = PayloadBudget(MAX_BYTES), Fetches(), threading.Semaphore(0)

    def needs() -> bool:
        asked.release()
        return needs_room

    budget.take(MAX_BYTES - 100)
    ahead = reading(fetches, budget, needs)
    ahead.start()
    try:
        # At the second question, it has acted on the first answer.
        assert asked.acquire(timeout=WAIT_S)
        assert asked.acquire(timeout=WAIT_S)
        assert fetches.asked.acquire(blocking=False) is not needs_room
        budget.give_back(1)
        assert fetches.asked.acquire(timeout=WAIT_S)
    finally:
        ahead.close()


@pytest.mark.parametrize(
    ("partitions", "max_bytes", "fetches_ahead"),
    [(1, 1 << 30, 40), (100, 1 << 30, 4), (1_000, 1 << 30, 2), (1, 1 << 20, 10), (100, 1 << 20, 4)],
)
def test_all_partitions_of_a_process_together_read_a_few_records_ahead(
    partitions: int, max_bytes: int, fetches_ahead: int
) -> None:
    budget, fetches = PayloadBudget(max_bytes), Fetches()
    budget.partitions = partitions
    ahead = reading(fetches, budget, lambda: True)
    ahead.start()
    try:
        for _ in range(fetches_ahead):
            assert fetches.asked.acquire(timeout=WAIT_S)
        assert not fetches.asked.acquire(timeout=0.05)
        assert ahead.next(WAIT_S) is not None
        assert fetches.asked.acquire(timeout=WAIT_S), "one is read for each that is taken"
        assert not fetches.asked.acquire(timeout=0.05)
    finally:
        ahead.close()
