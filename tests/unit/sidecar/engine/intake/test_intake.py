"""Reading and deciding ahead of the worker, from fetches that the test fills: sidecar.engine.intake.intake."""

import queue
import time
from collections.abc import Iterable
from threading import Lock
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from index.errors import ClusterError
from index.named.names import hash_of
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress, start_of
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Action, Control, Schedule
from index.rules.rule_history import RuleHistory
from sidecar.clock import SystemClock
from sidecar.engine.intake.decided import Controlling, Decided
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.intake.intake import CONTROLS_FOR_S, Intake
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Packed, Payload, Scheduled, scheduled, scheduled_size
from sidecar.kafka.reading.fetching import Fetching
from sidecar.kafka.reading.tails import Fetch
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.read_ahead import FETCH_RECORDS, ReadAhead
from sidecar.process.host.turnstile import Visitor
from tests.support.fetches import NOW_MS, RULES, Given, fetched
from tests.support.hand_clock import HandClock
from tests.support.places import NothingStored

PATIENCE_S = 10.0
SCHEDULE = Schedule(NOW_MS + 5_000, ("out",), BY_KEY, KEEP_KEY, b"timeout", both_times=False)


class Tail:
    """Fetches of the tail, filled by the test."""

    def __init__(self) -> None:
        self.ahead: queue.Queue[Given] = queue.Queue()
        self.closed = False
        self.failure: KafkaException | None = None

    def read(self, _wait_s: float, most: int) -> Fetch | None:
        try:
            messages = [self.ahead.get(timeout=0.01)]
        except queue.Empty:
            return None
        messages += [self.ahead.get() for _ in range(min(most - 1, self.ahead.qsize()))]
        return fetched(messages)

    def log_end(self) -> int:
        return 1_000

    def close(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.closed = True


@pytest.fixture
def tail() -> Tail:
    return Tail()


def made(tail: Tail, ledger: PartitionLedger, *, budget: PayloadBudget | None = None) -> Intake:
    budget = budget or PayloadBudget(1 << 30)
    deciding = Deciding(RuleHistory.beginning(0, RULES), budget, now_ms=lambda: NOW_MS, soon_ms=1_000)
    ahead = ReadAhead(cast("Fetching", tail), deciding, budget, lambda: not ledger.replaying, Visitor(Lock()), "d/0")
    ahead.start()
    return Intake(ahead, ledger, budget, NothingStored(), SystemClock())


def ledger_of() -> PartitionLedger:
    return PartitionIndex(start_of(0), scheduled_size)


def payloads(ledger: PartitionLedger) -> list[Payload]:
    return [payload for piece in ledger.parts.mutable.pieces() for _, _, payload in piece]


def filled(intake: Intake, ledger: PartitionLedger, to_offset: int) -> int:
    accepted = 0
    until_s = time.monotonic() + PATIENCE_S
    while ledger.indexed_to < to_offset:
        assert time.monotonic() < until_s
        accepted += intake.fill(0.05).accepted
    return accepted


def test_records_are_indexed_in_order_and_far_ones_packed(tail: Tail) -> None:
    ledger = ledger_of()
    for message in (Given(0, NOW_MS + 1_000), Given(1, 5), Given(3, NOW_MS + 1_001)):
        tail.ahead.put(message)
    tail.ahead.put(Given(7, error=KafkaError(KafkaError._PARTITION_EOF)))
    intake = made(tail, ledger)
    assert filled(intake, ledger, 7) == 3
    assert [type(payload) for payload in payloads(ledger)] == [Scheduled, Scheduled, Packed]
    assert intake.lag() == 993
    intake.close()
    assert tail.closed


def test_without_room_payload_stays_in_the_delay_topic(tail: Tail) -> None:
    ledger = ledger_of()
    for offset in range(2):
        tail.ahead.put(Given(offset, NOW_MS + 5_000))
    intake = made(tail, ledger, budget=PayloadBudget(1))
    filled(intake, ledger, 2)
    for payload in payloads(ledger):
        assert isinstance(payload, Scheduled)
        assert payload.record is None
    intake.close()


def test_nothing_is_read_while_memory_is_used_up(tail: Tail) -> None:
    budget = PayloadBudget(1)
    budget.take(1)
    ledger = ledger_of()
    tail.ahead.put(Given(0, NOW_MS + 5_000))
    intake = made(tail, ledger, budget=budget)
    assert intake.fill(0.1).accepted == 0
    budget.give_back(1)
    filled(intake, ledger, 1)
    intake.close()


def test_an_error_of_the_consumer_is_raised_where_the_worker_sees_it(tail: Tail) -> None:
    ledger = ledger_of()
    tail.ahead.put(Given(0, error=KafkaError(KafkaError._AUTO_OFFSET_RESET)))
    intake = made(tail, ledger)
    with pytest.raises(ClusterError):
        filled(intake, ledger, 1)
    intake.close()


def test_closing_does_not_wait_for_anybody_to_index(tail: Tail) -> None:
    for offset in range(30_000):
        tail.ahead.put(Given(offset, NOW_MS + 5_000))
    budget = PayloadBudget(1 << 30)
    intake = made(tail, ledger_of(), budget=budget)
    until_s = time.monotonic() + PATIENCE_S
    while not budget.used_bytes:
        assert time.monotonic() < until_s
    indexed = intake.fill(0.05)
    intake.close()
    assert tail.closed
    assert budget.used_bytes == indexed.resident_bytes > 0


def test_what_is_decided_ahead_does_not_pass_the_limit_of_memory(tail: Tail) -> None:
    for offset in range(30_000):
        tail.ahead.put(Given(offset, NOW_MS + 5_000 * (offset % 2)))
    budget = PayloadBudget(100_000)
    ledger = ledger_of()
    intake = made(tail, ledger, budget=budget)
    filled(intake, ledger, FETCH_RECORDS)
    assert 98_000 <= budget.used_bytes < 100_000
    assert budget.used_bytes == sum(payload[1] for payload in payloads(ledger) if payload[2] is not None)
    intake.close()


def test_what_has_left_before_a_replay_is_given_back(tail: Tail) -> None:
    ledger: PartitionLedger = PartitionIndex(Progress(8, Position(50, 3), 0), scheduled_size)
    for offset in range(8):
        tail.ahead.put(Given(offset, 50))
    budget = PayloadBudget(1 << 20)
    intake = made(tail, ledger, budget=budget)
    assert filled(intake, ledger, 8) == 4
    assert budget.used_bytes == sum(payload[1] for payload in payloads(ledger))
    intake.close()


def test_no_more_is_indexed_at_once_than_one_transaction_may_carry(tail: Tail) -> None:
    """A transaction may owe every record that is indexed. Indexing ends with the record that fills the transaction, in
    the middle of a fetch, and goes on there.
    """
    ledger, budget = ledger_of(), PayloadBudget(1 << 30)
    for offset in range(8):
        tail.ahead.put(Given(offset, NOW_MS + offset * 500))
    intake = made(tail, ledger, budget=budget)
    until_s, indexed, bytes_of = time.monotonic() + PATIENCE_S, [0], 0
    while ledger.indexed_to < 8:
        assert time.monotonic() < until_s
        one = intake.fill(0.05, 1)
        bytes_of += one.resident_bytes
        indexed.append(ledger.indexed_to)
    assert set(indexed) == set(range(9)), "each time one record, since any is larger than a byte"
    assert len(payloads(ledger)) == 8
    assert budget.used_bytes == bytes_of
    intake.close()
    assert budget.used_bytes == bytes_of


def test_what_is_left_of_a_fetch_is_given_back_when_the_intake_ends(tail: Tail) -> None:
    ledger, budget = ledger_of(), PayloadBudget(1 << 30)
    for offset in range(8):
        tail.ahead.put(Given(offset, NOW_MS + 5))
    intake = made(tail, ledger, budget=budget)
    until_s, resident_bytes = time.monotonic() + PATIENCE_S, 0
    while ledger.indexed_to < 3:
        assert time.monotonic() < until_s
        resident_bytes += intake.fill(0.05, 1).resident_bytes
    intake.close()
    assert budget.used_bytes == resident_bytes


def test_what_is_left_is_given_back_once_even_if_the_client_cannot_be_closed(tail: Tail) -> None:
    budget, others_bytes = PayloadBudget(1 << 30), 1_000_000
    budget.take(others_bytes)
    tail.ahead.put(Given(0, NOW_MS + 5))
    intake = made(tail, ledger_of(), budget=budget)
    until_s = time.monotonic() + PATIENCE_S
    while budget.used_bytes == others_bytes:
        assert time.monotonic() < until_s
    tail.failure = KafkaException(KafkaError(KafkaError._STATE))
    with pytest.raises(KafkaException):
        intake.close()
    assert budget.used_bytes == others_bytes
    tail.failure = None
    intake.close()
    assert budget.used_bytes == others_bytes


class OneFetch:
    """Gives one decided fetch, and notes how long the intake waited for it and for others."""

    log_end = taken_bytes = 0

    def __init__(self, decided: Decided) -> None:
        self._decided: list[Decided] = [decided]
        self.waits_s: list[float] = []

    def next(self, wait_s: float) -> Decided | None:
        self.waits_s.append(wait_s)
        return self._decided.pop() if self._decided else None

    def close(self) -> None:
        """Do nothing: it reads nothing."""


class SlowPlaces(NothingStored):
    """Places that take ``seconds`` for each control; no id is known while ``is_reading``."""

    def __init__(self, clock: HandClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.is_reading = False

    def are_known(self, _deliver_id: bytes, _following: Iterable[bytes]) -> bool:
        self._clock.go_on(self._seconds)
        return not self.is_reading


def controls(count: int) -> Decided:
    control = Control(Action.CANCEL, b"order-7")
    steps = [Controlling(offset, control, Record(None, None, (), 0), None) for offset in range(count)]
    return Decided([*steps], records=count)


def test_controls_are_evaluated_for_a_limited_time_between_two_transactions() -> None:
    clock, ledger, ahead = HandClock(), ledger_of(), OneFetch(controls(1_000))
    intake = Intake(ahead, ledger, PayloadBudget(1), SlowPlaces(clock, 0.02), clock)
    began_s, fills = clock.running_s(), 0
    while ledger.indexed_to < 1_000:
        filled_from, before_s = ledger.indexed_to, clock.running_s()
        intake.fill(0.25)
        fills += 1
        assert ledger.indexed_to > filled_from, "each time one control, however long that takes"
        assert clock.running_s() - before_s < CONTROLS_FOR_S + 0.02
    assert fills == 334
    assert clock.running_s() - began_s == pytest.approx(20)


def test_who_has_indexed_what_was_left_of_a_fetch_does_not_wait_for_another() -> None:
    """A control that waits for the ids of a bucket is answered once they are read, and not when the wait ends."""
    clock, ledger, ahead = HandClock(), ledger_of(), OneFetch(controls(1))
    places = SlowPlaces(clock, 0)
    places.is_reading = True
    intake = Intake(ahead, ledger, PayloadBudget(1), places, clock)
    intake.fill(0.25)
    places.is_reading = False
    intake.fill(0.25)
    assert ledger.named.owed == 1
    assert ahead.waits_s == [0.25, 0]


def test_many_moves_of_one_schedule_are_answered_by_few_transactions() -> None:
    ledger, clock = ledger_of(), HandClock()
    control = Control(Action.MOVE, b"timeout", due_ms=NOW_MS + 60_000)
    moves = [Controlling(offset, control, Record(None, None, (), 0), None) for offset in range(1, 3_001)]
    decided = Decided([*moves], records=3_000)
    ledger.add([(NOW_MS + 5_000, 0, scheduled(SCHEDULE, 100, None))])
    ledger.named.names.add(hash_of(b"timeout"), Position(NOW_MS + 5_000, 0))
    intake = Intake(OneFetch(decided), ledger, PayloadBudget(1), NothingStored(), clock)
    intake.fill(0.25, 32 * 1_048_576)
    assert len(ledger.plan(0, 1_000, 1_000_000).receipts) == 3_000


def test_a_query_has_a_transaction_of_its_own_and_nothing_is_indexed_beside_it() -> None:
    ledger, clock = ledger_of(), HandClock()
    query = Control(Action.CANCEL_WHERE, b"", where=b'{"target":"out"}')
    cancel = Control(Action.CANCEL, b"order-7")
    kinds = [cancel, query, query, cancel]
    steps = [Controlling(offset, control, Record(None, None, (), 0), None) for offset, control in enumerate(kinds)]
    intake = Intake(OneFetch(Decided([*steps], records=4)), ledger, PayloadBudget(1), NothingStored(), clock)
    seen: list[tuple[int, bool, int]] = []
    for _ in kinds:
        intake.fill(0.25)
        intake.fill(0.25)
        seen.append((ledger.indexed_to, intake.waits, len(ledger.plan(0, 100, 1_000_000).receipts)))
        ledger.named.queries.begin([], 0)
        ledger.confirm()
    assert seen == [(1, True, 1), (2, True, 1), (3, True, 1), (4, False, 1)]
    assert [each.offset for each in ledger.named.queries.in_force] == [1, 2]
