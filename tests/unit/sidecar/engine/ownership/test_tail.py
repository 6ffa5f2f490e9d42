"""Reading on, and reading anew where records read ahead no longer hold: sidecar.engine.ownership.tail."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Any, cast

import pytest

from index.errors import ClusterError, ClusterTrouble
from index.partition.partition import PartitionIndex
from index.pending.progress import BEFORE_ALL, Progress, start_of
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.intake.intake import IdPlaces, Intake
from sidecar.engine.limits import LIMITS, Limits
from sidecar.engine.ownership.tail import HELD_UP_RECORDS, PartitionTail, is_held_up
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Scheduled, scheduled_size
from sidecar.kafka.reading.fetching import Fetching
from sidecar.kafka.reading.tails import Fetch
from sidecar.metrics import Metrics
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.read_ahead import ReadAhead
from sidecar.process.host.turnstile import Visitor
from tests.support.fetches import NOW_MS, RULES, Given, fetched
from tests.support.hand_clock import HandClock
from tests.support.places import NothingStored

OTHERS = Rules(topic="d", default_target="u")
END = 60
PATIENCE_S = 10.0


class Log:
    """Fetches of a log from any offset, with one record in each."""

    def __init__(self) -> None:
        self.begun_at: list[int] = []
        self.closed = 0
        self.failure: ClusterError | None = None


class _Reading:
    def __init__(self, log: Log, next_offset: int) -> None:
        self._log = log
        self._next = next_offset
        if log.failure is not None:
            raise log.failure
        log.begun_at.append(next_offset)

    def read(self, _wait_s: float, _most: int) -> Fetch | None:
        if self._next >= END:
            time.sleep(0.005)
            return None
        self._next += 1
        return fetched([Given(self._next - 1, NOW_MS)])

    def log_end(self) -> int:
        return END

    def close(self) -> None:
        self._log.closed += 1


def made(
    log: Log,
    ledger: PartitionLedger,
    budget: PayloadBudget,
    has_looked: Callable[[], bool] | None = None,
    limits: Limits = LIMITS,
) -> PartitionTail:
    clock = HandClock(NOW_MS)
    context = PartitionContext(DelayTopicConfig(name="d"), 0, "g", Metrics(), clock, limits=limits)

    def read_on(ledger: PartitionLedger, history: RuleHistory, until_offset: int, places: IdPlaces) -> Intake:
        deciding = Deciding(history, budget, now_ms=clock.now_ms, soon_ms=1_000, until_offset=until_offset)
        fetching = cast("Fetching", _Reading(log, ledger.indexed_to))
        ahead = ReadAhead(fetching, deciding, budget, lambda: not ledger.replaying, Visitor(Lock()), "d/0")
        ahead.start()
        return Intake(ahead, ledger, budget, places, clock)

    return PartitionTail(context, ledger, RuleHistory.beginning(0, RULES), read_on, NothingStored(), has_looked)


def filled(tail: PartitionTail, ledger: PartitionLedger, to_offset: int) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while ledger.indexed_to < to_offset:
        tail.fill(0.05)
        assert time.monotonic() < until_s


def targets(ledger: PartitionLedger) -> dict[int, str]:
    found = [entry for piece in ledger.parts.mutable.pieces() for entry in piece]
    assert len({offset for _, offset, _ in found}) == len(found)
    return {offset: payload.schedule.targets[0] for _, offset, payload in found if isinstance(payload, Scheduled)}


def test_what_was_read_ahead_is_decided_by_the_epoch_that_begins() -> None:
    log, budget = Log(), PayloadBudget(1 << 30)
    ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)
    tail = made(log, ledger, budget)
    filled(tail, ledger, 1)
    until_s = time.monotonic() + PATIENCE_S
    while budget.used_bytes <= sum(payload[1] for payload in payloads(ledger)):
        assert time.monotonic() < until_s, "nothing is read ahead"
    begins = ledger.indexed_to
    assert begins < END
    tail.enter(RuleHistory.beginning(0, RULES).with_epoch(begins, OTHERS))
    filled(tail, ledger, END)
    assert targets(ledger) == {offset: "t" if offset < begins else "u" for offset in range(END)}
    assert budget.used_bytes == sum(payload[1] for payload in payloads(ledger))
    tail.close()
    assert (log.begun_at, log.closed) == ([0, begins], 2)


def test_it_is_closed_once_reading_could_not_begin_anew() -> None:
    log, budget, others_bytes = Log(), PayloadBudget(1 << 30), 1_000_000
    budget.take(others_bytes)
    ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)
    tail = made(log, ledger, budget)
    until_s = time.monotonic() + PATIENCE_S
    while budget.used_bytes == others_bytes:
        assert time.monotonic() < until_s, "nothing is read ahead"
    log.failure = ClusterError(ClusterTrouble.UNANSWERED, "no leader")
    with pytest.raises(ClusterError):
        tail.begin_anew()
    tail.close()
    assert budget.used_bytes == others_bytes


def payloads(ledger: PartitionLedger) -> list[Any]:
    return [payload for piece in ledger.parts.mutable.pieces() for _, _, payload in piece]


def may_end(tail: PartitionTail) -> bool:
    return tail.may_end_look


def test_nothing_beyond_the_cursor_is_read_before_it_is_known_what_was_staged() -> None:
    log, looked = Log(), [False]
    ledger: PartitionLedger = PartitionIndex(Progress(20, BEFORE_ALL, 5), scheduled_size)
    tail = made(log, ledger, PayloadBudget(1 << 30), has_looked=lambda: looked[0])
    assert not may_end(tail), "the replay comes first"
    filled(tail, ledger, 20)
    tail.fill(0.05)
    assert ledger.indexed_to == 20
    assert tail.is_looking
    assert not may_end(tail)
    looked[0] = True
    assert may_end(tail)
    tail.end_look()
    filled(tail, ledger, END)
    tail.close()
    assert log.begun_at == [5, 20]


def test_the_wait_for_what_was_staged_has_an_end() -> None:
    ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)
    tail = made(Log(), ledger, PayloadBudget(1), has_looked=lambda: False, limits=Limits(staged_within_s=-1.0))
    assert tail.may_end_look
    tail.close()


def test_the_intake_of_a_paused_partition_waits_once_much_lies_behind_a_late_record() -> None:
    """A late record is not due by the clock of a paused partition, so C stands in front of it."""
    ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)
    ledger.advance(HELD_UP_RECORDS)
    assert not is_held_up(ledger, 1_000, 4_000), "nothing is owed"
    ledger.reject(HELD_UP_RECORDS, cast("Any", None))
    assert is_held_up(ledger, 0, 4_000)
    ledger = PartitionIndex(start_of(0), scheduled_size)
    ledger.reject(0, cast("Any", None))
    ledger.advance(HELD_UP_RECORDS - 1)
    assert not is_held_up(ledger, 999, 4_000)
    assert is_held_up(ledger, 1_000, 4_000)
    ledger.advance(HELD_UP_RECORDS)
    assert is_held_up(ledger, 0, 4_000)


def test_where_nothing_can_be_staged_there_is_no_look_to_end() -> None:
    ledger: PartitionLedger = PartitionIndex(start_of(0), scheduled_size)
    tail = made(Log(), ledger, PayloadBudget(1))
    assert (tail.is_looking, tail.may_end_look) == (False, False)
    tail.close()
