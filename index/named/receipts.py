"""The receipt of a control: its outcome, and the schedules that it has cancelled."""

import json
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from index.pending.progress import Position
from index.protocol.record import Record
from index.protocol.schedule import Action, Control


class ControlOutcome(StrEnum):
    """The outcome of a control, as ``outcome`` in its receipt."""

    CANCELLED = "cancelled"
    REPLACED = "replaced"
    MOVED = "moved"
    NOT_PENDING = "not-pending"
    CHANGED = "changed"
    NOT_MOVED = "not-moved"
    CANCELLED_WHERE = "cancelled-where"


_NOTHING_SPREAD: Final[Mapping[int, int]] = MappingProxyType({})
_DONE: Final = {
    Action.CANCEL: ControlOutcome.CANCELLED,
    Action.REPLACE: ControlOutcome.REPLACED,
    Action.MOVE: ControlOutcome.MOVED,
}


class Part(StrEnum):
    """A part that a receipt leaves out when it would be too large."""

    CANCELLED = "cancelled"
    HEADERS = "headers"


class Matched(NamedTuple):
    """The number of schedules that a predicate has cancelled: ``exact``, or ``estimated`` where it is not known."""

    exact: int | None = None
    estimated: int | None = None


class Receipt(NamedTuple):
    """The one answer to a control: the schedules that it cancelled, by (due, offset) in the order of the log.

    ``due_ms`` is the due time of the schedule that replaces them, as it was requested; None where there is none.
    ``offset`` and ``record`` belong to the control. ``voids_itself`` marks a control that would have been a schedule
    and is not. ``omitted`` are parts that are not written, because the receipts topic refuses records of that size.
    ``asked_ms`` gives by offset the requested due times of schedules that were to leave later
    (:mod:`index.rules.spreading`).

    The last ``unwritten_count`` of ``cancelled`` have no record: a move that leaves with this receipt was to write each
    of them, and this control came first (:mod:`index.named.named`). Such a schedule has the offset of its move. ``why``
    is the reason why a move could not write its schedule again.

    The receipt of a control with a predicate has their number in ``matched``. It names only the schedules that lie
    behind the control (:mod:`index.named.queries`), since the predicate tells the others.
    """

    offset: int
    control: Control
    outcome: ControlOutcome
    cancelled: tuple[Position, ...]
    due_ms: int | None
    record: Record
    voids_itself: bool = False
    omitted: tuple[Part, ...] = ()
    asked_ms: Mapping[int, int] = _NOTHING_SPREAD
    unwritten_count: int = 0
    why: str = ""
    matched: Matched | None = None

    @property
    def moved(self) -> Position | None:
        """The schedule that gets another due time: the last of the cancelled ones."""
        return self.cancelled[-1] if self.outcome is ControlOutcome.MOVED else None

    @property
    def cancels(self) -> int:
        """The number of schedules that it cancels; an estimate where no exact number is known."""
        if self.matched is None:
            return len(self.cancelled)
        return self.matched.exact if self.matched.exact is not None else self.matched.estimated or 0

    @property
    def written(self) -> tuple[Position, ...]:
        """The cancelled schedules that have a record."""
        return self.cancelled[: len(self.cancelled) - self.unwritten_count]

    @property
    def unwritten(self) -> tuple[Position, ...]:
        """The cancelled schedules that an earlier move was to write; each has the offset of its move."""
        return self.cancelled[len(self.cancelled) - self.unwritten_count :]

    @property
    def masks(self) -> tuple[int, ...]:
        """Offsets of records that are not to be released any more."""
        cancelled = tuple(place.offset for place in self.written)
        return (*cancelled, self.offset) if self.voids_itself else cancelled

    def unmoved(self, missed: ControlOutcome, why: str = "") -> "Receipt":
        """Return the receipt of a move that could not write its schedule again, and so does not name it.

        The outcome is ``missed`` where the move has cancelled no other schedule.
        """
        others = self.cancelled[:-1]
        return self._replace(
            cancelled=others,
            outcome=ControlOutcome.CANCELLED if others else missed,
            due_ms=None,
            unwritten_count=max(0, self.unwritten_count - 1),
            why=why,
        )


def receipt_of(
    offset: int,
    control: Control,
    pending: tuple[Position, ...],
    due_ms: int | None,
    record: Record,
    asked_ms: Mapping[int, int] = _NOTHING_SPREAD,
) -> Receipt:
    """Return the receipt of a control at ``offset``; ``pending`` are the schedules of its id in front of it.

    ``asked_ms`` gives their requested due times, by offset, where they differ from the times at which they leave.

    A replacement with ``if_due_ms`` is no schedule where no schedule is due then. The schedule that it was to replace
    has left, or has changed by now, and otherwise both would be released.

    >>> nothing = Record(None, None, (), 0)
    >>> receipt_of(9, Control(Action.CANCEL, b"a"), (Position(70, 4),), None, nothing).outcome.value
    'cancelled'
    >>> receipt_of(9, Control(Action.CANCEL, b"a", if_due_ms=71), (Position(70, 4),), None, nothing).outcome.value
    'changed'
    """
    wanted = control.if_due_ms
    matching = tuple(place for place in pending if wanted in (None, asked_ms.get(place.offset, place.due_ms)))
    missed = ControlOutcome.CHANGED if pending else ControlOutcome.NOT_PENDING
    outcome = _DONE[control.action] if matching else missed
    if control.action is Action.MOVE:
        moved_to_ms = control.due_ms if matching else None
        return Receipt(offset, control, outcome, matching, moved_to_ms, record, asked_ms=asked_ms)
    voids_itself = due_ms is not None and wanted is not None and not matching
    own_ms = None if voids_itself else due_ms
    return Receipt(offset, control, outcome, matching, own_ms, record, voids_itself, asked_ms=asked_ms)


def receipt_value(receipt: Receipt) -> bytes:
    """Encode the value of a receipt's record.

    ``omitted`` gives the size of each part that is left out.

    >>> control = Control(Action.REPLACE, b"a")
    >>> receipt_value(receipt_of(9, control, (Position(70, 4),), 90, Record(None, None, (), 0)))
    b'{"action": "replace", "outcome": "replaced", "cancelled": [{"offset": 4, "due": 70}], "due": 90}'
    """
    told = () if Part.CANCELLED in receipt.omitted else receipt.cancelled
    plain: dict[str, object] = {
        "action": receipt.control.action,
        "outcome": receipt.outcome,
        "cancelled": [{"offset": each.offset, "due": receipt.asked_ms.get(each.offset, each.due_ms)} for each in told],
        "due": receipt.due_ms,
    }
    if receipt.matched is not None:
        plain["matched"] = receipt.matched.exact
        if receipt.matched.exact is None:
            plain["estimated"] = receipt.matched.estimated
    if receipt.why:
        plain["why"] = receipt.why
    if receipt.omitted:
        there = {Part.CANCELLED: receipt.cancelled, Part.HEADERS: receipt.record.headers}
        plain["omitted"] = {part: len(there[part]) for part in receipt.omitted}
    return json.dumps(plain).encode()


def receipt_record(receipt: Receipt) -> Record:
    """Return the record of a receipt: its key is the id, null for a predicate, and its headers are the control's."""
    control = receipt.record
    deliver_id = receipt.control.deliver_id if receipt.matched is None else None
    headers = () if Part.HEADERS in receipt.omitted else control.headers
    return Record(deliver_id, receipt_value(receipt), headers, control.timestamp_ms)
