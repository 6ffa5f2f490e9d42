"""The moments at which a bucket is sealed or merged, and the steps after a failure; the pool works at once."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from structlog.testing import capture_logs

from index.buckets.bucket import Bucket
from index.buckets.bucket_rules import SealRules
from index.partition.batch import Installation
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress, start_of
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from sidecar.engine.buckets.lifecycle import Housekeeping
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import scheduled, scheduled_size
from sidecar.engine.release.transaction import Request
from sidecar.metrics import Metrics
from sidecar.process.host.pool import QueuedHandover
from snapshots.segments.codec import PYTHON_CODEC
from snapshots.segments.manifest import manifest_key, segment_key
from tests.support.hand_clock import HandClock
from tests.support.manifests import manifest

T = TypeVar("T")
NOW_MS = 1_000_000
SOON_MS = 10_000
RULES = SealRules(max_entries=3, max_span=100, max_age_ms=60_000, placement="pointer", soon_ms=SOON_MS)
NEW = start_of(0)
PASSED = Position(5, 100)
BEHIND = Progress(cursor=3, watermark=PASSED, sealed_to=3, next_bucket=3)


class Turns:
    """Turns that have come, unless a test says otherwise."""

    def __init__(self) -> None:
        self.come = True
        self.waits = False

    def has_come(self, _who: object, _now_s: float) -> bool:
        self.waits = True
        return self.come

    def leave(self, _who: object) -> None:
        self.waits = False


class Pool:
    """Encodes at once; a merge fails as soon as it begins, unless a test says otherwise."""

    def __init__(self) -> None:
        self.merge_fails = True
        self.seals, self.merges = Turns(), Turns()

    def encode(self, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        future.set_result(work())
        return future

    def merge(self, _work: object) -> Future[None]:
        future: Future[None] = Future()
        if self.merge_fails:
            future.set_exception(OSError("disk"))
        return future

    def handover(self, most: int) -> QueuedHandover[Any]:
        return QueuedHandover(most)


class Scene:
    """A partition without pending records."""

    def __init__(self, progress: Progress = NEW) -> None:
        self.clock, self.metrics, self.pool = HandClock(NOW_MS), Metrics(), Pool()
        self.ledger: PartitionLedger = PartitionIndex(progress, scheduled_size, runs=packed_runs())
        topic: Any = SimpleNamespace(name="d", seal_rules=RULES, max_buckets=2)
        context = PartitionContext(topic, 3, "g", self.metrics, self.clock)
        ids = SimpleNamespace(being_read=())
        parts = (None, self.pool, ids, None, PYTHON_CODEC)
        self.house = Housekeeping(context, self.ledger, *cast("Any", parts))

    def add(self, *dues_in_ms: int) -> None:
        """Index records that are due in so many milliseconds, and commit them."""
        for due_in_ms in dues_in_ms:
            due_ms, offset = self.clock.now_ms() + due_in_ms, self.ledger.indexed_to
            schedule = Schedule(due_ms, ("out",), BY_KEY, KEEP_KEY, None, both_times=False)
            self.ledger.add([(due_ms, offset, scheduled(schedule, 10, Record(None, b"", (), 0)))])
        self.commit()

    def commit(self, request: Request | None = None, offsets: tuple[int, ...] = ()) -> None:
        """Commit a transaction, with a request where one is given."""
        self.ledger.plan(0, 100, 1_000, None if request is None else request.installs)
        self.ledger.confirm()
        if request is not None:
            self.house.committed(request, offsets)

    def request(self, *, memory_full: bool = False) -> Request | None:
        return self.house.request(self.clock.now_ms(), memory_full=memory_full)

    def counted(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"delay_router_{name}", {"topic": "d"})

    def add_buckets(self, count: int) -> None:
        for number in range(count):
            self.ledger.parts.add_bucket(manifest(number, [(NOW_MS * 2, number)]), PASSED, None)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_bucket_is_sealed_segment_by_segment_and_then_its_manifest_is_written(scene: Scene) -> None:
    scene.add(20_000, 30_000)
    assert scene.request() is None
    scene.add(40_000)
    first = scene.request()
    assert first is not None
    assert [key for key, _ in first.segments] == [segment_key(0, 0)]
    assert scene.house.is_busy
    scene.house.left_out(first)
    assert scene.request() == first, "it had no room"
    scene.clock.go_on(2)
    scene.commit(first, (70,))
    installs = scene.request()
    assert installs is not None
    assert isinstance(installs.installs, Installation)
    assert installs.installs.keep_to == Position(scene.clock.now_ms() + LIMITS.load_lead_ms, 0)
    scene.commit(installs)
    assert scene.ledger.parts.buckets[0].manifest.segments[0].record_offset == 70
    assert (scene.house.is_busy, scene.house.free_id(), scene.pool.seals.waits) == (False, 1, False)
    assert scene.counted("seal_seconds_sum") == pytest.approx(2)
    assert scene.ledger.committed.sealed_to == 3


def test_a_partition_seals_when_its_turn_has_come(scene: Scene) -> None:
    scene.pool.seals.come = False
    scene.add(20_000, 30_000, 40_000)
    assert scene.request() is None
    assert scene.pool.seals.waits
    scene.pool.seals.come = True
    assert scene.request() is not None


def test_records_that_are_due_soon_are_no_reason_to_seal(scene: Scene) -> None:
    scene.add(SOON_MS, SOON_MS, 20_000, 20_000)
    assert scene.request() is None
    assert not scene.house.is_behind
    assert not scene.pool.seals.waits
    assert scene.request(memory_full=True) is not None, "but memory that is used up is"


def test_a_full_memory_seals_what_is_there(scene: Scene) -> None:
    assert scene.request(memory_full=True) is None
    scene.add(1)
    assert scene.request(memory_full=True) is not None


def test_the_age_of_a_bucket_counts_from_its_first_record_that_is_not_due_soon(scene: Scene) -> None:
    scene.request()
    scene.clock.go_on(500)
    scene.request()
    scene.add(500_000)
    scene.clock.go_on(RULES.max_age_ms / 1_000 - 0.1)
    assert scene.request() is None
    scene.clock.go_on(0.1)
    assert scene.request() is not None


def test_a_bucket_is_sealed_when_a_restart_would_read_too_much_again(scene: Scene) -> None:
    scene.add(20_000)
    scene.ledger.advance(RULES.max_span - 1)
    scene.commit()
    assert scene.request() is None
    scene.ledger.advance(RULES.max_span)
    scene.commit()
    assert scene.request() is not None


def test_intake_is_behind_with_twice_as_many_records_as_a_bucket_has(scene: Scene) -> None:
    is_behind = []
    for records in (2 * RULES.max_entries - 1, 1):
        scene.add(*[20_000] * records)
        is_behind.append(scene.house.is_behind)
    assert is_behind == [False, True]
    assert scene.request() is not None
    for records in (0, RULES.max_entries - 1, 1):
        scene.add(*[20_000] * records)
        is_behind.append(scene.house.is_behind)
    assert is_behind[2:] == [False, False, True], "while one is being sealed, one more is enough"


def test_a_bucket_to_seal_waits_for_a_commit_of_all_that_is_indexed(scene: Scene) -> None:
    scene.add(20_000, 20_000, 20_000)
    assert not scene.house.wants_commit(memory_full=False)
    scene.ledger.advance(9)
    assert scene.house.wants_commit(memory_full=False)
    assert scene.request() is None
    scene.ledger.reject(9, cast("Any", None))
    assert not scene.house.wants_commit(memory_full=False), "what is owed causes one anyway"
    scene.commit()
    assert scene.request() is not None
    assert not scene.house.wants_commit(memory_full=True)


def test_a_seal_that_is_refused_is_tried_again_after_a_pause(scene: Scene) -> None:
    scene.add(200_000, 300_000, 400_000)
    request = scene.request()
    assert request is not None
    with capture_logs() as logs:
        scene.house.refused(request, "too large")
    assert [(each["event"], each["why"]) for each in logs] == [("seal_failed", "too large")]
    assert scene.counted("seal_failures_total") == 1
    assert not scene.house.is_busy
    scene.clock.go_on(LIMITS.bucket_again_s - 0.1)
    assert scene.request(memory_full=True) is None
    scene.clock.go_on(0.1)
    again = scene.request()
    assert again is not None
    assert [key for key, _ in again.segments] == [segment_key(0, 0)]


def test_a_bucket_that_has_left_meanwhile_needs_no_manifest(scene: Scene) -> None:
    scene.add(20_000, 20_000, 20_000)
    assert scene.ledger.may_freeze
    scene.house.begin(memory_full=False)
    scene.ledger.plan(NOW_MS + 20_000, 100, 1_000)
    scene.ledger.confirm()
    assert scene.request() is None
    assert (scene.house.is_busy, scene.ledger.parts.frozen, scene.pool.seals.waits) == (False, None, False)


def test_a_merge_that_fails_holds_up_no_seal_and_is_tried_again_after_a_pause() -> None:
    scene = Scene(BEHIND)
    scene.add_buckets(3)
    with capture_logs() as logs:
        assert scene.request() is None
    assert [(each["event"], each["why"]) for each in logs] == [("merge_failed", "OSError('disk')")]
    assert (scene.counted("seal_failures_total"), scene.house.is_busy) == (1, False)
    scene.clock.go_on(LIMITS.bucket_again_s - 0.1)
    assert scene.request() is None
    assert scene.counted("seal_failures_total") == 1
    scene.clock.go_on(0.1)
    assert scene.request() is None
    assert scene.counted("seal_failures_total") == 2
    scene.add(20_000, 20_000, 20_000)
    assert scene.request() is not None, "it seals all the same"


@pytest.mark.parametrize("buckets", [2, 3])
def test_buckets_are_merged_once_there_are_more_than_there_may_be(buckets: int) -> None:
    scene = Scene(BEHIND)
    scene.add_buckets(buckets)
    scene.house.begin(memory_full=False)
    assert scene.house.is_busy is (buckets == 3)
    assert scene.house.being_read == ((0, 1, 2) if buckets == 3 else ())
    assert scene.pool.merges.waits is (buckets == 3)
    assert scene.house.free_id() == (4 if buckets == 3 else 3), "the merged one has the next"
    scene.house.stop()
    assert (scene.house.is_busy, scene.pool.merges.waits) == (False, False)


class Merged:
    """A merge of three buckets that has made one segment, and then a manifest, if anything is left."""

    def __init__(self, sources: Sequence[Bucket], bucket_id: int, *, leaves_any: bool) -> None:
        self.sources = tuple(source.manifest.bucket_id for source in sources)
        self.source_keys = [segment_key(each, 0) for each in self.sources]
        self.bucket_id = bucket_id
        self._leaves_any = leaves_any
        self._is_written = not leaves_any

    def next_segments(self) -> tuple[tuple[bytes, bytes], ...] | None:
        return None if self._is_written else ((b"segment", b"value"),)

    def written(self, _offsets: Sequence[int]) -> None:
        self._is_written = True

    def installation(self) -> Installation | None:
        made = manifest(self.bucket_id, [(NOW_MS * 2, 0), (NOW_MS * 2, 2)])
        return Installation(made, merged_from=self.sources) if self._leaves_any else None

    def stop(self) -> None:
        pass


def begun(monkeypatch: pytest.MonkeyPatch, *, leaves_any: bool) -> Scene:
    """Return a partition in which three buckets are being merged."""
    monkeypatch.setattr(
        "sidecar.engine.buckets.lifecycle.Merging",
        lambda sources, _watermark, bucket_id, *_: Merged(sources, bucket_id, leaves_any=leaves_any),
    )
    scene = Scene(BEHIND)
    scene.pool.merge_fails = False
    scene.add_buckets(3)
    scene.house.begin(memory_full=False)
    return scene


def test_a_merge_writes_its_segments_and_then_its_manifest_in_place_of_its_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = begun(monkeypatch, leaves_any=True)
    segments = scene.request()
    assert segments is not None
    assert [key for key, _ in segments.segments] == [b"segment"]
    scene.clock.go_on(3)
    scene.commit(segments, (70,))
    installs = scene.request()
    assert installs is not None
    assert installs.removed == tuple(map(manifest_key, range(3)))
    scene.commit(installs)
    assert [*scene.ledger.parts.buckets] == [3]
    assert (scene.counted("merge_seconds_sum"), scene.counted("entries_merged_total")) == (3, 2)
    assert (scene.house.is_busy, scene.pool.merges.waits, scene.house.free_id()) == (False, False, 4)
    removal = scene.request()
    assert removal is not None
    assert removal.reclaimed == tuple(segment_key(each, 0) for each in range(3))
    scene.commit(removal)
    assert scene.request() is None


def test_a_merge_of_buckets_that_have_left_meanwhile_installs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun(monkeypatch, leaves_any=False)
    assert scene.request() is None
    assert (scene.house.is_busy, scene.pool.merges.waits) == (False, False)
    assert [*scene.ledger.parts.buckets] == [0, 1, 2]


def test_a_bucket_is_sealed_before_a_merge_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = begun(monkeypatch, leaves_any=True)
    scene.add(20_000, 20_000, 20_000)
    request = scene.request()
    assert request is not None
    assert [key for key, _ in request.segments] == [segment_key(4, 0)]
    with capture_logs() as logs:
        scene.house.refused(request, "too large")
    assert [each["event"] for each in logs] == ["seal_failed"]
    merging = scene.request()
    assert merging is not None
    assert [key for key, _ in merging.segments] == [b"segment"]


def test_a_bucket_that_has_left_is_removed_before_others_are_merged() -> None:
    scene = Scene(BEHIND)
    scene.add_buckets(3)
    scene.ledger.parts.add_bucket(manifest(7, [(PASSED.due_ms, 2)]), PASSED, None)
    scene.house.begin(memory_full=False)
    assert scene.house.being_read == ()
    request = scene.request()
    assert request is not None
    assert (request.reclaimed, request.removed) == ((segment_key(7, 0),), (manifest_key(7),))
    scene.commit(request)
    assert [*scene.ledger.parts.buckets] == [0, 1, 2]
    scene.house.begin(memory_full=False)
    assert [*scene.house.being_read] == [0, 1, 2]
