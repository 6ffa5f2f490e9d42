"""Keeps the last hour of a group: for each minute released records, their lateness, and the pending records at its end.

A router with the admin API reads every report anyway, and adds the numbers up. So each router has the history of the
whole group, from the first whole minute that it has read. Nothing is stored: after a restart the history begins anew,
and Prometheus has the longer one.

Cost: about 15 kB for each delay topic, and 1 kB for each partition. Taking in the report of a partition takes some
microseconds where records were released, and less than one where none was.

Reports count from the take-over of a partition on. The difference between two reports is the number of records that
were released in between.
The first report of a partition by a router counts in full where that router was known before, since it has taken the
partition over in between; else it only tells where counting begins.

The time of a report is that of the clock of its router. A report that is more than a minute ahead counts as one of now:
otherwise it would begin a minute that no later report ends.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pydantic import Field

from sidecar.engine.ownership.status import PartitionStatus
from sidecar.engine.ports import Place
from sidecar.lateness import LATENESS_BOUNDS_MS, quantile_ms
from sidecar.operations.status.answers import Answer
from sidecar.operations.status.reports import STALE_MS, RouterReport

MINUTES: Final = 60
MINUTE_MS: Final = 60_000
HOUR_MS: Final = MINUTES * MINUTE_MS
_NOTHING: Final = (0,) * (len(LATENESS_BOUNDS_MS) + 1)


class MinuteAnswer(Answer):
    """One minute."""

    at_ms: int = Field(description="Begin of the minute; milliseconds since 1970")
    released: int
    lateness_p50_ms: float | None = Field(description="null: no record with a due time was released")
    lateness_p99_ms: float | None
    pending: int = Field(description="Pending records at the end of the minute, of partitions that were served")


class HistoryAnswer(Answer):
    """The last hour of one delay topic, or of all together."""

    topic: str = Field(description="Empty: all delay topics")
    minutes: tuple[MinuteAnswer, ...] = Field(
        description="The oldest first; whole minutes, since the router that is asked has begun to read the reports"
    )
    why: str = Field("", description="Reason why there is no history; empty where there is one")


class Minute(NamedTuple):
    """The numbers of one minute."""

    at_ms: int
    released: int
    late_half_ms: float | None
    late_most_ms: float | None
    pending: int


@dataclass(slots=True)
class _Series:
    """The minutes of a topic, and the counts of the minute that has begun."""

    minutes: deque[Minute] = field(default_factory=lambda: deque(maxlen=MINUTES))
    released: int = 0
    lateness: tuple[int, ...] = _NOTHING

    def end(self, at_ms: int, pending: int) -> None:
        late = quantile_ms(self.lateness, 0.5), quantile_ms(self.lateness, 0.99)
        self.minutes.append(Minute(at_ms, self.released, *late, pending))

    def clear(self) -> None:
        self.released, self.lateness = 0, _NOTHING


class _Counted(NamedTuple):
    """The counts of a partition in the last report of a router."""

    at_ms: int
    released: int
    lateness: tuple[int, ...]


class History:
    """The last hour; any thread may ask, and one thread takes reports in."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._all = _Series()
        self._topics: dict[str, _Series] = {}
        self._counted: dict[tuple[str, str, int], _Counted] = {}
        self._known_routers: dict[str, int] = {}
        self._pending: dict[Place, tuple[int, int]] = {}
        self._last = -1, -1
        self._minute = -1
        self._is_whole = False

    def add(self, report: RouterReport, at_ms: int, offset: int) -> None:
        """Take in a part of a report; one that was taken in before changes nothing."""
        with self._lock:
            last_ms, last_offset = self._last
            if at_ms <= last_ms and offset <= last_offset:
                return
            self._last = at_ms, offset
            now_ms = self._now_ms()
            if at_ms > now_ms + MINUTE_MS:
                at_ms = now_ms
            self._turn(at_ms // MINUTE_MS)
            is_known = report.instance in self._known_routers
            self._known_routers[report.instance] = at_ms
            for status in report.statuses:
                self._count(report.instance, status, at_ms, is_known=is_known)

    def answer(self, topic: str = "") -> HistoryAnswer:
        """Return the last hour of a delay topic, or of all."""
        now_ms = self._now_ms()
        with self._lock:
            series = self._topics.get(topic) if topic else self._all
            minutes = [] if series is None else [*series.minutes]
        lately = [each for each in minutes if each.at_ms >= now_ms - HOUR_MS - MINUTE_MS]
        return HistoryAnswer(topic=topic, minutes=tuple(map(_answer, lately)))

    def _count(self, instance: str, status: PartitionStatus, at_ms: int, *, is_known: bool) -> None:
        place = status.topic, status.partition
        if status.is_served:
            self._pending[place] = at_ms, status.pending
        key = (instance, *place)
        before, now = self._counted.get(key), _Counted(at_ms, status.released, status.lateness_ever or _NOTHING)
        self._counted[key] = now
        if before is None and not is_known:
            return
        if before is None or now.released < before.released:
            before = _Counted(at_ms, 0, _NOTHING)
        if now.released == before.released:
            return
        late = tuple(max(0, one - other) for one, other in zip(now.lateness, before.lateness, strict=True))
        for series in (self._all, self._series(status.topic)):
            series.released += now.released - before.released
            series.lateness = tuple(map(sum, zip(series.lateness, late, strict=True)))

    def _series(self, topic: str) -> _Series:
        return self._topics.setdefault(topic, _Series())

    def _turn(self, minute: int) -> None:
        """Begin another minute where one is over; the first one, which was not read from its begin, does not count."""
        if minute <= self._minute:
            return
        if self._is_whole:
            self._end_minute()
        for series in (self._all, *self._topics.values()):
            series.clear()
        self._is_whole = self._minute >= 0
        self._minute = minute

    def _end_minute(self) -> None:
        at_ms = self._minute * MINUTE_MS
        end_ms = at_ms + MINUTE_MS
        self._pending = {place: told for place, told in self._pending.items() if told[0] > end_ms - STALE_MS}
        pending: dict[str, int] = {}
        for (topic, _), (_, records) in self._pending.items():
            pending[topic] = pending.get(topic, 0) + records
            self._series(topic)
        for topic, series in self._topics.items():
            series.end(at_ms, pending.get(topic, 0))
        self._all.end(at_ms, sum(pending.values()))
        self._forget(end_ms - HOUR_MS)

    def _forget(self, before_ms: int) -> None:
        """Drop the counts of routers that have been silent for an hour."""
        self._counted = {key: each for key, each in self._counted.items() if each.at_ms >= before_ms}
        self._known_routers = {name: at_ms for name, at_ms in self._known_routers.items() if at_ms >= before_ms}


def _answer(minute: Minute) -> MinuteAnswer:
    return MinuteAnswer(
        at_ms=minute.at_ms,
        released=minute.released,
        lateness_p50_ms=minute.late_half_ms,
        lateness_p99_ms=minute.late_most_ms,
        pending=minute.pending,
    )
