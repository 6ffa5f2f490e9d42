"""What is said of a record that is rejected for its headers, and which of several problems it is said to have.

Messages go into the rejected topic: printable, short, and with what is allowed.
"""

from typing import Final

from index.headers import Role, quoted
from index.readers import RefusedNameError, UnitSuspectedError
from index.schedule import Reason, Rejection

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
"""Stands for a header whose name is refused. What is said of it is worked out at the end, for the first: a record may
have very many."""


def repeated(name: str, role: Role) -> Rejection:
    """A role is given twice."""
    message = f"{name}: '{role}' is given more than once, by this header or an alias of it"
    return Rejection(Reason.AMBIGUOUS_HEADER, message)


def unreadable(name: str, raw: bytes | None, error: ValueError) -> Rejection:
    """A value cannot be read, as the error of its reader says; REFUSED_NAME where nothing of that name is read."""
    if isinstance(error, RefusedNameError):
        return REFUSED_NAME
    if isinstance(error, UnitSuspectedError):
        return Rejection(Reason.UNIT_SUSPECTED, f"{name} {quoted(raw)} {error}")
    return Rejection(Reason.INVALID_SCHEDULE, f"{name} {quoted(raw)}: {error}")


def rank(problem: Rejection) -> int:
    """Place of a problem in the order of reasons, the first of which is the reason given."""
    return _ORDER.index(problem.reason)


def passed_on(hops: int) -> Rejection:
    """Routers have released the record into delay topics all the time, and nobody has named a time."""
    message = (
        f"routers have passed this record on {hops} times in a row without a time: do delay topics of several routers"
        " deliver to each other?"
    )
    return Rejection(Reason.INVALID_SCHEDULE, message)
