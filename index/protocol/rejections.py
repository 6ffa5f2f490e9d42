"""Rejections for bad headers: their messages, and the choice among several problems of one record.

Messages go into the rejected topic: printable and short, and they name the allowed values.
"""

from typing import Final

from index.protocol.headers import HeaderRole, quoted
from index.protocol.readers import RefusedNameError, UnitSuspectedError
from index.protocol.schedule import Reason, Rejection

_ORDER: Final = (
    Reason.AMBIGUOUS_HEADER,
    Reason.INVALID_SCHEDULE,
    Reason.UNIT_SUSPECTED,
    Reason.MAX_DELAY_EXCEEDED,
    Reason.TARGET_MISSING,
    Reason.TARGET_NOT_ALLOWED,
    Reason.DELAY_DISABLED,
)

REFUSED_NAME: Final = Rejection(Reason.INVALID_SCHEDULE, "")
"""Placeholder for a header whose name is refused. The message is made at the end, for the first such header, because a
record may have very many."""


def repeated(name: str, role: HeaderRole) -> Rejection:
    """Return the rejection of a record that gives a role twice."""
    message = f"{name}: '{role}' is given more than once, by this header or an alias of it"
    return Rejection(Reason.AMBIGUOUS_HEADER, message)


def unreadable(name: str, raw: bytes | None, error: ValueError) -> Rejection:
    """Return the rejection for a value that its reader refuses; REFUSED_NAME where the name itself is refused."""
    if isinstance(error, RefusedNameError):
        return REFUSED_NAME
    if isinstance(error, UnitSuspectedError):
        return Rejection(Reason.UNIT_SUSPECTED, f"{name} {quoted(raw)} {error}")
    return Rejection(Reason.INVALID_SCHEDULE, f"{name} {quoted(raw)}: {error}")


def rank(problem: Rejection) -> int:
    """Return the rank of a problem in the order of reasons; the lowest rank is the reason given."""
    return _ORDER.index(problem.reason)


def passed_on(hops: int) -> Rejection:
    """Return the rejection of a record that routers release into delay topics again and again, without a time."""
    message = (
        f"routers have passed this record on {hops} times in a row without a time: do delay topics of several routers"
        " deliver to each other?"
    )
    return Rejection(Reason.INVALID_SCHEDULE, message)
