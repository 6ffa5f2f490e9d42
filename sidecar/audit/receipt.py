"""Controls, which cancel, replace or move what was sent before, and the receipts that say what became of them."""

import json
from dataclasses import dataclass
from typing import Final

from sidecar.audit.record import Record, digest, instant_ms

_CANCEL: Final = "deliver-cancel"
_REPLACE: Final = "deliver-replace"
_MOVE: Final = "deliver-move"
_IF_DUE: Final = "deliver-if-due"
_ID: Final = "deliver-id"

_DONE: Final = {"cancel": "cancelled", "replace": "replaced", "move": "moved"}
_NOT_MOVED: Final = "not-moved"
_IN_VAIN: Final = frozenset({"not-pending", "changed", _NOT_MOVED})


@dataclass(frozen=True, slots=True)
class Control:
    """What a control asks for: its ``action`` is ``cancel``, ``move``, or ``replace`` where it is a schedule itself.

    ``conditional``: it holds only for what is due at ``if_due_ms``, None where that cannot be read. ``headers`` is the
    digest of all its headers.
    """

    action: str
    conditional: bool
    if_due_ms: int | None
    deliver_id: bytes | None
    headers: bytes


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a receipt says: of which id, the ``outcome``, and the offsets of what it names.

    ``due_ms``: when the schedule is due that goes on; ``unnamed``: how many more it stands for, whose list its topic
    has refused; ``whole``: its control's headers are there.
    """

    deliver_id: bytes | None
    action: str
    outcome: str
    offsets: tuple[int, ...]
    unnamed: int
    whole: bool
    due_ms: int | None

    @property
    def is_in_vain(self) -> bool:
        """Whether its control found nothing of what it was to act on, or could not write that again."""
        return self.outcome in _IN_VAIN

    @property
    def is_move(self) -> bool:
        """Whether one of what it names goes on in a record of its own."""
        return self.action == "move" and self.outcome == _DONE["move"]

    @property
    def done(self) -> str:
        """What became of the records that it names: ``cancelled``, ``replaced`` or ``moved``.

        A move whose last schedule could not be written again has cancelled the others.
        """
        return self.outcome if self.outcome == _DONE["cancel"] else _DONE[self.action]

    def answers(self, control: Control) -> bool:
        """Whether it says of such a control what can have become of it."""
        found = self.offsets or self.unnamed
        may_be = {self.done, _DONE["cancel"]} if self.action == "move" else {_DONE[self.action]}
        fits = not found if self.is_in_vain else bool(found) and self.outcome in may_be
        fits = fits and (control.conditional or self.outcome != "changed")
        return fits and self.action == control.action and (self.action == "move" or self.outcome != _NOT_MOVED)


def control_of(record: Record) -> Control | None:
    """What a record asks for; None where it is a schedule only.

    One that contradicts itself is a control, too: it must come back as rejected, and then has no receipt.
    """
    named = {name.lower(): raw for name, raw in record.headers if name.lower().startswith("deliver-")}
    if not named.keys() & {_CANCEL, _REPLACE, _MOVE}:
        return None
    action = "cancel" if _CANCEL in named else "move" if _MOVE in named else "replace"
    deliver_id = named.get(_ID if action == "replace" else f"deliver-{action}")
    try:
        if_due_ms = instant_ms(named[_IF_DUE]) if _IF_DUE in named else None
    except ValueError:
        if_due_ms = None
    return Control(action, _IF_DUE in named, if_due_ms, deliver_id, digest(None, None, record.headers))


def deliver_id_of(record: Record) -> bytes | None:
    """The id a record has under its native name; None where it has none, or one by a name unknown here."""
    return next((raw for name, raw in record.headers if name.lower() == _ID), None)


def receipt_of(record: Record) -> Receipt | None:
    """What the record of a receipt says; None where it is no receipt."""
    try:
        said = json.loads(record.value or b"")
        action, outcome, left_out = str(said["action"]), str(said["outcome"]), said.get("omitted", {})
        offsets = tuple(int(each["offset"]) for each in said["cancelled"])
        unnamed, whole = int(left_out.get("cancelled", 0)), "headers" not in left_out
        due_ms = None if said["due"] is None else int(said["due"])
    except (ValueError, OverflowError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Receipt(record.key, action, outcome, offsets, unnamed, whole, due_ms) if action in _DONE else None
