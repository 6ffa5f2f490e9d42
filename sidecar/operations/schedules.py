"""Answers about pending schedules: a page of them, and counts of those that match or that wait for an attempt.

A count goes through the pages of :mod:`sidecar.operations.finding`, so it costs the records that it reads. It is
bounded in seconds, and keeps one page in memory at a time. The records are those that are pending when their page is
read.
"""

import heapq
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from index.protocol import occurrences
from index.protocol.recurring import Recurrence
from index.protocol.times import INT64_MAX
from sidecar.operations.finding.wanted import PagePlace, Pending, SchedulePage
from sidecar.operations.status.answers import (
    AttemptsAnswer,
    MatchingAnswer,
    RecurrenceAnswer,
    ScheduleAnswer,
    SchedulesAnswer,
)
from sidecar.zones import zone_of

COUNT_FOR_S: Final = 5.0
"""Time after which a count begins no page more. With the time of one page it ends before the caller gives up."""

MOST_SHOWN: Final = 5
_PAGE: Final = 500


@dataclass(slots=True)
class ScheduleCount:
    """The number of pending schedules that were counted.

    ``first`` are those of them that are due first. ``by_attempt`` has the labels of attempts, and ``exhausted`` is the
    number of those without an attempt left. ``next_from`` is the place where the count goes on, None behind the last.
    """

    records: int = 0
    first: list[Pending] = field(default_factory=list)
    by_attempt: Counter[str] = field(default_factory=Counter)
    exhausted: int = 0
    next_from: PagePlace | None = None

    def add(self, page: SchedulePage) -> None:
        """Count the schedules of the next page."""
        self.records += len(page.schedules)
        self.first = heapq.nsmallest(MOST_SHOWN, [*self.first, *page.schedules], key=lambda each: each[:3])
        attempts = [each.attempt for each in page.schedules if each.attempt is not None]
        self.by_attempt.update(each.label for each in attempts if not each.exhausted)
        self.exhausted += sum(each.exhausted for each in attempts)
        self.next_from = page.next_from

    def as_matching(self, topic: str) -> MatchingAnswer:
        """Return the answer to a dry run of a query."""
        first = tuple(_schedule(topic, each).without_key() for each in self.first)
        return MatchingAnswer(topic=topic, matching=self.records, first=first, next_from=_place(self.next_from))

    def as_attempts(self, topic: str) -> AttemptsAnswer:
        """Return the answer that tells which attempts the records wait for."""
        return AttemptsAnswer(
            topic=topic,
            records=self.records,
            by_attempt=dict(self.by_attempt),
            exhausted=self.exhausted,
            is_whole=self.next_from is None,
        )


def counted(
    page: Callable[[str, int], SchedulePage],
    begin: str = "",
    most: int = sys.maxsize,
    clock_s: Callable[[], float] = time.monotonic,
) -> ScheduleCount:
    """Count at most ``most`` schedules from a place on, for COUNT_FOR_S.

    ``page`` returns the page at a place, with at most so many schedules.
    """
    count, until_s = ScheduleCount(), clock_s() + COUNT_FOR_S
    while True:
        count.add(page(begin, min(_PAGE, most - count.records)))
        if count.next_from is None or count.records >= most or clock_s() > until_s:
            return count
        begin = str(count.next_from)


def schedules_answer(topic: str, page: SchedulePage, upcoming: int = 0) -> SchedulesAnswer:
    """Return a page of schedules as an answer, with so many due times of each recurring one."""
    found = tuple(_schedule(topic, each, upcoming) for each in page.schedules)
    return SchedulesAnswer(topic=topic, schedules=found, next_from=_place(page.next_from))


def _schedule(topic: str, found: Pending, upcoming: int = 0) -> ScheduleAnswer:
    return ScheduleAnswer(
        partition=found.partition,
        offset=found.offset,
        due_ms=found.due_ms,
        spread_ms=found.shift_ms,
        targets=found.targets,
        id=_text(found.deliver_id),
        key=_text(found.key),
        series=None if found.series is None else f"{topic}/{found.partition}/{found.series}",
        attempt=None if found.attempt is None else found.attempt.number,
        recurrence=None if found.recurrence is None else _recurrence(found.recurrence, found.due_ms, upcoming),
    )


def _place(place: PagePlace | None) -> str | None:
    return None if place is None else str(place)


def _recurrence(recurrence: Recurrence, due_ms: int, upcoming: int) -> RecurrenceAnswer:
    try:
        if recurrence.begins:
            # The fields are checked only when the series begins.
            occurrences.check_cron(recurrence.cron)
        next_ms = occurrences.upcoming(recurrence, zone_of(recurrence.zone), due_ms, upcoming)
    except ValueError:
        # A router with newer rules of time zones may know the zone.
        next_ms = []
    return RecurrenceAnswer(
        every_ms=recurrence.period_ms or None,
        cron=recurrence.cron,
        zone=recurrence.zone if recurrence.cron else "",
        until_ms=recurrence.until_ms if recurrence.until_ms < INT64_MAX else None,
        number=1 if recurrence.occurrence is None else recurrence.occurrence.number,
        times=recurrence.times if recurrence.times < INT64_MAX else None,
        next_ms=tuple(next_ms),
    )


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode("utf-8", "replace")
