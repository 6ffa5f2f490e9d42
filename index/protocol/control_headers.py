"""Reads the control headers of a record: ``deliver-cancel``, ``-replace``, ``-move``, ``-if-due``, ``-cancel-where``.

They are rare, so they are read together, and only where a record has one of them. Only the headers decide: the same
record is the same control on every replay.

A record that cancels, by an id or by a predicate, is no schedule. So a header with a due time or a target contradicts
it. A record that moves is no schedule either: it gives a due time and nothing else.
"""

from collections.abc import Callable
from typing import Final

from index.protocol.headers import CONTROL_PREFIX, RECURRING, Alias, HeaderRole, Headers, lowered, quoted
from index.protocol.readers import reader
from index.protocol.rejections import unreadable
from index.protocol.schedule import Action, Control, Reason, Rejection
from index.protocol.where import parse_where

CANCEL: Final = CONTROL_PREFIX + "cancel"
REPLACE: Final = CONTROL_PREFIX + "replace"
MOVE: Final = CONTROL_PREFIX + "move"
IF_DUE: Final = CONTROL_PREFIX + "if-due"
CANCEL_WHERE: Final = CONTROL_PREFIX + "cancel-where"
NAMES: Final = frozenset((CANCEL, REPLACE, MOVE, IF_DUE, CANCEL_WHERE))
_TIMES: Final = (HeaderRole.AT, HeaderRole.AFTER)

_read_id: Final = reader(Alias(CANCEL, HeaderRole.ID))
_read_instant: Final = reader(Alias(IF_DUE, HeaderRole.AT))


def control_of(headers: Headers, says: Callable[[str], HeaderRole | None]) -> Control | Rejection | None:
    """Read the control of a record; None where it is only a schedule, a rejection where its headers cannot be followed.

    ``says`` returns the role of another header, None where the header is the user's.

    >>> control_of([("deliver-cancel", b"order-7"), ("trace", b"1")], says={}.get)[:2]
    (<Action.CANCEL: 'cancel'>, b'order-7')
    """
    given: dict[str, bytes | None] = {}
    for name, raw in headers:
        plain = lowered(name)
        if plain not in NAMES:
            continue
        if plain in given:
            return Rejection(Reason.AMBIGUOUS_HEADER, f"{name}: is given more than once")
        given[plain] = raw
    if not given:
        return None
    others = {role: (name, raw) for name, raw in headers if (role := says(name)) is not None}
    recurs = {name for name, raw in headers if raw is not None and lowered(name) in RECURRING}
    if CANCEL_WHERE in given:
        return _cancel_where(given, {name for name, _ in others.values()} | recurs)
    if CANCEL in given:
        return _cancel(given, {name for name, _ in others.values()} | recurs)
    if MOVE in given:
        return _move(given, others, recurs)
    if REPLACE not in given:
        return Rejection(Reason.INVALID_SCHEDULE, f"{IF_DUE}: only beside {CANCEL}, {REPLACE} or {MOVE}")
    return _replace(given, others)


def _cancel(given: dict[str, bytes | None], others: set[str]) -> Control | Rejection:
    if contradicting := sorted(others | (given.keys() & {REPLACE, MOVE})):
        message = f"{CANCEL} beside {contradicting[0]}: a record that cancels is no schedule"
        return Rejection(Reason.AMBIGUOUS_HEADER, message)
    return _control(Action.CANCEL, CANCEL, given[CANCEL], given)


def _cancel_where(given: dict[str, bytes | None], others: set[str]) -> Control | Rejection:
    if contradicting := sorted(others | (given.keys() - {CANCEL_WHERE})):
        message = f"{CANCEL_WHERE} beside {contradicting[0]}: a record that cancels by a predicate does nothing else"
        return Rejection(Reason.AMBIGUOUS_HEADER, message)
    raw = given[CANCEL_WHERE]
    try:
        return Control(Action.CANCEL_WHERE, b"", where=parse_where(_there(raw)).canonical())
    except ValueError as error:
        return unreadable(CANCEL_WHERE, raw, error)


def _move(
    given: dict[str, bytes | None], others: dict[HeaderRole, tuple[str, bytes | None]], recurs: set[str]
) -> Control | Rejection:
    named = {name for role, (name, _) in others.items() if role not in _TIMES}
    if contradicting := sorted(named | recurs | (given.keys() & {REPLACE})):
        message = f"{MOVE} beside {contradicting[0]}: a move changes only the due time of a schedule"
        return Rejection(Reason.AMBIGUOUS_HEADER, message)
    if not any(role in others and others[role][1] is not None for role in _TIMES):
        message = f"{MOVE}: deliver-at or deliver-after says when it is due from now on, and is missing"
        return Rejection(Reason.INVALID_SCHEDULE, message)
    return _control(Action.MOVE, MOVE, given[MOVE], given)


def _replace(given: dict[str, bytes | None], others: dict[HeaderRole, tuple[str, bytes | None]]) -> Control | Rejection:
    if given[REPLACE] != b"true":
        message = f"{REPLACE} {quoted(given[REPLACE])}: only 'true' is a value of it"
        return Rejection(Reason.INVALID_SCHEDULE, message)
    if HeaderRole.ID not in others:
        return Rejection(Reason.INVALID_SCHEDULE, f"{REPLACE}: deliver-id says which schedule, and is missing")
    return _control(Action.REPLACE, *others[HeaderRole.ID], given)


def _control(action: Action, name: str, raw: bytes | None, given: dict[str, bytes | None]) -> Control | Rejection:
    try:
        deliver_id = _read_id(_there(raw))
    except ValueError as error:
        return unreadable(name, raw, error)
    if IF_DUE not in given:
        return Control(action, bytes(deliver_id))
    try:
        if_due_ms = _read_instant(_there(given[IF_DUE]))
    except ValueError as error:
        return unreadable(IF_DUE, given[IF_DUE], error)
    return Control(action, bytes(deliver_id), int(if_due_ms))


def _there(raw: bytes | None) -> bytes:
    if raw is None:
        raise ValueError("a value is needed")
    return raw
