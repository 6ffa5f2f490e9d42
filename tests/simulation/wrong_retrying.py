"""Routers with one mistake each about the attempts of records; see :mod:`.wrong`."""

from typing import Any, ClassVar

from index.protocol.schedule import Attempted, Decision, Schedule
from index.rules import retrying
from index.rules.retrying import Retry, Retrying, sooner, wait_ms
from tests.simulation.replacing import Wrong
from tests.simulation.wrong_spreading import _ReadsInLine


class _GoesRound(Retrying):
    def _exhausted(self, headers: list[tuple[str, bytes | None]], timestamp_ms: int, made: int) -> Decision:
        return self._next(headers, timestamp_ms, made + 1, None)


class ExhaustedGoesRound(Wrong):
    """Releases a record without an attempt left to its target again."""

    replaces: ClassVar = {"index.rules.rules.Retrying": _GoesRound}


class _SendsBackTo(Retrying):
    def _next(self, headers: Any, timestamp_ms: int, number: int, _target: bytes | None) -> Decision:
        return super()._next(headers, timestamp_ms, number, None)


class ComesBackElsewhere(Wrong):
    """Releases an attempt to the default target, though the record came from another one."""

    replaces: ClassVar = {"index.rules.rules.Retrying": _SendsBackTo}


def _as_before(decision: Decision, attempt: Attempted) -> Decision:
    return _counted(decision, attempt if attempt.exhausted else attempt._replace(number=max(1, attempt.number - 1)))


_counted = retrying._counted


class AttemptNotCounted(Wrong):
    """Releases an attempt under the number of the previous one."""

    replaces: ClassVar = {"index.rules.retrying._counted": _as_before}


def _in_line(schedule: Schedule, timestamp_ms: int, offset: int) -> Schedule:
    return sooner(schedule, timestamp_ms, max(0, offset - _ReadsInLine.begins_at))


class JitterByPlaceInLine(Wrong):
    """Shortens a wait by the number of records read before it, which a replay counts from S on."""

    replaces: ClassVar = {"tests.simulation.host.Deciding": _ReadsInLine, "index.rules.rules.sooner": _in_line}


def _one_more(retry: Retry, number: int) -> int:
    return wait_ms(retry, number - 1 or 1)


class WaitOfAttemptBefore(Wrong):
    """Waits as long as before the previous attempt."""

    replaces: ClassVar = {"index.rules.retrying.wait_ms": _one_more}


ALL: tuple[type[Wrong], ...] = (
    ExhaustedGoesRound,
    ComesBackElsewhere,
    AttemptNotCounted,
    JitterByPlaceInLine,
    WaitOfAttemptBefore,
)
