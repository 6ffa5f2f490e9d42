"""Reads controls, which cancel, replace or move earlier records, and the receipts that tell their outcome."""

import json
from dataclasses import dataclass
from typing import Final

from sidecar.dev.audit.record import AuditedRecord, digest, instant_ms
from sidecar.dev.audit.where import AuditedWhere

_CANCEL: Final = "deliver-cancel"
_REPLACE: Final = "deliver-replace"
_MOVE: Final = "deliver-move"
_WHERE: Final = "deliver-cancel-where"
_IF_DUE: Final = "deliver-if-due"
_ID: Final = "deliver-id"

_DONE: Final = {"cancel": "cancelled", "replace": "replaced", "move": "moved"}
_NOT_MOVED: Final = "not-moved"
_BY_QUERY: Final = "cancel-where"
_CANCELLED_BY_QUERY: Final = "cancelled-where"
_IN_VAIN: Final = frozenset({"not-pending", "changed", _NOT_MOVED})


@dataclass(frozen=True, slots=True)
class AuditedControl:
    """A control; its ``action`` is ``cancel``, ``move``, ``cancel-where``, or ``replace`` if it is a schedule itself.

    A ``conditional`` control applies only to records due at ``if_due_ms``, which is None if it cannot be read.
    ``headers`` is the digest of all its headers. ``where`` is the predicate of a control that cancels by query.
    """

    action: str
    conditional: bool
    if_due_ms: int | None
    deliver_id: bytes | None
    headers: bytes
    where: AuditedWhere | None = None


@dataclass(frozen=True, slots=True)
class AuditedReceipt:
    """A receipt: the id of its control, the ``outcome``, and the offsets of the records that it names.

    ``due_ms`` is the due time of the schedule that goes on. ``unnamed`` is the number of further records, whose list
    was too large for the topic. ``whole`` says that the receipt has the headers of its control. ``matched`` is the
    number of records that a query has cancelled, None if the receipt does not tell it.
    """

    deliver_id: bytes | None
    action: str
    outcome: str
    offsets: tuple[int, ...]
    unnamed: int
    whole: bool
    due_ms: int | None
    matched: int | None = None

    @property
    def is_in_vain(self) -> bool:
        """Says that the control found no record to act on, or that the router could not write the moved record."""
        return self.outcome in _IN_VAIN

    @property
    def is_move(self) -> bool:
        """Says that one of the named records goes on in a new record."""
        return self.action == "move" and self.outcome == _DONE["move"]

    @property
    def done(self) -> str:
        """Outcome of the records that the receipt names: ``cancelled``, ``replaced`` or ``moved``.

        A move whose last schedule could not be written again has cancelled the other records.
        """
        if self.action == _BY_QUERY or self.outcome == _DONE["cancel"]:
            return _DONE["cancel"]
        return _DONE[self.action]

    def answers(self, control: AuditedControl) -> bool:
        """Say whether the receipt tells a possible outcome of this control."""
        if _BY_QUERY in (self.action, control.action):
            fits = self.outcome == _CANCELLED_BY_QUERY and self.due_ms is None and self.deliver_id is None
            return fits and self.action == control.action
        found = self.offsets or self.unnamed
        may_be = {self.done, _DONE["cancel"]} if self.action == "move" else {_DONE[self.action]}
        fits = not found if self.is_in_vain else bool(found) and self.outcome in may_be
        fits = fits and (control.conditional or self.outcome != "changed")
        return fits and self.action == control.action and (self.action == "move" or self.outcome != _NOT_MOVED)


def control_of(record: AuditedRecord) -> AuditedControl | None:
    """Return the control in a record, or None if the record is only a schedule.

    A record that contradicts itself is a control too: it must come back as rejected, and then has no receipt.
    """
    named = {name.lower(): raw for name, raw in record.headers if name.lower().startswith("deliver-")}
    if _WHERE in named:
        where, headers = AuditedWhere.of(named[_WHERE]), digest(None, None, record.headers)
        return AuditedControl(_BY_QUERY, False, None, None, headers, where)
    if not named.keys() & {_CANCEL, _REPLACE, _MOVE}:
        return None
    action = "cancel" if _CANCEL in named else "move" if _MOVE in named else "replace"
    deliver_id = named.get(_ID if action == "replace" else f"deliver-{action}")
    try:
        if_due_ms = instant_ms(named[_IF_DUE]) if _IF_DUE in named else None
    except ValueError:
        if_due_ms = None
    return AuditedControl(action, _IF_DUE in named, if_due_ms, deliver_id, digest(None, None, record.headers))


def deliver_id_of(record: AuditedRecord) -> bytes | None:
    """Return the id in the native header of a record; None if it has no id, or has it in a header unknown here."""
    return next((raw for name, raw in record.headers if name.lower() == _ID), None)


def receipt_of(record: AuditedRecord) -> AuditedReceipt | None:
    """Parse the record of a receipt; return None if it is no receipt."""
    try:
        said = json.loads(record.value or b"")
        action, outcome, left_out = str(said["action"]), str(said["outcome"]), said.get("omitted", {})
        offsets = tuple(int(each["offset"]) for each in said["cancelled"])
        unnamed, whole = int(left_out.get("cancelled", 0)), "headers" not in left_out
        due_ms = None if said["due"] is None else int(said["due"])
        matched = None if said.get("matched") is None else int(said["matched"])
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    if action not in {*_DONE, _BY_QUERY}:
        return None
    return AuditedReceipt(record.key, action, outcome, offsets, unnamed, whole, due_ms, matched)
