"""Routers with one mistake each about the spread of bursts; see :mod:`.wrong`."""

from collections.abc import Iterable
from typing import Any, ClassVar

from index.named.names import Names
from index.named.places import NO_SHIFTS, Shifts
from index.pending.progress import Position
from index.protocol.schedule import AT_ONCE, Schedule
from index.rules.rules import Rules
from index.rules.spreading import shift_ms, spread
from sidecar.engine.intake.decided import Decided, Fetched
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.release.occurring import Series
from sidecar.kafka.reading.tails import Fetch
from tests.simulation.replacing import Wrong


class _ReadsInLine(Deciding):
    begins_at: ClassVar[int] = 0
    _begins_at: int | None = None

    def decide(self, fetch: Fetched) -> Decided:
        if self._begins_at is None and isinstance(fetch, Fetch) and fetch.messages:
            self._begins_at = fetch.messages[0].offset()
        _ReadsInLine.begins_at = self._begins_at or 0
        return super().decide(fetch)


def _by_line(schedule: Schedule, spread_ms: int, timestamp_ms: int, offset: int) -> Schedule:
    return spread(schedule, spread_ms, timestamp_ms, max(0, offset - _ReadsInLine.begins_at))


class SpreadByPlaceInLine(Wrong):
    """Shifts a record by the number of records read before it, which a replay counts from S on."""

    replaces: ClassVar = {"tests.simulation.host.Deciding": _ReadsInLine, "index.rules.rules.spread": _by_line}


def _whatever_is_asked(schedule: Schedule, spread_ms: int, _timestamp_ms: int, offset: int) -> Schedule:
    if schedule.due_ms == AT_ONCE:
        return schedule
    shifted_ms = shift_ms(offset, spread_ms)
    return schedule._replace(due_ms=schedule.due_ms + shifted_ms, shift_ms=shifted_ms)


class PastSpread(Wrong):
    """Spreads a record that was already past when it was written."""

    replaces: ClassVar = {"index.rules.rules.spread": _whatever_is_asked}


def _of_topic(rules: Rules, _targets: tuple[str, ...]) -> int:
    return rules.spread_ms


class TargetsSpreadIgnored(Wrong):
    """Spreads by the delay topic, though a target has a spread of its own."""

    replaces: ClassVar = {"index.rules.rules.Rules.spread_ms_of": _of_topic}


class _CountsFromLeaving(Series):
    def _leave(self, found: Any, offset: int, record: Any, recurrence: Any, schedule: Schedule, now_ms: int) -> Any:
        return super()._leave(found, offset, record, recurrence, schedule._replace(shift_ms=0), now_ms)


class OccurrenceDrifts(Wrong):
    """Counts the period from the release of the first occurrence, where its due time counts."""

    replaces: ClassVar = {"sidecar.engine.ownership.owned_partition.Series": _CountsFromLeaving}


class _MissesWhileItWaits(Series):
    def _leave(self, found: Any, offset: int, record: Any, recurrence: Any, schedule: Schedule, now_ms: int) -> Any:
        now_ms += schedule.shift_ms
        return super()._leave(found, offset, record, recurrence, schedule, now_ms)


class MissedWhileSpread(Wrong):
    """Counts occurrences that are due while the previous one waits in a spread burst as missed."""

    replaces: ClassVar = {"sidecar.engine.ownership.owned_partition.Series": _MissesWhileItWaits}


class _AsksWhenItLeaves(Names):
    def asked_ms(self, _places: Iterable[Position]) -> dict[int, int]:
        return {}


class DueWhenItLeaves(Wrong):
    """Compares deliver-if-due with the shifted due time of a schedule, where the due time it asked for counts."""

    replaces: ClassVar = {"index.named.named.Names": _AsksWhenItLeaves}


class _SealsNoShift(Names):
    @property
    def frozen_shifts_ms(self) -> Shifts:
        return NO_SHIFTS


class ShiftNotPaged(Wrong):
    """Leaves the shift of a spread schedule out of the pages of ids."""

    replaces: ClassVar = {"index.named.named.Names": _SealsNoShift}


ALL: tuple[type[Wrong], ...] = (
    SpreadByPlaceInLine,
    PastSpread,
    TargetsSpreadIgnored,
    OccurrenceDrifts,
    MissedWhileSpread,
    DueWhenItLeaves,
    ShiftNotPaged,
)
