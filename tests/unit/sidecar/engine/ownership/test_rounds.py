"""The rounds of an active partition: how long each waits, when a transaction begins, how large it is, and its metrics.

The partition is a double of a few numbers, and the clock is moved by hand.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from index.errors import ClusterError, ClusterTrouble
from index.named.receipts import ControlOutcome, Receipt
from index.partition.batch import Batch
from index.partition.transaction_size import TransactionSize
from index.pending.pending import Entry
from index.pending.progress import Position, start_of
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, Action, Attempted, Control, Reason, Rejection, Schedule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.context import PartitionContext
from sidecar.engine.intake.decided import BadBatch, Indexed
from sidecar.engine.limits import LIMITS
from sidecar.engine.ownership.attempts import AttemptCounter
from sidecar.engine.ownership.rounds import (
    IDLE_WAIT_S,
    LOADING_WAIT_S,
    PAUSED_WAIT_S,
    SHARED_BY,
    Rounds,
)
from sidecar.engine.payload.records import Payload, Refused, Scheduled, transaction_bytes
from sidecar.engine.release.plan import Plan, Released, Screened
from sidecar.engine.release.transaction import SETTLE_S, Request
from sidecar.metrics import Metrics
from tests.support.hand_clock import HandClock

NOW_MS = 1_000_000
TICK_S = 0.05
PLENTY = 1 << 40
RECORD = Record(b"k", b"v", (), NOW_MS - 7_000)


def entry(offset: int, due_ms: int = NOW_MS - 500, target: str = "out") -> Entry[Scheduled]:
    schedule = Schedule(due_ms, (target,), BY_KEY, KEEP_KEY, None, both_times=False)
    return due_ms, offset, Scheduled(schedule, 100, RECORD)


class Owned:
    """A partition with the records, waits and room that a test sets; it notes the steps of the round."""

    def __init__(self, clock: HandClock) -> None:
        self._clock = clock
        self.owed_ms: int | None = None
        self.due_ms: int | None = None
        self.held_s: float | None = None
        self.held: list[Entry[Scheduled]] = []
        self.leaves: list[Entry[Payload]] = []
        self.wanted: list[Request] = []
        self.takes_s = 0.0
        self.indexed_bytes = 0
        self.error: Exception | None = None
        self.result = Released(Screened([], [], []), 0, 0, [])
        self.waits: list[tuple[float, ...]] = []
        self.began_s: list[float] = []
        self.planned: list[tuple[int, int, int]] = []
        self.released = 0
        self.lateness: list[tuple[Sequence[int], int]] = []
        self.bad: list[BadBatch] = []

        self.pauses_meanwhile = False
        self.settings = SimpleNamespace(paused=False, tick_ms=int(TICK_S * 1_000))
        self.is_loading = self.is_busy = self.wants_commit = self.intake_pauses = False
        self.gate = SimpleNamespace(
            room_records=PLENTY, room_bytes=PLENTY, wait_s=lambda _: self.held_s, resumed=lambda *_: self.held
        )
        self.ledger = SimpleNamespace(
            committed=SimpleNamespace(series_key=b"", cursor=10),
            indexed_to=10,
            replaying=False,
            named=SimpleNamespace(doomed=()),
            next_owed_ms=lambda: self.owed_ms,
            next_releasable_ms=lambda: self.due_ms,
        )
        self.releaser = SimpleNamespace(plan=self.plan)
        self.recent_lateness = SimpleNamespace(add=lambda counts, at_ms: self.lateness.append((counts, at_ms)))
        self.attempts = AttemptCounter(clock)

    def follow_policies(self) -> None:
        if self.pauses_meanwhile and self.waits:
            self.settings.paused = True

    def load(self, _now_ms: int) -> None:
        pass

    def index(self, *wait: float) -> Indexed:
        self.waits.append(wait)
        return Indexed(accepted=3, both_times=2, without_time=1, size_bytes=self.indexed_bytes, bad=self.bad)

    def requests(self, _now_ms: int) -> list[Request]:
        return self.wanted

    def plan(self, now_ms: int, most: int, most_bytes: int, requests: Sequence[Request], resumed: Any) -> Plan:
        self.planned.append((now_ms, most, most_bytes))
        return Plan(Batch([], self.leaves, [], start_of(0), due_bytes=1_000), requests, resumed)

    def release(self, _plan: Plan) -> Released:
        self.began_s.append(self._clock.running_s())
        self._clock.go_on(self.takes_s)
        if self.error is not None:
            raise self.error
        return self.result


class Scene:
    """A partition and its rounds; at most 64 records and ``most_bytes`` are in a transaction."""

    def __init__(self, most_bytes: int = 4_000) -> None:
        self.clock, self.metrics = HandClock(NOW_MS), Metrics()
        self.owned = Owned(self.clock)
        self.size = TransactionSize(most_bytes, 60.0)
        context = PartitionContext(DelayTopicConfig(name="d"), 3, "g", self.metrics, self.clock)
        self.rounds = Rounds(context, cast("Any", self.owned), self.size, 64)

    def round(self) -> bool:
        """Do a round; return whether a transaction began."""
        before = len(self.owned.began_s)
        self.rounds.once()
        return len(self.owned.began_s) > before

    def waited_s(self) -> float:
        """Do a round; return for how long it has waited, asleep or for records."""
        began_s = self.clock.running_s()
        self.rounds.once()
        return self.clock.running_s() - began_s + (self.owned.waits[-1][0] if self.owned.waits else 0)

    def counted(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"delay_router_{name}", {"topic": "d", **labels})


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    ("due_in_ms", "waits_s"),
    [
        (None, IDLE_WAIT_S),
        (10_000, IDLE_WAIT_S),
        (100, 0.1),
        (1, 0.001),
        (0, 0.0),
        (-500, 0.0),
    ],
)
def test_a_round_waits_for_records_until_the_next_one_is_due(
    scene: Scene, due_in_ms: int | None, waits_s: float
) -> None:
    scene.owned.due_ms = None if due_in_ms is None else NOW_MS + due_in_ms
    assert scene.waited_s() == pytest.approx(waits_s)


@pytest.mark.parametrize("why", ["is_loading", "is_busy"])
def test_a_round_is_short_while_a_segment_is_read_or_written(scene: Scene, why: str) -> None:
    setattr(scene.owned, why, True)
    assert scene.waited_s() == LOADING_WAIT_S


def test_a_round_waits_no_longer_than_until_a_held_record_may_leave(scene: Scene) -> None:
    scene.owned.held_s = 0.03
    assert scene.waited_s() == pytest.approx(0.03)
    scene.owned.held_s = 9.0
    assert scene.waited_s() == pytest.approx(IDLE_WAIT_S)
    scene.owned.held_s, scene.owned.due_ms = 0.0, scene.clock.now_ms()
    assert scene.waited_s() == 0
    scene.owned.due_ms = None
    assert scene.waited_s() == pytest.approx(SETTLE_S), "after a transaction the next one waits a little"


def test_records_that_the_gate_has_no_room_for_are_not_waited_for(scene: Scene) -> None:
    scene.owned.due_ms, scene.owned.gate.room_records = NOW_MS - 1, 0
    assert scene.waited_s() == IDLE_WAIT_S
    assert scene.owned.began_s == []
    scene.owned.owed_ms = NOW_MS - 1
    assert scene.round(), "a record that is owed has to leave"


def test_a_transaction_begins_when_a_record_is_due_or_owed_and_not_before(scene: Scene) -> None:
    scene.owned.due_ms = NOW_MS + 400
    assert not scene.round()
    scene.clock.go_on(0.4)
    assert scene.round()
    scene.owned.due_ms, scene.owned.owed_ms = None, scene.clock.now_ms() + 1_000
    scene.clock.go_on(SETTLE_S)
    assert not scene.round()
    scene.clock.go_on(1.0)
    assert scene.round()


def test_a_record_that_comes_while_the_topic_is_paused_stays(scene: Scene) -> None:
    scene.owned.due_ms, scene.owned.pauses_meanwhile = NOW_MS - 1, True
    assert not scene.round(), "the pause came while the round waited for records"
    scene.owned.pauses_meanwhile = scene.owned.settings.paused = False
    assert scene.round()


def test_the_next_transaction_begins_once_the_last_one_is_settled(scene: Scene) -> None:
    scene.owned.due_ms, scene.owned.takes_s = NOW_MS, 0.02
    assert scene.round()
    assert scene.owned.began_s[0] == 1_000.0
    while len(scene.owned.began_s) < 2:
        scene.rounds.once()
        scene.clock.go_on(scene.owned.waits[-1][0])
    assert scene.owned.began_s[1] == pytest.approx(1_000.02 + SETTLE_S, abs=0.001)


@pytest.mark.parametrize(("records", "pause_s"), [(SHARED_BY - 1, SETTLE_S), (SHARED_BY, TICK_S)])
def test_after_many_records_the_next_transaction_gets_a_tick_to_fill(
    scene: Scene, records: int, pause_s: float
) -> None:
    scene.owned.due_ms, scene.owned.leaves = NOW_MS, [entry(offset) for offset in range(records)]
    assert scene.round()
    scene.clock.go_on(pause_s - 0.002)
    assert not scene.round()
    scene.clock.go_on(0.0021)
    assert scene.round()


def test_a_bucket_that_waits_for_a_commit_gets_one_as_soon_as_the_last_is_settled(scene: Scene) -> None:
    scene.owned.wants_commit = True
    assert scene.round()
    assert not scene.round()
    scene.clock.go_on(SETTLE_S)
    assert scene.round()


def test_requests_and_held_records_cause_a_transaction_once_the_last_is_settled(scene: Scene) -> None:
    scene.owned.wanted = [Request(cast("Any", None), removed=(b"k",))]
    assert scene.round()
    assert not scene.round()
    scene.clock.go_on(SETTLE_S)
    scene.owned.wanted, scene.owned.held = [], [entry(5)]
    assert scene.round()
    assert scene.owned.planned[-1] == (scene.clock.now_ms(), 64, 4_000 - transaction_bytes([entry(5)]))


def test_progress_alone_is_committed_now_and_then_and_never_in_front_of_a_due_record(scene: Scene) -> None:
    scene.owned.ledger.indexed_to = 11
    assert scene.round(), "the first transaction"
    scene.owned.due_ms = scene.clock.now_ms() + int(1_000 * (LIMITS.progress_every_s + LIMITS.progress_clearance_s))
    scene.clock.go_on(LIMITS.progress_every_s)
    assert not scene.round()
    scene.clock.go_on(0.001)
    assert not scene.round(), "a record is about to be due"
    scene.owned.due_ms += 2
    assert scene.round()
    scene.owned.due_ms, scene.owned.ledger.indexed_to = None, 10
    scene.clock.go_on(2 * LIMITS.progress_every_s)
    assert not scene.round(), "C has not moved"


def test_nothing_is_due_in_a_paused_partition(scene: Scene) -> None:
    scene.owned.settings.paused = True
    scene.owned.due_ms = NOW_MS - 5_000
    assert scene.waited_s() == IDLE_WAIT_S
    assert scene.owned.began_s == []
    scene.owned.wants_commit = True
    assert scene.round()
    assert scene.owned.planned[0][0] < 0, "and by the time of that transaction neither"


def test_a_replay_indexes_without_a_limit_and_releases_nothing(scene: Scene) -> None:
    scene.owned.ledger.replaying, scene.owned.due_ms = True, NOW_MS
    scene.rounds.replay()
    assert scene.owned.waits == [(IDLE_WAIT_S,)]
    assert scene.owned.began_s == []


def test_a_paused_intake_takes_no_record_and_rounds_stay_short(scene: Scene) -> None:
    scene.owned.intake_pauses = True
    assert scene.waited_s() == pytest.approx(PAUSED_WAIT_S)
    scene.owned.due_ms = scene.clock.now_ms()
    assert scene.waited_s() == 0
    assert scene.owned.waits == []


def test_owed_records_are_taken_in_up_to_the_size_of_the_transaction_that_they_need(scene: Scene) -> None:
    scene.owned.indexed_bytes = 3_000
    scene.owned.due_ms = scene.owned.owed_ms = NOW_MS + 50_000
    scene.rounds.once()
    scene.rounds.once()
    assert scene.owned.waits == [(IDLE_WAIT_S, 4_000)] * 2, "none of them leaves yet, so the room is the same"
    scene.owned.owed_ms = scene.clock.now_ms()
    scene.owned.wants_commit, scene.owned.error = True, ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    with pytest.raises(ClusterError):
        scene.rounds.once()
    scene.owned.error = None
    scene.rounds.once()
    assert scene.owned.waits[2:] == [(0.0, 1_000), (0.0, 500)], "half of the size that was given up, each time anew"


def test_a_transaction_leaves_room_for_held_records_and_takes_no_more_than_the_gate_could_hold(scene: Scene) -> None:
    scene.owned.due_ms = NOW_MS
    scene.owned.gate.room_records, scene.owned.gate.room_bytes = 7, 900
    assert scene.round()
    scene.owned.gate.room_records = scene.owned.gate.room_bytes = PLENTY
    scene.owned.held = [entry(offset) for offset in range(1_000)]
    scene.clock.go_on(1)
    assert scene.round()
    assert [each[1:] for each in scene.owned.planned] == [(7, 900), (64, 0)]


@pytest.mark.parametrize(("series_key", "expected"), [(b"", 4_000), (b"key", 2_000)])
def test_where_schedules_recur_half_of_a_transaction_is_planned(scene: Scene, series_key: bytes, expected: int) -> None:
    scene.owned.due_ms, scene.owned.ledger.committed.series_key = NOW_MS, series_key
    assert scene.round()
    assert scene.owned.planned == [(NOW_MS, 64, expected)]
    assert scene.owned.waits[0][1] == expected


@pytest.mark.parametrize("series_key", [b"", b"key"])
def test_a_transaction_may_have_a_record_however_small_the_last_one_was_that_was_abandoned(
    scene: Scene, series_key: bytes
) -> None:
    """Without room, no record would come in and no transaction would be made, so there would never be room again."""
    # An idle partition whose producer is fenced abandons a transaction without records.
    scene.size.abandoned(0)
    scene.owned.due_ms, scene.owned.ledger.committed.series_key = NOW_MS, series_key
    assert scene.round()
    assert scene.owned.planned == [(NOW_MS, 64, 1)]


def test_a_transaction_that_fails_makes_the_next_one_smaller_and_a_quick_one_larger() -> None:
    scene = Scene(most_bytes=2_000)
    scene.owned.due_ms, scene.owned.error = NOW_MS, ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    with pytest.raises(ClusterError):
        scene.rounds.once()
    assert scene.size.limit_bytes(0.0) == 500, "half of what it was"
    scene.owned.error = None
    scene.owned.result = Released(Screened([], [], []), 1, 0, [])
    assert scene.round()
    assert scene.size.limit_bytes(0.0) == 500, "an attempt was aborted, so the time tells nothing"
    scene.owned.result = Released(Screened([], [], []), 0, 0, [])
    scene.clock.go_on(1)
    assert scene.round()
    assert scene.size.limit_bytes(0.0) == 2_000


def test_segments_that_slow_brokers_cannot_carry_beside_records_are_left_out(scene: Scene) -> None:
    left_out: list[Request] = []
    owner: Any = SimpleNamespace(left_out=left_out.append)
    large, small = Request(owner, segments=((b"k", b"v" * 40_000),)), Request(owner, removed=(b"k",))
    scene.owned.wanted = [large, small]
    assert scene.round()
    assert left_out == [large]


def test_the_records_of_a_committed_transaction_are_counted(scene: Scene) -> None:
    control = Control(Action.CANCEL, b"order-7")
    cancelled = Position(NOW_MS, 1), Position(NOW_MS, 2)
    receipt = Receipt(9, control, ControlOutcome.CANCELLED, cancelled, None, RECORD)
    rejected = [(8, Refused(Rejection(Reason.EXPIRED, "too late"), RECORD))]
    held = [entry(4, target="b")]
    scene.owned.leaves = [entry(1, AT_ONCE), entry(2), entry(3), *held]
    scene.owned.held = [entry(5, NOW_MS - 3_000, "c"), entry(6, NOW_MS - 1, "b")]
    released = Screened([entry(1), entry(2), entry(5, target="c")], rejected, [])
    scene.owned.result = Released(released, 2, 4, [*held, scene.owned.held[1]], skipped=5, receipts=[receipt])
    scene.owned.takes_s = 0.3
    assert scene.round()
    assert scene.counted("transactions_total", outcome="committed") == 1
    assert scene.counted("transactions_total", outcome="aborted") == 2
    assert scene.counted("transaction_seconds_sum") == pytest.approx(0.3)
    assert scene.counted("records_released_total", target="out") == 2
    assert scene.owned.released == 3
    assert scene.counted("records_rejected_total", reason="EXPIRED") == 1
    assert scene.counted("receipts_total", outcome="cancelled") == 1
    assert scene.counted("records_cancelled_total") == 2
    assert scene.counted("occurrences_skipped_total") == 5
    assert scene.counted("records_rejected_truncated_total") == 4
    assert scene.counted("records_held_total", target="b") == 1, "one was held before"
    assert scene.counted("held_seconds_sum", target="c") == pytest.approx(3.3)
    assert scene.counted("held_seconds_count", target="b") is None, "it is held still"
    ((lateness, at_ms),) = scene.owned.lateness
    assert lateness[-1] == 2, "neither the one that names no time nor the held one"
    assert at_ms == 1_000_300


def test_attempts_are_counted_where_there_are_any(scene: Scene) -> None:
    def attempted(offset: int, attempt: Attempted | None) -> Entry[Scheduled]:
        due_ms, _, payload = entry(offset)
        return due_ms, offset, payload._replace(schedule=payload.schedule._replace(attempt=attempt))

    for attempts in ([None], [Attempted(1), Attempted(1), Attempted(9), Attempted(3, exhausted=True)]):
        scene.owned.due_ms = NOW_MS
        leaving = [attempted(offset, attempt) for offset, attempt in enumerate(attempts)]
        scene.owned.leaves = [*leaving]
        scene.owned.result = Released(Screened(leaving, [], []), 0, 0, [])
        scene.clock.go_on(1)
        assert scene.round()
    assert scene.counted("attempts_total", attempt="1") == 2
    assert scene.counted("attempts_total", attempt="8+") == 1
    assert scene.counted("attempts_total", attempt="2") is None, "no series of what never happened"
    assert scene.counted("attempts_exhausted_total") == 1
    assert scene.owned.attempts.counts().released == (2, 0, 0, 0, 1, 1)


def test_the_records_that_are_taken_in_are_counted_and_lost_ones_are_told(scene: Scene) -> None:
    scene.owned.bad = [BadBatch(20, 25, "corrupt")]
    with capture_logs() as logs:
        scene.rounds.once()
    assert scene.counted("records_indexed_total") == 3
    assert scene.counted("records_both_times_total") == 2
    assert scene.counted("records_without_time_total") == 1
    assert scene.counted("records_lost_total") == 5
    told = [(each["event"], each["at_most"], each["first_offset"], each["last_offset"]) for each in logs]
    assert told == [("records_lost", 5, 20, 24)]
