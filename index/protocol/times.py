"""Times in headers: a number, an ISO 8601 duration, a duration as in the configuration, or an RFC 3339 instant.

Every result is a whole number of milliseconds, found by integer arithmetic alone and rounded **up**, so that no
rounding ever delivers a record early.

========  =====================================  ============================================================
notation  accepted                               refused, among others
========  =====================================  ============================================================
number    1 to 19 ASCII digits, up to 2**63 - 1  signs, spaces, ``1_000``, ``1e3``, ``1.5``, other digits
duration  ``P1W``, ``P1DT12H``, ``PT0.250S``     years, months (no length of time), ``-PT1S``, ``P``, ``PT``
short     ``500ms 10s 5m 36h 7d``, one unit      ``1h30m``, ``1.5h``, ``15M``, ``15 m``, ``1w``, ``m``
instant   ``2030-01-31T08:00:00Z``, ``+02:00``   no offset, a space for the T, February 30, 24:00:00
foreign   ``2030-01-31 08:00:00:000000 Z``       another number of decimals, ``.`` in front of them, an offset
========  =====================================  ============================================================

The grammars are patterns of our own because the standard library is far more lenient: ``int()`` takes underscores,
signs and every Unicode digit; ``datetime.fromisoformat`` takes week dates and instants without an offset (reliability
note, rule S27). All functions raise ValueError with a message that says which notations are allowed; the caller knows
the header and the value, and adds them.
"""

import re
from datetime import date
from functools import lru_cache
from typing import Final

INT64_MAX: Final = 2**63 - 1
"""Kafka's timestamps are signed 64-bit milliseconds, so this is the largest."""

_MAX_DIGITS: Final = 19  # int64 has 19; the limit also keeps int() from working through a megabyte of digits
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_NANOS_PER_MS: Final = 1_000_000
_NANO_DIGITS: Final = 9
_SECONDS_PER: Final = (7 * 86_400, 86_400, 3_600, 60, 1)  # week, day, hour, minute, second
_LEAP_SECOND: Final = 60

_DURATION = re.compile(
    rb"P(?=[0-9T])"
    rb"(?:([0-9]{1,19})W)?"
    rb"(?:([0-9]{1,19})D)?"
    rb"(?:T(?=[0-9])"
    rb"(?:([0-9]{1,19})H)?"
    rb"(?:([0-9]{1,19})M)?"
    rb"(?:([0-9]{1,19})(?:[.,]([0-9]{1,9}))?S)?"
    rb")?"
)
_INSTANT = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    rb"[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]{1,9}))?"
    rb"(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_NSERVICEBUS = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}) ((?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]):([0-9]{6}) Z")
_SHORT = re.compile(rb"([0-9]{1,19})(ms|s|m|h|d)")
_SHORT_UNITS_MS: Final = {b"ms": 1, b"s": 1_000, b"m": 60_000, b"h": 3_600_000, b"d": 86_400_000}

_NUMBER_ALLOWED = f"expected a number of 1 to {_MAX_DIGITS} ASCII digits, at most {INT64_MAX}"
_DURATION_ALLOWED = (
    "expected milliseconds as ASCII digits, or an ISO 8601 duration of weeks, days, hours, minutes and seconds "
    "such as PT15M or P1DT12H (years and months are not a length of time; not negative)"
)
_ANY_DURATION_ALLOWED = _DURATION_ALLOWED + ", or a number and its unit such as 500ms, 10s, 5m, 36h, 7d"
_INSTANT_ALLOWED = (
    "expected an RFC 3339 instant with an offset, such as 2030-01-31T08:00:00Z or 2030-01-31T10:00:00+02:00"
)
_NSERVICEBUS_ALLOWED = "expected a time as NServiceBus writes it, such as 2030-01-31 08:00:00:000000 Z"


def parse_number(raw: bytes) -> int:
    """Read a plain number: 1 to 19 ASCII digits, at most 2**63 - 1."""
    if raw.isdigit() and len(raw) <= _MAX_DIGITS:
        value = int(raw)
        if value <= INT64_MAX:
            return value
    raise ValueError(_NUMBER_ALLOWED)


def parse_duration_ms(raw: bytes) -> int:
    """Read a length of time in ms: a number of milliseconds, an ISO 8601 duration rounded up, or ``15m``.

    >>> [parse_duration_ms(raw) for raw in (b"900000", b"PT15M", b"15m", b"PT0.0001S")]
    [900000, 900000, 900000, 1]
    >>> parse_duration_ms(b"P1M")
    Traceback (most recent call last):
    ...
    ValueError: expected milliseconds as ASCII digits, or an ISO 8601 duration of weeks, days, hours, minutes ...
    """
    if raw.isdigit():
        return parse_number(raw)
    return parse_written_duration_ms(raw)


def parse_number_or_iso_ms(raw: bytes) -> int:
    """Read a length of time in ms: a number of milliseconds, or an ISO 8601 duration rounded up."""
    if raw.isdigit():
        return parse_number(raw)
    return parse_iso_duration_ms(raw)


@lru_cache(maxsize=4096)
def parse_written_duration_ms(raw: bytes) -> int:
    """Read an ISO 8601 duration, or a number and its unit as in the configuration: ``500ms``, ``10s``, ``5m``, ``7d``.

    Producers name the same few lengths again and again, so they are remembered; a text that matches is short.
    """
    match = _SHORT.fullmatch(raw)
    if match is None:
        return parse_iso_duration_ms(raw, _ANY_DURATION_ALLOWED)
    duration_ms = int(match[1]) * _SHORT_UNITS_MS[match[2]]
    if duration_ms > INT64_MAX:
        raise ValueError(f"the duration is longer than {INT64_MAX} milliseconds")
    return duration_ms


@lru_cache(maxsize=4096)
def parse_iso_duration_ms(raw: bytes, allowed: str = _DURATION_ALLOWED) -> int:
    """Read an ISO 8601 duration, weeks to seconds with up to 9 decimals on these, as ms rounded up.

    ``allowed`` is the error message for any other text.

    Producers name the same few lengths again and again, so they are remembered; a text that matches is short.
    """
    match = _DURATION.fullmatch(raw)
    if match is None:
        raise ValueError(allowed)
    *amounts, fraction = match.groups()
    seconds = sum(int(amount or 0) * unit for amount, unit in zip(amounts, _SECONDS_PER, strict=True))
    duration_ms = seconds * 1000 + _fraction_ms(fraction)
    if duration_ms > INT64_MAX:
        raise ValueError(f"the duration is longer than {INT64_MAX} milliseconds")
    return duration_ms


def parse_instant_ms(raw: bytes) -> int:
    """Read an RFC 3339 instant as ms since 1970, rounded up; negative before 1970.

    The offset is mandatory and ``-00:00`` counts as UTC. Second 60, a leap second, has no number of its own in
    Unix time: any part of it is the start of the next minute, the first moment that is certainly not early.

    >>> parse_instant_ms(b"2030-01-31T08:00:00Z") == parse_instant_ms(b"2030-01-31T10:00:00+02:00")
    True
    >>> parse_instant_ms(b"1970-01-01T00:00:00.0001Z")
    1
    >>> parse_instant_ms(b"2030-01-31T08:00:00")
    Traceback (most recent call last):
    ...
    ValueError: expected an RFC 3339 instant with an offset, such as 2030-01-31T08:00:00Z or 2030-01-31T10:00:00+02:00
    """
    match = _INSTANT.fullmatch(raw)
    if match is None:
        raise ValueError(_INSTANT_ALLOWED)
    day, hour, minute, second, fraction, sign, offset_hour, offset_minute = match.groups()
    minutes = _days_since_1970(day) * 1440 + int(hour) * 60 + int(minute)
    if sign is not None:
        ahead_minutes = int(offset_hour) * 60 + int(offset_minute)
        minutes += ahead_minutes if sign == b"-" else -ahead_minutes
    instant_ms = (minutes * 60 + int(second)) * 1000
    return instant_ms if int(second) == _LEAP_SECOND else instant_ms + _fraction_ms(fraction)


def parse_nservicebus_ms(raw: bytes) -> int:
    """Read an instant as NServiceBus writes it, as ms since 1970, rounded up.

    >>> parse_nservicebus_ms(b"2030-01-31 08:00:00:000001 Z") - parse_instant_ms(b"2030-01-31T08:00:00Z")
    1
    """
    match = _NSERVICEBUS.fullmatch(raw)
    if match is None:
        raise ValueError(_NSERVICEBUS_ALLOWED)
    return parse_instant_ms(b"%bT%b.%bZ" % match.groups())


@lru_cache(maxsize=4096)
def _days_since_1970(day: bytes) -> int:
    """Count the days to a date written YYYY-MM-DD; schedules name few, so most are remembered."""
    try:
        return date.fromisoformat(day.decode()).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise ValueError(f"no such date: {error}") from None


def _fraction_ms(decimals: bytes | None) -> int:
    """Turn the decimals of a second into ms, rounded up: b"0001" is 1."""
    if decimals is None:
        return 0
    nanos = int(decimals.ljust(_NANO_DIGITS, b"0"))
    return -(-nanos // _NANOS_PER_MS)
