"""The memory of loads: counted while they read, and given back however they end."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest

from index.errors import ClusterError, ClusterTrouble, RefusedError
from index.partition.pending_set import PendingSet
from index.pending.progress import BEFORE_ALL, Position
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from sidecar.engine.buckets.loading import Loading
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.memory import BudgetShare
from sidecar.engine.payload.records import Payload, scheduled, size_of
from sidecar.process.host.budget import PayloadBudget
from tests.support.hand_clock import HandClock
from tests.support.manifests import manifest

DUE_MS = 5_000
RECORD = Record(b"k", b"v" * 1_000, [], 0)
SIZE = size_of(RECORD)


class Pool:
    """Does the work it was given when a test calls it."""

    def __init__(self) -> None:
        self.asked: list[tuple[Future[Any], Callable[[Any], Any]]] = []

    def load(self, work: Callable[[Any], Any]) -> Future[Any]:
        self.asked.append((Future(), work))
        return self.asked[-1][0]

    def do(self, error: Exception | None = None) -> None:
        """Do the first work; fail with ``error`` after it has read."""
        future, work = self.asked.pop(0)
        result = work(None)
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


class Source:
    """Two records, each of which is kept if there is room."""

    def load_run(self, _manifest: Any, _numbers: Any, _reader: Any, keeps: Callable[[int, int], bool]) -> Any:
        schedule = Schedule(DUE_MS, ("out",), BY_KEY, KEEP_KEY, None, both_times=False)
        kept = [RECORD if keeps(DUE_MS, SIZE) else None for _ in range(2)]
        return [[(DUE_MS, offset, scheduled(schedule, SIZE, record)) for offset, record in enumerate(kept)]]


class Scene:
    """A bucket of one segment, which is due."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.budget = PayloadBudget(1_000_000)
        self.share = BudgetShare(self.budget)
        self.pool = Pool()
        self.parts: PendingSet[Payload] = PendingSet(2)
        self.parts.add_bucket(manifest(1, [(DUE_MS, 0), (DUE_MS, 1)]), BEFORE_ALL, None)
        failures = SimpleNamespace(labels=lambda *_: SimpleNamespace(inc=lambda: None))
        context = SimpleNamespace(
            metrics=SimpleNamespace(load_failures=failures),
            name="d",
            partition=0,
            clock=self.clock,
            limits=LIMITS,
            log=SimpleNamespace(warning=lambda *_, **__: None),
        )
        self.loading = Loading(
            cast("PartitionContext", context),
            self.parts,
            cast("Any", Source()),
            cast("Any", self.pool),
            self.budget,
            self.share,
        )

    def turn(self, watermark: Position = BEFORE_ALL, now_ms: int = DUE_MS) -> None:
        self.loading.turn(now_ms, watermark)


def test_it_is_counted_from_the_moment_it_is_read() -> None:
    scene = Scene()
    scene.turn()
    scene.pool.do()
    assert (scene.budget.used_bytes, scene.share.used_bytes) == (2 * SIZE, 0)
    scene.turn()
    assert (scene.budget.used_bytes, scene.share.used_bytes) == (2 * SIZE, 2 * SIZE)
    assert scene.budget.given_back_bytes == 0


def test_what_has_left_meanwhile_is_given_back() -> None:
    scene = Scene()
    scene.turn()
    scene.pool.do()
    scene.turn(Position(DUE_MS, 0))
    assert scene.budget.used_bytes == scene.share.used_bytes == SIZE


@pytest.mark.parametrize("is_done", [True, False])
def test_a_partition_that_is_given_up_gives_back_what_has_not_arrived(*, is_done: bool) -> None:
    scene = Scene()
    scene.turn()
    if is_done:
        scene.pool.do()
    scene.loading.close()
    if not is_done:
        scene.pool.do()
    assert scene.budget.used_bytes == 0


def test_a_load_that_fails_gives_back_what_it_had_read() -> None:
    scene = Scene()
    scene.turn()
    unanswered = ClusterError(ClusterTrouble.UNANSWERED, "no answer")
    scene.pool.do(unanswered)
    assert scene.budget.used_bytes == 2 * SIZE
    scene.turn()
    assert scene.budget.used_bytes == 0
    assert unanswered.__traceback__ is None, "the error keeps no frame, and so no index"
    scene.clock.sleep(LIMITS.load_again_s)
    scene.turn()
    scene.pool.do()
    scene.turn()
    assert scene.budget.used_bytes == scene.share.used_bytes == 2 * SIZE


def test_a_damaged_batch_stops_the_partition_when_its_records_are_due() -> None:
    scene = Scene()
    damaged = ClusterError(ClusterTrouble.UNREADABLE, "failed CRC32C check")
    scene.turn(now_ms=DUE_MS - 1)
    scene.pool.do(damaged)
    scene.turn(now_ms=DUE_MS - 1)
    scene.clock.sleep(LIMITS.load_again_s)
    scene.turn()
    scene.pool.do(damaged)
    with pytest.raises(RefusedError, match=r"d/0 has a batch that cannot be read \(failed CRC32C check\)"):
        scene.turn()
    assert scene.budget.used_bytes == 0
