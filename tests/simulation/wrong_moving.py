"""Routers with one mistake each about moved schedules; see :mod:`.wrong`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from index.named.named import NamedSchedules
from index.named.receipts import ControlOutcome, Receipt
from index.pending.progress import Position
from index.protocol.moving import moved_occurrence, moved_record
from index.protocol.record import Record
from index.protocol.schedule import Schedule
from sidecar.engine.release.moving import Chain, Moves, Moving, Spared, chains_of
from sidecar.engine.release.releaser import Releaser
from tests.simulation.replacing import OWNED, Wrong


def _first(receipt: Receipt) -> Position | None:
    return receipt.cancelled[0] if receipt.outcome is ControlOutcome.MOVED else None


class FirstMoved(Wrong):
    """Moves the first of several schedules of an id, where the last one must move."""

    replaces: ClassVar = {"index.named.receipts.Receipt.moved": property(_first)}


class _ForgetsMoved(NamedSchedules):
    def _owe(self, receipt: Receipt) -> None:
        super()._owe(receipt)
        self._moved.clear()


class MovedForgotten(Wrong):
    """Evaluates a control without the record that a move of the same id in front of it is to write."""

    replaces: ClassVar = {"index.partition.entering.NamedSchedules": _ForgetsMoved}


class _TearsChains(NamedSchedules):
    def cursor_before_links(self, cursor: int) -> int:
        return cursor


def _ends_of_chains(receipts: Sequence[Receipt]) -> list[Chain]:
    within = {receipt.offset for receipt in receipts}
    torn = [each._replace(unwritten_count=0) if {o for _, o in each.unwritten} - within else each for each in receipts]
    return chains_of(torn)


class ChainTorn(Wrong):
    """Releases a move without the control behind it that takes the moved schedule."""

    replaces: ClassVar = {
        "index.partition.entering.NamedSchedules": _TearsChains,
        "sidecar.engine.release.moving.chains_of": _ends_of_chains,
    }


def _each_moved(receipts: Sequence[Receipt]) -> list[Chain]:
    chains: dict[int, Chain] = {}
    for receipt in receipts:
        place = receipt.moved
        if place is not None:
            before = [] if place not in receipt.unwritten else chains[place.offset].receipts
            chains[receipt.offset] = Chain(chains[place.offset].place if before else place, [*before, receipt])
    return list(chains.values())


class EachMoveWritten(Wrong):
    """Writes a moved schedule though a later control of the same transaction takes it."""

    replaces: ClassVar = {"sidecar.engine.release.moving.chains_of": _each_moved}


class _KeepsMasked(NamedSchedules):
    def spare(self, *_: Any) -> None:
        """Leave the schedule cancelled."""


class UnmovedCancelled(Wrong):
    """Cancels a schedule that could not be written again, and reports that it stays."""

    replaces: ClassVar = {"index.partition.entering.NamedSchedules": _KeepsMasked}


class _PassesOver(Releaser):
    def _spare(self, attempt: Any, spared: Spared) -> None:
        due_ms, offset, _ = spared.entry
        batch = self.ledger.spare(Position(due_ms, offset), spared.moves, spared.why)
        attempt.plan = replace(attempt.plan, batch=batch)


class UnmovedPassedOver(Wrong):
    """Moves W past a schedule that could not be written again because it was due at that moment."""

    replaces: ClassVar = {OWNED + "Releaser": _PassesOver}


class _WithoutNotes(Moving):
    def look(self, *given: Any) -> Moves:
        moves = super().look(*given)
        moves.appended = {offset: each._replace(id_hash=b"") for offset, each in moves.appended.items()}
        return moves


class MovedSpared(Wrong):
    """Does not cancel a moved schedule that has been written and has not been read yet."""

    replaces: ClassVar = {OWNED + "Moving": _WithoutNotes}


class _ToldOnly(Moves):
    def told(self, receipts: Sequence[Receipt]) -> list[Receipt]:
        return [*receipts]


class _WritesNothing(Moving):
    def look(self, *_: Any) -> Moves:
        return _ToldOnly()


class MovedNowhere(Wrong):
    """Reports that a schedule is moved, and writes nothing in its place."""

    replaces: ClassVar = {OWNED + "Moving": _WritesNothing}


def _without_targets(record: Record, schedule: Schedule, *rest: Any) -> Record:
    return moved_record(record, schedule._replace(targets=()), *rest)


class MovedToDefault(Wrong):
    """Writes a moved schedule without its targets."""

    replaces: ClassVar = {"sidecar.engine.release.moving.moved_record": _without_targets}


def _never(_: object) -> None:
    """Return None: no record recurs."""


class SeriesNotMoved(Wrong):
    """Moves an occurrence of a series as if it were a single schedule."""

    replaces: ClassVar = {"sidecar.engine.release.moving.recurrence_of": _never}


def _asked_when_written(*given: Any) -> Record:
    record, recurrence, offset, source, due_ms, key, written_ms, _ = given
    return moved_occurrence(record, recurrence, offset, source, due_ms, key, written_ms, written_ms)


class MissedFromWrittenMove(Wrong):
    """Counts only occurrences after the write of the moved schedule as missed, where those after the move count."""

    replaces: ClassVar = {"sidecar.engine.release.moving.moved_occurrence": _asked_when_written}


ALL: tuple[type[Wrong], ...] = (
    FirstMoved,
    MovedForgotten,
    ChainTorn,
    EachMoveWritten,
    UnmovedCancelled,
    UnmovedPassedOver,
    MovedSpared,
    MovedNowhere,
    MovedToDefault,
    SeriesNotMoved,
    MissedFromWrittenMove,
)
