"""Recurring schedules: reads their headers, and computes when the first occurrence is due.

::

    deliver-every     a length of time   next due = last due + this; first at deliver-at or -after, else after a period
    deliver-cron      five fields        at these minutes in deliver-timezone, from deliver-at or -after on, else now
    deliver-timezone  an IANA name       of the minutes of deliver-cron; default UTC
    deliver-until     an instant         no occurrence is due after it
    deliver-times     a number           there are no more occurrences than this
    deliver-missed    one, all           after downtime one late occurrence and then the next, or each that was missed

A schedule by cron is due at once, even if its headers name a time. It is not released then: it *begins*, and the router
writes its first occurrence, which carries its own due time. So a decision never depends on the rules of a time zone,
which change several times a year: decisions by older rules could not be repeated. The zone is asked once for each
occurrence, by the transaction that writes it (:mod:`index.protocol.occurrences`).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from index.protocol.headers import RECURRING, SERIES, Alias, HeaderRole, Headers, lowered, quoted
from index.protocol.readers import reader
from index.protocol.rejections import unreadable
from index.protocol.schedule import AT_ONCE, Reason, Rejection
from index.protocol.times import INT64_MAX, parse_duration_ms, parse_number

EVERY: Final = "deliver-every"
CRON: Final = "deliver-cron"
ZONE: Final = "deliver-timezone"
UNTIL: Final = "deliver-until"
TIMES: Final = "deliver-times"
MISSED: Final = "deliver-missed"

UTC_ZONE: Final = "UTC"
MAX_TEXT_BYTES: Final = 256
"""Most bytes of cron fields and of a zone: cron fields that list every value take a little less."""

SIGNATURE_BYTES: Final = 16

_OURS: Final = RECURRING | {SERIES}
_SERIES_NUMBERS: Final = 3
_read_instant: Final = reader(Alias("", HeaderRole.AT))


class Occurrence(NamedTuple):
    """One occurrence of a series; the offset of the first record names the series, and ``number`` counts from 1."""

    first_offset: int
    number: int
    due_ms: int


class Recurrence(NamedTuple):
    """The recurrence of a schedule; ``occurrence`` and ``signature`` are set only in records that a router has written.

    Either ``period_ms`` or ``cron`` is set.
    """

    period_ms: int = 0
    cron: str = ""
    zone: str = UTC_ZONE
    until_ms: int = INT64_MAX
    times: int = INT64_MAX
    takes_all: bool = False
    occurrence: Occurrence | None = None
    signature: bytes = b""

    @property
    def begins(self) -> bool:
        """True if the record only begins a series: its first occurrence is still to be written."""
        return bool(self.cron) and self.occurrence is None


def may_recur(headers: Headers) -> bool:
    """Return whether a record has a header of a recurring schedule, which may still be null."""
    return any(lowered(name) in _OURS for name, _ in headers)


def recurrence_of(headers: Headers) -> Recurrence | Rejection | None:
    """Read how a record recurs; None where it does not, a rejection where its headers cannot be read.

    A null value counts as no header, as everywhere.

    >>> recurrence_of([("deliver-every", b"PT10S"), ("deliver-times", b"3")])[:5]
    (10000, '', 'UTC', 9223372036854775807, 3)
    >>> recurrence_of([("deliver-times", b"3")]).message
    'deliver-times: needs deliver-every or deliver-cron beside it'
    """
    found: dict[str, bytes] = {}
    for name, raw in headers:
        plain = lowered(name)
        if plain not in _OURS or raw is None:
            continue
        if plain in found:
            return Rejection(Reason.AMBIGUOUS_HEADER, f"{plain}: given more than once")
        found[plain] = raw
    if not found:
        return None
    if EVERY in found and CRON in found:
        return Rejection(Reason.AMBIGUOUS_HEADER, f"{EVERY} and {CRON}: a schedule recurs by one of them")
    if EVERY not in found and CRON not in found:
        return _invalid(min(found), f"needs {EVERY} or {CRON} beside it")
    if EVERY in found and ZONE in found:
        return _invalid(ZONE, f"needs {CRON} beside it: a period is the same everywhere")
    return _read(found)


def first_due(headers: Headers, start_ms: int | None, timestamp_ms: int, min_period_ms: int) -> int | Rejection | None:
    """Return when the record is due for the first time, by its headers; None where it does not recur.

    ``start_ms`` is the time in ``deliver-at`` or ``deliver-after``. A record written by a router carries its due time;
    its signature is checked when it is due.
    """
    recurrence = recurrence_of(headers)
    if recurrence is None or isinstance(recurrence, Rejection):
        return recurrence
    if recurrence.period_ms and recurrence.period_ms < min_period_ms:
        why = f"{recurrence.period_ms} ms are shorter than min_period of this delay topic, {min_period_ms} ms"
        return _invalid(EVERY, why)
    if recurrence.occurrence is not None:
        return recurrence.occurrence.due_ms
    if start_ms is None and timestamp_ms < 0:
        return _invalid(
            EVERY if recurrence.period_ms else CRON, "the record has no timestamp, from which it is counted"
        )
    if recurrence.cron:
        return AT_ONCE
    due_ms = timestamp_ms + recurrence.period_ms if start_ms is None else start_ms
    if due_ms > recurrence.until_ms:
        return _invalid(UNTIL, f"the first occurrence is due later, at {due_ms}")
    return due_ms


def series_header(occurrence: Occurrence, signature: bytes) -> tuple[str, bytes]:
    """Return the header by which a router recognises the next occurrence as its own."""
    return SERIES, b"%d %d %d " % occurrence + signature.hex().encode()


def _read(found: Mapping[str, bytes]) -> Recurrence | Rejection:
    read: dict[str, Any] = {}
    for name, raw in found.items():
        try:
            read |= _READERS[name](raw)
        except ValueError as error:
            return unreadable(name, raw, error)
    return Recurrence()._replace(**read)


def _every(raw: bytes) -> dict[str, Any]:
    period_ms = parse_duration_ms(raw)
    if not period_ms:
        raise ValueError("a period is longer than nothing")
    return {"period_ms": period_ms}


def _text(raw: bytes) -> str:
    if not 1 <= len(raw) <= MAX_TEXT_BYTES or not raw.isascii():
        raise ValueError(f"expected 1 to {MAX_TEXT_BYTES} ASCII characters")
    return raw.decode("ascii")


def _times(raw: bytes) -> dict[str, Any]:
    times = parse_number(raw)
    if not times:
        raise ValueError("at least 1")
    return {"times": times}


def _missed(raw: bytes) -> dict[str, Any]:
    if raw not in (b"one", b"all"):
        raise ValueError("expected 'one' or 'all'")
    return {"takes_all": raw == b"all"}


def _series(raw: bytes) -> dict[str, Any]:
    *numbers, signature = raw.split(b" ", _SERIES_NUMBERS)
    try:
        first_offset, number, due_ms = map(parse_number, numbers)
        signed = bytes.fromhex(signature.decode("ascii"))
    except ValueError:
        signed, first_offset, number, due_ms = b"", 0, 0, 0
    if len(signed) != SIGNATURE_BYTES or not number:
        raise ValueError("this header is written by routers alone")
    return {"occurrence": Occurrence(first_offset, number, due_ms), "signature": signed}


_READERS: Final[Mapping[str, Callable[[bytes], dict[str, Any]]]] = {
    EVERY: _every,
    CRON: lambda raw: {"cron": _text(raw)},
    ZONE: lambda raw: {"zone": _text(raw)},
    UNTIL: lambda raw: {"until_ms": _read_instant(raw)},
    TIMES: _times,
    MISSED: _missed,
    SERIES: _series,
}


def _invalid(name: str, why: str) -> Rejection:
    return Rejection(Reason.INVALID_SCHEDULE, f"{name}: {why}")


def problem_with(name: str, value: str, why: str) -> Rejection:
    """Return the rejection for a value that is only checked when a series begins."""
    return _invalid(f"{name} {quoted(value.encode())}", why)
