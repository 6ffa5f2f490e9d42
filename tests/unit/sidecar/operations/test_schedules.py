"""Answers about pending schedules, and counts of them, from pages in memory."""

from typing import Any

import pytest

from index.protocol.recurring import Occurrence, Recurrence
from index.protocol.schedule import Attempted
from index.protocol.where import CancelWhere
from sidecar.operations.controls.orders import QueryOrder
from sidecar.operations.desk import Operations
from sidecar.operations.finding.wanted import PagePlace, Pending, ScheduleFilter, SchedulePage
from sidecar.operations.schedules import MOST_SHOWN, counted, schedules_answer
from sidecar.operations.status.answers import AttemptsAnswer, MatchingAnswer, RecurrenceAnswer
from sidecar.policies.table import WITHOUT_POLICIES
from tests.support.admin_api import config


def test_a_recurring_schedule_is_told_with_its_rule_and_what_is_foreseen() -> None:
    cron = Recurrence(cron="0 9 * * *", zone="Europe/Berlin", times=9, occurrence=Occurrence(3, 8, 0))
    found = [
        Pending(0, 0, 7, ("out",), None, 3, None, None, cron),
        Pending(5, 0, 8, ("out",), None, 8, None, None, Recurrence(period_ms=10, until_ms=17)),
        Pending(5, 0, 9, ("out",), None, 9, None, None, Recurrence(cron="0 9 * * *", zone="Not/Known")),
        Pending(5, 0, 10, ("out",), None, 10, None, None, Recurrence(cron="61 9 30 2 *")),
        Pending(5, 0, 11, ("out",), None, None, None),
    ]
    by_cron, by_period, unknown, wrong, none = schedules_answer("d", SchedulePage(found, None), 5).schedules
    assert by_cron.series == "d/0/3"
    assert by_cron.recurrence == RecurrenceAnswer(
        every_ms=None, cron="0 9 * * *", zone="Europe/Berlin", number=8, times=9, next_ms=(0, 8 * 3_600_000)
    )
    assert by_period.recurrence == RecurrenceAnswer(every_ms=10, until_ms=17, number=1, times=None, next_ms=(5, 15))
    assert unknown.recurrence is not None
    assert wrong.recurrence is not None
    assert wrong.recurrence.next_ms == ()
    assert (unknown.recurrence.zone, unknown.recurrence.next_ms, none.recurrence) == ("Not/Known", (), None)


def test_the_requested_time_is_the_due_time_without_the_spread() -> None:
    page = SchedulePage([Pending(1_007, 0, 11, ("out",), b"a", None, None, shift_ms=7)], None)
    (told,) = schedules_answer("d", page).schedules
    assert (told.due_ms, told.spread_ms) == (1_007, 7)


class Pages:
    """Schedules of partition 1, in pages: of each two, the second is due first. It notes each question."""

    def __init__(self, schedules: int, *attempts: Attempted | None) -> None:
        dues = [(offset ^ 1) * 1_000 for offset in range(schedules)]
        given = [*attempts, *[None] * (schedules - len(attempts))]
        self._all = [
            Pending(due_ms, 1, offset, ("out",), b"a", None, b"secret", attempt)
            for offset, (due_ms, attempt) in enumerate(zip(dues, given, strict=True))
        ]
        self.asked: list[tuple[str, int]] = []

    def __call__(self, begin: str, most: int) -> SchedulePage:
        self.asked.append((begin, most))
        first = PagePlace.parse(begin).offset if begin else 0
        last = min(first + most, len(self._all))
        left = PagePlace(1, is_held=False, offset=last) if last < len(self._all) else None
        return SchedulePage(self._all[first:last], left)


def test_a_count_goes_on_from_page_to_page() -> None:
    pages = Pages(1_207)
    told = counted(pages).as_matching("d")
    assert pages.asked == [("", 500), ("1/log/500", 500), ("1/log/1000", 500)]
    assert (told.matching, told.next_from) == (1_207, None)
    assert [each.due_ms for each in told.first] == [1_000 * number for number in range(MOST_SHOWN)]
    assert {each.key for each in told.first} == {None}


def test_a_count_ends_when_its_time_is_over_and_the_next_one_goes_on_there() -> None:
    pages, clock = Pages(1_207), iter([0.0, 1.0, 5.1])
    told = counted(pages, clock_s=lambda: next(clock)).as_matching("d")
    assert (told.matching, told.next_from) == (1_000, "1/log/1000")
    assert counted(pages, "1/log/1000").as_matching("d").matching == 207


def test_what_waits_is_told_by_attempt() -> None:
    attempts = [Attempted(number) for number in (1, 1, 3, 4, 7, 9)]
    pages = Pages(8, *attempts, Attempted(3, exhausted=True))
    by_attempt = {"1": 2, "3": 1, "4-7": 2, "8+": 1}
    whole = AttemptsAnswer(topic="d", records=8, by_attempt=by_attempt, exhausted=1, is_whole=True)
    assert counted(pages).as_attempts("d") == whole
    part = AttemptsAnswer(topic="d", records=2, by_attempt={"1": 2}, exhausted=0, is_whole=False)
    assert counted(pages, most=2).as_attempts("d") == part


class Group:
    """Returns an empty page, and notes the question."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def schedules(self, *asked: Any, partition: int | None = None) -> SchedulePage:
        self.asked.append((*asked, partition))
        return SchedulePage([], None)


def test_a_dry_run_asks_for_what_the_order_would_cancel(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = None
    operations, group = Operations(config(), nobody, WITHOUT_POLICIES, nobody), Group()
    monkeypatch.setattr(operations, "_group", group)
    where, nothing = CancelWhere("out"), MatchingAnswer(topic="d", matching=0)
    assert operations.matching("d", QueryOrder(where, 3), "3/log/7") == nothing
    assert operations.matching("d", QueryOrder(where)) == nothing
    assert operations.matching("d", QueryOrder(CancelWhere(due_from_ms=5, due_to_ms=5))) == nothing
    wanted = ScheduleFilter("d", where=where)
    assert group.asked == [(wanted, "3/log/7", 500, 3), (wanted, "", 500, None)], "nothing is due within no time"
    assert operations.attempts("d", 7).is_whole
    assert group.asked[2:] == [(ScheduleFilter("d"), "", 7, None)]
