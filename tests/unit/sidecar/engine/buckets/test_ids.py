"""The places of an id in buckets: the buckets that a control has read, how often, and the reasons to stop.

The pool does the work when a test says so; pages, segments and the log are in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from index.buckets.bucket import Manifest
from index.errors import ClusterError, ClusterTrouble, FormatError
from index.named.id_pages import IdPage, IdPageRef, cut_rows, rows_in_order
from index.named.names import hash_of
from index.named.places import HASH_BYTES
from index.partition.partition import PartitionIndex
from index.pending.progress import Position, Progress
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.ids import RETRY_AFTER_S, StoredIds
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import LIMITS, Limits
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Scheduled, scheduled_size
from sidecar.metrics import Metrics
from tests.support.hand_clock import HandClock
from tests.support.manifests import manifest

PROGRESS = Progress(cursor=100, watermark=Position(1_000, 0), sealed_to=100)
RECORD = Record(None, b"", (), 0)
UNREADABLE = ClusterError(ClusterTrouble.UNREADABLE, "a bad batch")
UNANSWERED = ClusterError(ClusterTrouble.UNANSWERED, "no answer")


class Pool:
    """Notes the work by kind, and does it when a test says so."""

    def __init__(self) -> None:
        self.kinds: list[str] = []
        self._work: list[tuple[Future[Any], Callable[[Any], Any]]] = []

    def look_up(self, work: Callable[[Any], Any]) -> Future[Any]:
        return self._note("look up", work)

    def scan(self, work: Callable[[Any], Any]) -> Future[Any]:
        return self._note("scan", work)

    def _note(self, kind: str, work: Callable[[Any], Any]) -> Future[Any]:
        self.kinds.append(kind)
        self._work.append((Future(), work))
        return self._work[-1][0]

    def do(self, reader: object, error: Exception | None = None) -> None:
        """Do all work; it fails with ``error`` where one is given."""
        some, self._work = self._work, []
        for future, work in some:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(work(reader))


class Source:
    """The segments of buckets: each has the records of all its offsets."""

    def __init__(self, ids: dict[int, tuple[bytes, int]]) -> None:
        self._ids = ids
        self.segments_read: list[list[int]] = []

    def read(self, _of: Manifest, numbers: Sequence[int], _reader: object) -> list[None]:
        self.segments_read.append([*numbers])
        return [None for _ in numbers]

    def stored(self, of: Manifest, number: int, _segment: object, _reader: object) -> list[tuple[int, int, Record]]:
        first, last = of.segments[number].first.offset, of.segments[number].last.offset
        return [(2_000 + offset, offset, RECORD) for offset in range(first, last + 1)]

    def load(
        self, of: Manifest, number: int, _reader: object, keeps: Callable[[int, int], bool]
    ) -> list[tuple[int, int, Scheduled]]:
        assert not keeps(2_000, 1), "the schedules are enough"
        entries = self.stored(of, number, None, None)
        return [
            (due_ms, offset, Scheduled(self.decide(offset, RECORD), 10, None))
            for due_ms, offset, _ in entries
            if offset in self._ids
        ]

    def names_id(self, offset: int, _record: Record) -> bool:
        return offset in self._ids

    def decide(self, offset: int, _record: Record) -> Schedule:
        deliver_id, shift_ms = self._ids[offset]
        schedule = Schedule(2_000 + offset, ("out",), BY_KEY, KEEP_KEY, deliver_id, both_times=False)
        return schedule._replace(shift_ms=shift_ms)


class Scene:
    """A partition whose buckets hold records with ids; ``ids`` has the id and the shift of each offset."""

    def __init__(self, ids: dict[int, tuple[bytes, int]], limits: Limits) -> None:
        self.ids, self.source = ids, Source(ids)
        self.pool, self.clock, self.metrics = Pool(), HandClock(), Metrics()
        self.ledger: PartitionLedger = PartitionIndex(PROGRESS, scheduled_size)
        self.loading = SimpleNamespace(under_way=False)
        self.gate = SimpleNamespace(aside=SimpleNamespace(stops_intake=False), places_of=lambda _: {})
        self.log_starts_at = 0
        self.is_damaged = False
        self.scan_error: ClusterError | None = None
        self.scanned: list[tuple[int, int]] = []
        context = PartitionContext(DelayTopicConfig(name="d"), 3, "g", self.metrics, self.clock, limits=limits)
        queries = SimpleNamespace(is_counting=False, being_read=())
        parts = (self.source, self, self.pool, self.loading, self.gate, queries)
        self.stored = StoredIds(context, self.ledger, *cast("Any", parts))

    def paged(self, plain: Manifest) -> Manifest:
        """Return a bucket with pages of its ids, a page for each."""
        refs = [IdPageRef(page.joined[:HASH_BYTES], 1, 9, 0) for page in self._pages(plain)]
        return replace(plain, id_pages=tuple(refs))

    def _pages(self, of: Manifest) -> Iterator[Any]:
        places = {hash_of(name): Position(2_000 + at, at) for at, (name, _) in self.ids.items() if at in of.offsets}
        return cut_rows(rows_in_order(places, {at: shift_ms for at, (_, shift_ms) in self.ids.items()}), 1)

    def pages(self, of: Manifest, numbers: Sequence[int], _reader: object) -> Iterator[tuple[int, IdPage]]:
        if self.is_damaged:
            raise FormatError("damaged")
        pages = list(map(IdPage, self._pages(of)))
        return ((number, pages[number]) for number in numbers)

    def forget_others(self, _record_offsets: set[int]) -> None:
        pass

    def log_start(self, _topic: str, _partition: int) -> int:
        return self.log_starts_at

    def scan_left(self, _topic: str, _partition: int, start: int, end: int) -> Iterator[tuple[int, Record]]:
        self.scanned.append((start, end))
        if self.scan_error is not None:
            raise self.scan_error
        return ((at, RECORD) for at in range(max(start, self.log_starts_at), end))

    def are_known(self, deliver_id: bytes, *following: bytes) -> bool:
        return self.stored.are_known(deliver_id, following)

    def found(self, deliver_id: bytes, *following: bytes) -> list[int]:
        """Let all reads end, and return the offsets of the records of an id."""
        for _ in range(4):
            if self.are_known(deliver_id, *following):
                return [place.offset for place in self.ledger.named.names.find(hash_of(deliver_id))]
            assert self.stored.is_reading
            self.pool.do(self)
        raise AssertionError("the control waits for ever")


def scene(
    *buckets: tuple[int, int], ids: dict[int, tuple[bytes, int]], paged: bool = True, limits: Limits = LIMITS
) -> Scene:
    """Return a scene with buckets of these offsets, each with one segment."""
    plain = [
        manifest(number, [(2_000 + start, start), (2_000 + end - 1, end - 1)], offsets=(start, end))
        for number, (start, end) in enumerate(buckets)
    ]
    made = Scene(ids, limits)
    for each in plain:
        made.ledger.parts.add_bucket(made.paged(each) if paged else each, PROGRESS.watermark, None)
    return made


IDS = {10: (b"a", 0), 11: (b"b", 700), 20: (b"a", 500), 25: (b"c", 0)}


def test_a_control_waits_for_the_pages_that_may_have_its_id_and_for_no_other() -> None:
    made = scene((10, 20), (20, 30), ids=IDS)
    assert not made.are_known(b"a")
    assert [*made.stored.being_read] == [0, 1]
    assert made.found(b"a") == [10, 20]
    assert made.pool.kinds == ["look up"] * 2
    assert (made.stored.being_read, made.stored.is_reading) == ((), False)
    assert made.ledger.named.names.find(hash_of(b"a"), 2_020 - 500) == [Position(2_020, 20)]


def test_the_ids_of_the_controls_behind_it_are_looked_up_together() -> None:
    made = scene((10, 20), (20, 30), ids=IDS)
    assert made.found(b"a", b"b", b"c") == [10, 20]
    assert (made.found(b"b"), made.found(b"c")) == ([11], [25])
    assert len(made.pool.kinds) == 2
    assert made.found(b"d") == []
    assert len(made.pool.kinds) == 4


def test_a_bucket_without_ids_or_behind_which_w_lies_is_not_read() -> None:
    made = scene((10, 20), ids={})
    assert made.are_known(b"a")
    made = scene((10, 20), ids=IDS, paged=False)
    made.ledger.parts.buckets[0].manifest = manifest(0, [(900, 10), (1_000, 0)], offsets=(10, 20))
    assert made.are_known(b"a")
    assert made.pool.kinds == []


def test_a_bucket_of_0_1_0_is_read_once_and_its_ids_are_kept_until_it_is_gone() -> None:
    made = scene((10, 20), (20, 30), ids=IDS, paged=False)
    assert made.found(b"a") == [10, 20]
    assert made.pool.kinds == ["scan", "scan", "look up", "look up"]
    assert made.source.segments_read == [[0], [0]]
    assert made.ledger.named.names.find(hash_of(b"a"), 2_020 - 500) == [Position(2_020, 20)]
    assert made.found(b"b") == [11]
    # The two are merged, which changes no place of a record.
    merged = manifest(5, [(2_010, 10), (2_029, 29)], offsets=(10, 30))
    made.ledger.parts.buckets.clear()
    made.ledger.parts.add_bucket(merged, PROGRESS.watermark, None)
    assert made.found(b"c") == [25]
    assert made.pool.kinds[4:] == ["look up"] * 3, "nothing is read again"
    # The ids of a bucket that is gone are let go of, so a bucket at the same offsets is read.
    made.ledger.parts.buckets.clear()
    made.ledger.parts.add_bucket(manifest(6, [(2_030, 30), (2_039, 39)], offsets=(30, 40)), PROGRESS.watermark, None)
    assert made.found(b"d") == []
    made.ledger.parts.buckets.clear()
    made.ledger.parts.add_bucket(merged, PROGRESS.watermark, None)
    assert made.found(b"a") == [10, 20]
    assert made.pool.kinds[7:] == ["scan", "look up"] * 2
    made.ledger.parts.buckets.clear()
    made.ledger.parts.add_bucket(manifest(7, [(2_000, 0), (2_009, 9)], offsets=(0, 10)), PROGRESS.watermark, None)
    assert made.found(b"d") == []
    made.ledger.parts.buckets.clear()
    made.ledger.parts.add_bucket(merged, PROGRESS.watermark, None)
    assert made.found(b"a") == [10, 20]
    assert made.pool.kinds[11:] == ["scan", "look up"] * 2


def test_a_bucket_that_is_known_in_part_is_read() -> None:
    made = scene((10, 20), ids=IDS, paged=False)
    assert made.found(b"a") == [10]
    made.ledger.parts.buckets.clear()
    made.ledger.parts.add_bucket(manifest(5, [(2_010, 10), (2_029, 29)], offsets=(10, 30)), PROGRESS.watermark, None)
    assert made.found(b"c") == [25]
    assert made.found(b"a") == [10, 20], "each place once"


def test_a_damaged_page_is_replaced_by_the_records_of_its_bucket() -> None:
    made = scene((10, 20), ids=IDS)
    made.is_damaged = True
    assert made.found(b"b") == [11]
    assert made.found(b"a") == [10]
    assert made.source.segments_read == [[0]]


def test_brokers_that_do_not_answer_are_asked_again_after_a_pause() -> None:
    made = scene((10, 20), ids=IDS)
    assert not made.are_known(b"a")
    made.pool.do(made, UNANSWERED)
    with capture_logs() as logs:
        assert not made.are_known(b"a")
    assert [(each["event"], each["bucket"], each["error"]) for each in logs] == [("ids_not_read", 0, "no answer")]
    assert made.metrics.registry.get_sample_value("delay_router_load_failures_total", {"topic": "d"}) == 1
    made.clock.go_on(RETRY_AFTER_S - 0.01)
    assert not made.are_known(b"a")
    assert made.stored.is_reading
    assert len(made.pool.kinds) == 1
    made.clock.go_on(0.01)
    assert made.found(b"a") == [10]


def test_a_read_of_a_bucket_that_was_merged_meanwhile_may_fail() -> None:
    made = scene((10, 20), ids=IDS)
    assert not made.are_known(b"a")
    made.ledger.parts.buckets.clear()
    made.pool.do(made, FormatError("its pages are gone"))
    assert made.are_known(b"a")


def test_no_control_is_evaluated_while_no_receipt_may_be_written() -> None:
    made = scene((10, 20), ids={})
    made.gate.aside.stops_intake = True
    assert not made.are_known(b"a")


@pytest.mark.parametrize(
    ("log_starts_at", "segments_read", "is_held_up"), [(10, [], False), (12, [[0]], False), (16, [[0]], True)]
)
def test_a_bucket_that_points_to_the_delay_topic_is_read_there(
    log_starts_at: int, segments_read: list[list[int]], *, is_held_up: bool
) -> None:
    """Segments may have records of a range whose front is gone; records that were loaded are in memory."""
    made = scene((10, 20), ids=IDS, paged=False)
    made.log_starts_at = log_starts_at
    bucket = made.ledger.parts.buckets[0]
    bucket.manifest = replace(bucket.manifest, needs_from=15)
    made.loading.under_way = True
    assert not made.are_known(b"a")
    made.pool.do(made)
    assert not made.are_known(b"a")
    made.pool.do(made)
    assert made.are_known(b"a") is not is_held_up
    made.loading.under_way = False
    assert made.found(b"a") == [10]
    assert (made.scanned, made.source.segments_read) == ([(10, 20)], segments_read)


@pytest.mark.parametrize("is_read", [True, False])
def test_where_the_log_cannot_be_read_the_segments_are_loaded(*, is_read: bool) -> None:
    """Segments hold no unreadable record, and have no pointer to one."""
    made = scene((10, 20), ids=IDS, paged=False)
    bucket = made.ledger.parts.buckets[0]
    bucket.manifest = replace(bucket.manifest, needs_from=15)
    made.scan_error = UNREADABLE if is_read else UNANSWERED
    if is_read:
        assert made.found(b"b") == [11]
        assert made.ledger.named.names.find(hash_of(b"b"), 2_011 - 700) == [Position(2_011, 11)]
        return
    assert not made.are_known(b"b")
    with pytest.raises(ClusterError, match="no answer"):
        made.pool.do(made)


def test_the_ids_of_many_records_are_kept_in_several_pages() -> None:
    made = scene((10, 30), ids=IDS, paged=False, limits=replace(LIMITS, made_page_ids=2))
    assert made.found(b"a") == [10, 20]
    assert (made.found(b"b"), made.found(b"c")) == ([11], [25])


def test_records_that_are_held_for_their_target_are_pending_too() -> None:
    made = scene(ids={})
    made.gate.places_of = lambda _: {Position(900, 4): 30}
    assert made.stored.held(b"a") == {Position(900, 4): 30}
