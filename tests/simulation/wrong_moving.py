"""Routers with one thing wrong about what is moved; see :mod:`.wrong`."""

from collections.abc import Sequence
from typing import Any, ClassVar

from index.moving import moved_record
from index.named import NamedSchedules
from index.progress import Position
from index.receipts import Outcome, Receipt
from index.record import Record
from index.schedule import Schedule
from sidecar.release.moving import Moves, Moving
from tests.simulation.replacing import OWNED, Wrong


def _first(receipt: Receipt) -> Position | None:
    return receipt.cancelled[0] if receipt.outcome is Outcome.MOVED else None


class FirstMoved(Wrong):
    """Moves the first of several schedules of an id instead of the last."""

    replaces: ClassVar = {"index.receipts.Receipt.moved": property(_first)}


class _WaitsForNothing(NamedSchedules):
    def is_moving(self, _deliver_id: bytes) -> bool:
        return False


class MoveNotWaitedFor(Wrong):
    """Evaluates a control of an id while a schedule of it is being moved, which is nowhere then."""

    replaces: ClassVar = {"index.entering.NamedSchedules": _WaitsForNothing}


class _WithoutNotes(Moving):
    def look(self, *given: Any) -> Moves:
        moves = super().look(*given)
        moves.appended = {offset: each._replace(id_hash=b"") for offset, each in moves.appended.items()}
        return moves


class MovedSpared(Wrong):
    """Does not cancel what was moved while it is written and not read yet."""

    replaces: ClassVar = {OWNED + "Moving": _WithoutNotes}


class _ToldOnly(Moves):
    def told(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        return [*receipts]


class _WritesNothing(Moving):
    def look(self, *_: Any) -> Moves:
        return _ToldOnly()


class MovedNowhere(Wrong):
    """Says that a schedule is moved, and writes nothing in its place."""

    replaces: ClassVar = {OWNED + "Moving": _WritesNothing}


def _without_targets(record: Record, schedule: Schedule, *rest: Any) -> Record:
    return moved_record(record, schedule._replace(targets=()), *rest)


class MovedToDefault(Wrong):
    """Writes what is moved without its targets."""

    replaces: ClassVar = {"sidecar.release.moving.moved_record": _without_targets}


def _never(_: object) -> None:
    """Nothing recurs."""


class SeriesNotMoved(Wrong):
    """Moves an occurrence of a series as if it were a schedule by itself."""

    replaces: ClassVar = {"sidecar.release.moving.recurrence_of": _never}


ALL: tuple[type[Wrong], ...] = (
    FirstMoved,
    MoveNotWaitedFor,
    MovedSpared,
    MovedNowhere,
    MovedToDefault,
    SeriesNotMoved,
)
