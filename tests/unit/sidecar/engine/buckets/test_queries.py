"""Counts of the schedules that a query cancels: while they are made, when they fail, and of records that are read."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from index.errors import ClusterError, ClusterTrouble, RefusedError
from index.named.queries import Queries, Query
from index.named.receipts import Matched
from index.partition.partition import PartitionIndex
from index.pending.pending import Entry
from index.pending.progress import BEFORE_ALL, Progress
from index.protocol.record import Record
from index.protocol.schedule import BY_KEY, KEEP_KEY, Schedule
from index.protocol.where import CancelWhere, WantedHeader
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.buckets.queries import LARGE_BYTES, QueryEffect, StoredQueries
from sidecar.engine.context import PartitionContext
from sidecar.engine.limits import Limits
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Payload, scheduled, scheduled_size
from sidecar.metrics import Metrics
from tests.support.hand_clock import HandClock
from tests.support.manifests import manifest

BY_HEADER = CancelWhere(header=WantedHeader("customer", b"7"))
UNANSWERED = ClusterError(ClusterTrouble.UNANSWERED, "no answer")


def entry(offset: int, headers: Sequence[tuple[str, bytes]] | None, due_ms: int = 5_000) -> Entry[Payload]:
    """Return a schedule; without headers its record has to be read."""
    schedule = Schedule(due_ms, ("out",), BY_KEY, KEEP_KEY, None, both_times=False)
    return due_ms, offset, scheduled(schedule, 100, None if headers is None else Record(None, b"v", headers, 0))


class Scene:
    """A partition with the schedules 0 to 3 in memory; the header of 2 and 3 is only in the delay topic."""

    def __init__(self, **limits: int) -> None:
        self.ledger: PartitionLedger = PartitionIndex(Progress(0, BEFORE_ALL, 0), scheduled_size)
        self.ledger.add(
            [entry(0, [("customer", b"7")]), entry(1, [("customer", b"8")]), entry(2, None), entry(3, None)]
        )
        self.works: list[Callable[[Any], Any]] = []
        self.futures: list[Future[Any]] = []
        self.stops_intake = False
        self.kept: list[bool] = []
        self.log = {2: Record(None, b"v", [("customer", b"7")], 0)}
        gate = SimpleNamespace(aside=self, waiting=list)
        clock = HandClock()
        context = PartitionContext(
            DelayTopicConfig(name="d"), 3, "g", Metrics(), clock, limits=Limits(**cast("Any", limits))
        )
        self.queries = StoredQueries(context, self.ledger, *cast("Any", (self, self, gate, lambda _: {})))

    def scan(self, work: Callable[[Any], Any]) -> Future[Any]:
        self.works.append(work)
        self.futures.append(Future())
        return self.futures[-1]

    def decide(self, offset: int, _record: Record) -> Schedule:
        raise AssertionError(f"{offset} is not packed")

    def load(self, _manifest: Any, _number: int, _reader: Any, keeps: Callable[[int, int], bool]) -> list[Any]:
        self.kept = [keeps(5_000, LARGE_BYTES), keeps(5_000, LARGE_BYTES + 1)]
        return [entry(2, None), entry(3, [("customer", b"7")])]

    def records(self, offsets: Sequence[int], _reader: object) -> Iterator[tuple[int, Record | None]]:
        yield from ((offset, self.log.get(offset)) for offset in offsets)

    def answer(self, where: CancelWhere = BY_HEADER) -> QueryEffect | None:
        return self.queries.answer(4, where)

    def ends(self) -> None:
        """Let the last count end."""
        self.futures[-1].set_result(self.works[-1](None))


def test_a_count_reads_the_headers_that_it_needs_and_holds_up_what_it_reads() -> None:
    scene = Scene()
    assert scene.answer() is None
    assert scene.answer() is None
    assert (len(scene.works), scene.queries.is_counting, scene.queries.being_read) == (1, True, ())
    scene.ends()
    assert not scene.queries.is_counting
    assert scene.answer() == QueryEffect([], Matched(2), 2)
    assert scene.queries.being_read == ()


def test_a_record_is_read_where_only_its_header_tells_of_an_earlier_query() -> None:
    scene = Scene()
    scene.ledger.named.queries = Queries([Query(3, BY_HEADER, 2)])
    assert scene.answer(CancelWhere("out")) is None
    scene.ends()
    assert scene.answer(CancelWhere("out")) == QueryEffect([], Matched(2), 2)


def test_a_record_that_left_meanwhile_is_not_counted() -> None:
    scene = Scene()
    assert scene.answer(CancelWhere("out")) is None
    scene.ends()
    scene.ledger.plan(9_000, 2, 10_000)
    scene.ledger.confirm()
    assert scene.answer(CancelWhere("out")) == QueryEffect([], Matched(2), 2)


@pytest.mark.parametrize("error", [UNANSWERED, RefusedError("a segment is lost")])
def test_a_count_that_fails_three_times_is_given_up(error: Exception) -> None:
    scene = Scene()
    with capture_logs() as logs:
        for _ in range(3):
            assert scene.answer() is None
            scene.futures[-1].set_exception(error)
        assert scene.answer() == QueryEffect([], Matched(), 0)
    assert [(each["event"], each["tries"]) for each in logs] == [("query_not_counted", number) for number in (1, 2, 3)]


def test_other_errors_are_defects() -> None:
    scene = Scene()
    assert scene.answer() is None
    scene.futures[-1].set_exception(KeyError("no"))
    with pytest.raises(KeyError):
        scene.answer()


def test_nothing_is_counted_while_no_receipt_may_be_written() -> None:
    scene = Scene()
    scene.stops_intake = True
    assert scene.answer() is None
    assert scene.works == []


def test_a_sample_is_decided_where_there_are_more_than_may_be_counted() -> None:
    scene = Scene(count_budget=2)
    assert scene.answer(CancelWhere("out")) is None
    scene.ends()
    assert scene.answer(CancelWhere("out")) == QueryEffect([], Matched(None, 4), 4)


def test_segments_are_decided_and_large_records_of_them_are_read_one_by_one() -> None:
    scene = Scene()
    scene.ledger.parts.add_bucket(manifest(0, [(5_000, 2), (5_000, 3)]), BEFORE_ALL, None)
    assert scene.answer() is None
    assert scene.queries.being_read == (0,)
    scene.ends()
    answer = scene.answer()
    assert answer is not None
    assert answer.matched == Matched(3)
    assert scene.kept == [True, False]
