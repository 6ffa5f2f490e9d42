"""The upkeep of a partition: the moments of its counts and looks, and its report of lost records."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from index.errors import ClusterError, ClusterTrouble
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.retention import Retention
from sidecar.engine.buckets.upkeep import Needs, Upkeep
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import scheduled, scheduled_size
from sidecar.metrics import Metrics
from tests.support.hand_clock import HandClock

SINCE_MS = 1_234


class Scene:
    """A partition at C = 10 and S = 5, whose delay topic gives a prepared answer."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.asked: list[int] = []
        self.answer: int | Exception | None = SINCE_MS
        self.trims = 0
        self.hidden: list[tuple[int, int]] = []
        progress = Progress(cursor=10, watermark=Position(5, 4), sealed_to=5)
        self.ledger: PartitionLedger = PartitionIndex(progress, scheduled_size, runs=packed_runs())
        self.ledger.advance(10)
        trimming = SimpleNamespace(turn=self._trim, wants_commit=False, key_copy=SimpleNamespace(request=lambda: None))
        hidden = SimpleNamespace(turn=lambda _, indexed_to, lag: self.hidden.append((indexed_to, lag)))
        gate = SimpleNamespace(waiting=list)
        context = PartitionContext(DelayTopicConfig(name="d"), 3, "g", Metrics(), self.clock)
        parts = (trimming, self, Retention(None), gate, hidden)
        self.upkeep = Upkeep(context, self.ledger, *cast("Any", parts))

    def _trim(self, *_: object) -> None:
        self.trims += 1

    def look(self, work: Callable[[Any], int | None]) -> Future[int | None]:
        future: Future[int | None] = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(work(self))
        return future

    def first_timestamp_ms(self, topic: str, partition: int, offset: int) -> int | None:
        assert (topic, partition) == ("d", 3)
        self.asked.append(offset)
        assert not isinstance(self.answer, Exception)
        return self.answer

    def turn(self, lag: int = 0) -> None:
        """Take a turn, and another one that reads the answer."""
        self.upkeep.turn(lag=lag, being_read=())
        self.upkeep.turn(lag=lag, being_read=())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_looks_once_the_end_is_reached_and_then_once_a_minute(scene: Scene) -> None:
    scene.turn(lag=4)
    assert scene.asked == []
    scene.turn()
    assert scene.asked == [5]
    scene.clock.go_on(LIMITS.look_every_s - 0.1)
    scene.turn()
    assert scene.asked == [5]
    scene.clock.go_on(0.1)
    scene.turn(lag=4)
    assert scene.asked == [5, 5]
    assert scene.hidden[-1] == (10, 4)
    assert scene.trims == 8


def test_a_partition_that_never_reaches_the_end_looks_after_a_minute(scene: Scene) -> None:
    scene.clock.go_on(LIMITS.look_every_s - 0.1)
    scene.turn(lag=4)
    assert scene.asked == []
    scene.clock.go_on(0.1)
    scene.turn(lag=4)
    assert scene.asked == [5]


def test_the_first_needed_record_is_known_by_its_offset_and_its_timestamp(scene: Scene) -> None:
    assert scene.upkeep.needs() == Needs(5, None)
    scene.turn()
    assert scene.upkeep.needs() == Needs(5, SINCE_MS)


def test_a_timestamp_stays_a_fair_answer_while_a_record_behind_it_is_needed(scene: Scene) -> None:
    scene.turn()
    schedule = Schedule(9_000, ("out",), BY_KEY, KEEP_KEY, None, both_times=False)
    scene.ledger.add([(9_000, 10, scheduled(schedule, 10, None))])
    scene.ledger.plan(0, 10, 1_000)
    scene.ledger.confirm()
    assert scene.upkeep.needs() == Needs(10, SINCE_MS)
    scene.ledger.plan(9_000, 10, 1_000)
    scene.ledger.confirm()
    assert scene.upkeep.needs() == Needs(11, None), "nothing that was indexed is needed any more"


def test_nothing_is_asked_where_nothing_is_needed(scene: Scene) -> None:
    scene.ledger.plan(0, 10, 1_000)
    scene.ledger.confirm()
    scene.turn()
    assert scene.asked == []
    assert scene.upkeep.needs() == Needs(10, None)


def test_records_that_are_gone_are_told_once(scene: Scene) -> None:
    scene.answer = None
    with capture_logs() as logs:
        for _ in range(2):
            scene.turn()
            scene.clock.go_on(LIMITS.look_every_s)
        assert [(each["event"], each["needed_from"]) for each in logs] == [("needed_records_gone", 5)]
        scene.answer = SINCE_MS
        scene.turn()
        scene.answer = None
        scene.clock.go_on(LIMITS.look_every_s)
        scene.turn()
    assert len(logs) == 2, "they were there meanwhile"


def test_a_log_that_ends_at_the_cursor_lacks_no_record(scene: Scene) -> None:
    scene.ledger.plan(0, 10, 1_000)
    scene.ledger.confirm()
    scene.answer = None
    scene.clock.go_on(LIMITS.look_every_s)
    with capture_logs() as logs:
        scene.turn(lag=1)
    assert scene.asked == [10]
    assert logs == []


def test_brokers_that_do_not_answer_are_asked_again(scene: Scene) -> None:
    scene.answer = unanswered = ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    scene.turn()
    assert scene.upkeep.needs() == Needs(5, None)
    assert unanswered.__traceback__ is None, "the error keeps no frame, and so no index"
    scene.answer = SINCE_MS
    scene.clock.go_on(LIMITS.look_every_s)
    scene.turn()
    assert scene.upkeep.needs() == Needs(5, SINCE_MS)


def test_pending_records_are_counted_now_and_then(scene: Scene) -> None:
    schedule = Schedule(9_000, ("out",), BY_KEY, KEEP_KEY, None, both_times=False)
    scene.turn()
    scene.ledger.add([(scene.clock.now_ms() + 500, 10, scheduled(schedule, 10, None))])
    scene.clock.go_on(LIMITS.count_every_s - 0.1)
    scene.turn()
    assert sum(scene.upkeep.survey.by_due) == 0
    scene.clock.go_on(0.1)
    scene.turn()
    assert sum(scene.upkeep.survey.by_due) == 1
    assert scene.upkeep.survey.by_target == (("out", 1),)
