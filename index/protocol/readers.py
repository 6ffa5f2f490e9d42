"""Readers of control header values: milliseconds, a partition, or bytes.

A value that cannot be read raises a ValueError with the allowed values; the caller knows the header and the value, and
adds them. A number that is well formed, but only makes sense in another unit, raises an ``UnitSuspectedError``: a
record must not come a thousand times too early or too late because of a unit.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from index.protocol.headers import Alias, HeaderRole, Unit
from index.protocol.times import (
    INT64_MAX,
    parse_duration_ms,
    parse_instant_ms,
    parse_iso_duration_ms,
    parse_nservicebus_ms,
    parse_number,
    parse_number_or_iso_ms,
)

MAX_PARTITION: Final = 2**31 - 1
MAX_ID_BYTES: Final = 256

Reader: TypeAlias = Callable[[bytes], int | bytes]
"""Function that turns a header value into ms, a partition, or bytes."""

MAX_HOPS: Final = 16
"""Most routers in a row that may pass a record on without a time. A record goes through two or three delay topics at
most, but delay topics of different routers that deliver to each other would pass it on forever."""

_USUAL_DIGITS: Final = 13
_FIRST_SECONDS: Final = 10**9  # 2001 in seconds; in milliseconds it would be January 1970
_FIRST_MILLIS: Final = 10**11  # 1973 in milliseconds; in seconds it would be the year 5138
_FIRST_MICROS: Final = 10**14  # 1973 in microseconds; in milliseconds it would be the year 5138
_FIRST_NANOS: Final = 10**17  # 1973 in nanoseconds
_MICROS_PER_MS: Final = 1_000
_LONG_BYTES: Final = 8


class UnitSuspectedError(ValueError):
    """A number that is well formed but only makes sense in another unit than the header's."""


class RefusedNameError(ValueError):
    """A header whose name is refused with any value."""


def reader(alias: Alias, *, short: bool = True) -> Reader:
    """Return the reader of the values of this header; raise ValueError when the role is not written in that unit.

    Without ``short``, durations like ``15m`` are refused, as in the rules of 0.1.0.
    """
    known = (alias.role, alias.unit)
    found = _BEFORE_SHORT.get(known) if not short else None
    found = found or _READERS.get(known)
    if found is None:
        units = " or ".join(unit for role, unit in _READERS if role == alias.role)
        raise ValueError(f"alias {alias.name!r}: role '{alias.role}' takes unit {units}, not {alias.unit}")
    return found


def _at_native(raw: bytes) -> int:
    # Milliseconds from 2001 to 2286 have so many digits: nearly every record has them, and no other unit fits.
    if len(raw) == _USUAL_DIGITS and raw.isdigit() and raw >= b"1":
        return int(raw)
    return _at_ms(raw) if raw.isdigit() else _at_rfc3339(raw)


def _at_ms(raw: bytes) -> int:
    return _plausible_ms(parse_number(raw))


def _at_be_ms(raw: bytes) -> int:
    return _plausible_ms(_big_endian(raw))


def is_certain(milliseconds: int) -> bool:
    """Return whether a due time written as this number can only be milliseconds."""
    return milliseconds < _FIRST_SECONDS or _FIRST_MILLIS <= milliseconds < _FIRST_MICROS


def _plausible_ms(value: int) -> int:
    if is_certain(value):
        return value
    raise UnitSuspectedError(f"looks like {_unit_of(value)}, but the unit is milliseconds since 1970")


def _at_s(raw: bytes) -> int:
    value = parse_number(raw)
    if value < _FIRST_MILLIS:
        return value * 1000
    raise UnitSuspectedError(f"looks like {_unit_of(value)}, but the unit is seconds since 1970")


def _at_us(raw: bytes) -> int:
    value = parse_number(raw)
    if value < _FIRST_SECONDS or _FIRST_MICROS <= value < _FIRST_NANOS:
        return -(-value // _MICROS_PER_MS)
    raise UnitSuspectedError(f"looks like {_unit_of(value)}, but the unit is microseconds since 1970")


def _unit_of(value: int) -> str:
    if value < _FIRST_MILLIS:
        return "seconds"
    if value < _FIRST_MICROS:
        return "milliseconds"
    return "microseconds" if value < _FIRST_NANOS else "nanoseconds"


def _at_rfc3339(raw: bytes) -> int:
    # A time before 1970 is as past as 1970 is; due times are never negative.
    return max(parse_instant_ms(raw), 0)


def _at_nservicebus(raw: bytes) -> int:
    return max(parse_nservicebus_ms(raw), 0)


def _after_s(raw: bytes) -> int:
    duration_ms = parse_number(raw) * 1000
    if duration_ms > INT64_MAX:
        raise ValueError(f"the duration is longer than {INT64_MAX} milliseconds")
    return duration_ms


def _after_us(raw: bytes) -> int:
    return -(-parse_number(raw) // _MICROS_PER_MS)


def _big_endian(raw: bytes) -> int:
    value = int.from_bytes(raw, "big", signed=True)
    if 1 <= len(raw) <= _LONG_BYTES and value >= 0:
        return value
    raise ValueError(f"expected a big-endian binary number of 1 to {_LONG_BYTES} bytes that is not negative")


def read_hops(raw: bytes) -> int:
    """Read the number in ``delay-hops``; return 0 for a value that no router has written."""
    try:
        return parse_number(raw)
    except ValueError:
        return 0


def _as_is(raw: bytes) -> bytes:
    return raw


def _partition(raw: bytes) -> int:
    partition = parse_number(raw)
    if partition > MAX_PARTITION:
        raise ValueError(f"a partition is at most {MAX_PARTITION}")
    return partition


def _id(raw: bytes) -> bytes:
    if len(raw) > MAX_ID_BYTES:
        raise ValueError(f"an id has up to {MAX_ID_BYTES} bytes")
    return raw


def _kind(raw: bytes) -> bytes:
    if raw != b"schedule":
        raise ValueError("only 'schedule' is supported; cancellations are not")
    return raw


def _refused(_: bytes) -> bytes:
    raise ValueError("not supported here, and ignoring it would deliver something else than was asked for")


_READERS: Final[Mapping[tuple[HeaderRole, Unit], Reader]] = {
    (HeaderRole.AT, Unit.NATIVE): _at_native,
    (HeaderRole.AT, Unit.MS): _at_ms,
    (HeaderRole.AT, Unit.S): _at_s,
    (HeaderRole.AT, Unit.RFC3339): _at_rfc3339,
    (HeaderRole.AT, Unit.US): _at_us,
    (HeaderRole.AT, Unit.BE_MS): _at_be_ms,
    (HeaderRole.AT, Unit.NSERVICEBUS): _at_nservicebus,
    (HeaderRole.AFTER, Unit.NATIVE): parse_duration_ms,
    (HeaderRole.AFTER, Unit.MS): parse_number,
    (HeaderRole.AFTER, Unit.S): _after_s,
    (HeaderRole.AFTER, Unit.ISO8601): parse_iso_duration_ms,
    (HeaderRole.AFTER, Unit.US): _after_us,
    (HeaderRole.AFTER, Unit.BE_MS): _big_endian,
    (HeaderRole.TO, Unit.NATIVE): _as_is,
    (HeaderRole.KEY, Unit.NATIVE): _as_is,
    (HeaderRole.PARTITION, Unit.NATIVE): _partition,
    (HeaderRole.ID, Unit.NATIVE): _id,
    (HeaderRole.EXPIRE, Unit.NATIVE): parse_duration_ms,
    (HeaderRole.EXPIRE, Unit.MS): parse_number,
    (HeaderRole.EXPIRE, Unit.S): _after_s,
    (HeaderRole.EXPIRE, Unit.ISO8601): parse_iso_duration_ms,
    (HeaderRole.EXPIRE, Unit.US): _after_us,
    (HeaderRole.EXPIRE, Unit.BE_MS): _big_endian,
    (HeaderRole.KIND, Unit.NATIVE): _kind,
    (HeaderRole.REFUSED, Unit.NATIVE): _refused,
    (HeaderRole.IGNORED, Unit.NATIVE): _as_is,
    (HeaderRole.HOPS, Unit.NATIVE): read_hops,
}

_BEFORE_SHORT: Final[Mapping[tuple[HeaderRole, Unit], Reader]] = dict.fromkeys(
    ((HeaderRole.AFTER, Unit.NATIVE), (HeaderRole.EXPIRE, Unit.NATIVE)), parse_number_or_iso_ms
)
