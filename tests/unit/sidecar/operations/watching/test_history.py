"""The last hour, against reports whose numbers are known."""

import pytest

from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.lateness import released_within
from sidecar.operations.status.reports import RouterReport
from sidecar.operations.watching.history import MINUTE_MS, MINUTES, History, HistoryAnswer, MinuteAnswer

START_MS = 1_800_000_000_000 // MINUTE_MS * MINUTE_MS


class Group:
    """Routers that report into a history, at times and offsets that only grow."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.offset = 0
        self.history = History(lambda: self.now_ms)

    def at(self, minute: int, second: int = 0) -> None:
        self.now_ms = START_MS + minute * MINUTE_MS + second * 1_000

    def report(self, instance: str, *statuses: PartitionStatus) -> None:
        self.offset += 1
        self.history.add(RouterReport(instance, "native", [*statuses]), self.now_ms, self.offset)

    def minutes(self, topic: str = "") -> tuple[MinuteAnswer, ...]:
        """Return the minutes that are over; any report ends one."""
        self.report("standing by")
        return self.history.answer(topic).minutes

    def released(self, topic: str = "") -> list[int]:
        return [each.released for each in self.minutes(topic)]


def status(
    released: int, partition: int = 0, topic: str = "d", late_ms: int = 5, state: PartitionState = PartitionState.ACTIVE
) -> PartitionStatus:
    late = tuple(released_within([0] * released, late_ms))
    return PartitionStatus(topic, partition, state, pending=10 + partition, released=released, lateness_ever=late)


@pytest.fixture
def group() -> Group:
    return Group()


def test_the_difference_of_two_reports_is_what_a_minute_released(group: Group) -> None:
    group.at(0, 30)
    group.report("a", status(1_000), status(7, topic="e"))
    for minute, released in ((1, 1_010), (1, 1_020), (2, 1_020), (3, 1_050)):
        group.at(minute, 45)
        group.report("a", status(released), status(7, topic="e"))
    group.at(4)
    assert group.released("d") == [20, 0, 30]
    assert group.released("e") == [0, 0, 0]
    assert group.released() == [20, 0, 30]
    assert [each.at_ms for each in group.minutes()] == [START_MS + n * MINUTE_MS for n in (1, 2, 3)]
    assert {each.pending for each in group.minutes()} == {20}
    assert group.history.answer("nothing") == HistoryAnswer(topic="nothing", minutes=())


def test_lateness_is_that_of_the_minute_alone(group: Group) -> None:
    group.report("a", status(100, late_ms=10_000_000))
    group.at(1)
    both = released_within([0] * 100, 10**7), released_within([0] * 50, 8)
    late = tuple(one + other for one, other in zip(*both, strict=True))
    group.report("a", PartitionStatus("d", 0, PartitionState.ACTIVE, released=150, lateness_ever=late))
    group.at(2)
    (minute,) = group.minutes("d")
    assert minute.lateness_p99_ms is not None
    assert 5 < minute.lateness_p99_ms <= 8
    assert minute.lateness_p50_ms is not None
    group.at(3)
    assert group.minutes("d")[-1].lateness_p99_ms is None


def test_a_take_over_neither_loses_nor_repeats_what_was_released(group: Group) -> None:
    group.report("a", status(500))
    group.report("b", status(900, partition=1))
    group.at(1)
    group.report("a", status(510))
    group.report("a", status(512, state=PartitionState.STOPPED))
    # The other router was known, so it has counted from the take-over on.
    group.report("b", status(900, partition=1), status(40))
    group.at(1, 30)
    group.report("b", status(900, partition=1), status(41))
    # It loses the partition, and takes it over again.
    group.report("b", status(900, partition=1))
    group.report("b", status(900, partition=1), status(3))
    group.at(2)
    assert group.released("d") == [12 + 41 + 3]


def test_a_router_that_is_new_here_begins_with_what_it_tells(group: Group) -> None:
    group.report("a", status(0))
    group.at(1)
    group.report("old, and first seen now", status(7_000_000, partition=1))
    group.report("new")
    group.report("new", status(5, partition=2))
    group.at(2)
    assert group.released() == [5]


def test_reports_that_are_read_again_count_once(group: Group) -> None:
    reports = [(RouterReport("a", "native", [status(n)]), START_MS + n * 20_000, n) for n in range(12)]
    group.at(5)
    for each in (*reports, *reports[3:], *reports):
        group.history.add(*each)
    assert group.released() == [3, 3, 3]
    # The status topic was created again: its offsets begin anew, but time goes on.
    group.history.add(RouterReport("a", "native", [status(20)]), group.now_ms + 1, 0)
    group.at(6)
    assert group.released()[-1] == 9


def test_a_router_whose_clock_is_ahead_stops_no_minute(group: Group) -> None:
    ahead_ms = 24 * MINUTES * MINUTE_MS
    for minute in range(4):
        group.at(minute, 50)
        group.report("a", status(minute))
        group.offset += 1
        report = RouterReport("ahead", "native", [status(10 * minute, partition=1)])
        group.history.add(report, group.now_ms + ahead_ms, group.offset)
    group.at(4)
    minutes = group.minutes("d")
    assert [each.at_ms for each in minutes] == [START_MS + n * MINUTE_MS for n in (1, 2, 3)]
    assert [(each.released, each.pending) for each in minutes] == [(11, 21)] * 3


def test_pending_is_of_partitions_that_somebody_serves(group: Group) -> None:
    group.report("a", status(0), status(0, partition=1), status(0, partition=2, state=PartitionState.RESTORING))
    group.at(1, 50)
    group.report("a", status(0), status(0, partition=1))
    # Partition 1 is not reported any more.
    for second in range(0, 60, 10):
        group.at(2, second)
        group.report("a", status(0))
    group.at(3)
    assert [each.pending for each in group.minutes("d")] == [21, 10]


def test_an_hour_is_kept_and_no_more(group: Group) -> None:
    for minute in range(3 * MINUTES):
        group.at(minute)
        group.report("a", status(minute))
        group.report(f"short-lived {minute}", status(0, partition=1))
    group.at(3 * MINUTES)
    assert group.released() == [1] * MINUTES
    kept = group.history
    assert len(kept._known_routers) <= MINUTES + 3
    assert len(kept._counted) <= MINUTES + 3
    # Nobody has reported for a long time.
    group.at(5 * MINUTES)
    assert group.history.answer().minutes == ()


def test_a_router_of_an_older_version_tells_nothing_of_what_it_released(group: Group) -> None:
    for minute in range(3):
        group.at(minute, 45)
        group.report("old", PartitionStatus("d", 0, PartitionState.ACTIVE, pending=4))
    group.at(3)
    assert [(each.released, each.pending) for each in group.minutes("d")] == [(0, 4), (0, 4)]
