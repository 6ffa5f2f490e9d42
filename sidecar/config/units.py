"""Parses and formats durations and sizes as people write them (``500ms``, ``7d``, ``512MiB``), also for pydantic.

::

    duration  =  "0" | digits ("ms" | "s" | "m" | "h" | "d")
    size      =  "0" | digits ("B" | "KiB" | "MiB" | "GiB")

A value has one unit, no fraction and no space, so it has one notation and needs no rounding. The model keeps the unit
in the name of the attribute (``tick_ms``), the file keeps it in the value (``tick = "10ms"``).

:mod:`sidecar.durations` formats durations in messages for people.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from index.protocol.times import parse_instant_ms
from index.rules.retrying import ONE, thousandths

_DURATION_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE_UNITS_BYTES: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_QUANTITY: Final = re.compile(r"([0-9]{1,15})([A-Za-z]*)")

MAX_DURATION_MS: Final = 36_500 * 86_400_000
"""A hundred years: a longer duration is a typing error, and sums with it would exceed 64 bits."""

MAX_SIZE_BYTES: Final = 1 << 50

MAX_INSTANT_MS: Final = 253_402_300_799_999
"""The last moment of the year 9999, beyond which RFC 3339 has no dates."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration_ms(raw: object) -> int:
    """Parse ``10s``, ``36h``, ... into milliseconds; ``0`` needs no unit. Raise ValueError, which tells the grammar.

    >>> parse_duration_ms("36h"), parse_duration_ms("0")
    (129600000, 0)
    >>> parse_duration_ms("36")
    Traceback (most recent call last):
    ...
    ValueError: a duration is written like 500ms, 10s, 5m, 36h, 7d, not '36': the unit is missing
    """
    return _quantity(raw, _DURATION_UNITS_MS, MAX_DURATION_MS, "a duration is written like 500ms, 10s, 5m, 36h, 7d")


def parse_size_bytes(raw: object) -> int:
    """Parse ``512MiB``, ... into bytes; ``0`` needs no unit. Raise ValueError, which tells the grammar."""
    return _quantity(raw, _SIZE_UNITS_BYTES, MAX_SIZE_BYTES, "a size is written like 100B, 64KiB, 512MiB, 2GiB")


def format_duration(duration_ms: int) -> str:
    """Return the shortest notation that ``parse_duration_ms`` reads back as the same number."""
    return _formatted(duration_ms, _DURATION_UNITS_MS)


def format_size(size_bytes: int) -> str:
    """Return the shortest notation that ``parse_size_bytes`` reads back as the same number.

    >>> format_size(1_048_576), format_size(1_500)
    ('1MiB', '1500B')
    """
    return _formatted(size_bytes, _SIZE_UNITS_BYTES)


def format_thousandths(number: int) -> float:
    """Return the number of which ``thousandths`` reads these thousandths.

    >>> format_thousandths(2_000), format_thousandths(100)
    (2, 0.1)
    """
    return number / ONE if number % ONE else number // ONE


def parse_instant(raw: object) -> int:
    """Parse an RFC 3339 instant with an offset into milliseconds since 1970; raise ValueError for any other text."""
    try:
        return parse_instant_ms(raw.encode() if isinstance(raw, str) else b"")
    except ValueError as error:
        raise ValueError(f"{error}; not {raw!r}") from None


def format_instant(time_ms: int) -> str:
    """Return the instant in UTC, with milliseconds only if they are not zero.

    >>> format_instant(0), format_instant(1_500)
    ('1970-01-01T00:00:00Z', '1970-01-01T00:00:01.500Z')
    """
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return moment.isoformat(timespec="milliseconds" if time_ms % 1_000 else "seconds").replace("+00:00", "Z")


def parse_count(raw: object) -> object:
    """Refuse ``true`` in place of a number (Python counts it as 1); pass every other value on to pydantic."""
    if isinstance(raw, bool):
        # pydantic collects ValueError, not TypeError.
        raise ValueError(f"a whole number is needed, not {str(raw).lower()}")  # noqa: TRY004 - see above
    return raw


DurationMs = Annotated[int, BeforeValidator(parse_duration_ms)]
"""Milliseconds; written with a unit in the configuration."""

SizeBytes = Annotated[int, BeforeValidator(parse_size_bytes)]
"""Bytes; written with a unit in the configuration."""

InstantMs = Annotated[int, BeforeValidator(parse_instant), Field(ge=0, le=MAX_INSTANT_MS)]
"""Milliseconds since 1970; written as an RFC 3339 instant."""

Thousandths = Annotated[int, BeforeValidator(thousandths)]
"""Thousandths; written as a number."""

Count = Annotated[int, BeforeValidator(parse_count)]
"""A whole number."""


def _quantity(raw: object, units: dict[str, int], limit: int, grammar: str) -> int:
    match = _QUANTITY.fullmatch(raw if isinstance(raw, str) else repr(raw))
    if match is None:
        raise ValueError(f"{grammar}, not {raw!r}")
    number, unit = int(match[1]), match[2]
    if number == 0 and not unit:
        return 0
    if unit not in units:
        problem = f"unknown unit {unit!r}" if unit else "the unit is missing"
        raise ValueError(f"{grammar}, not {raw!r}: {problem}")
    if number * units[unit] > limit:
        raise ValueError(f"{raw!r} is more than {_formatted(limit, units)}")
    return number * units[unit]


def _formatted(number: int, units: dict[str, int]) -> str:
    if number == 0:
        return "0"
    for unit, factor in reversed(units.items()):
        if number % factor == 0:
            return f"{number // factor}{unit}"
    raise AssertionError("the smallest unit divides every whole number")
