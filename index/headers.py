"""The control headers of the delay protocol: their names, their aliases, and how each value is read.

A delay topic's records say what they want in headers (ASCII, case-sensitive)::

    deliver-at         not before this instant: epoch milliseconds, or RFC 3339 with an offset
    deliver-after      relative to the record's own timestamp: milliseconds, or an ISO 8601 duration
    deliver-to         target topic; repeated = fan-out
    deliver-key        key of the released record
    deliver-partition  partition of the target
    deliver-id         the caller's name for this schedule, up to 256 bytes
    deliver-expire-after  how late it may be released at most, counted from its due time: as deliver-after, 0 = no limit

An *alias* is another header name with one of these roles, and with a unit of its own, so that producers of
another scheduler migrate without a release. ``PRESETS`` holds four such sets, taken from the documents and
sources of those systems. One difference stays: etf1 and Karafka release without a key when no target key is
given; this router keeps the key of the record, as for every other record.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

from index.times import INT64_MAX, parse_duration_ms, parse_instant_ms, parse_iso_duration_ms, parse_number

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
"""Record headers in order, duplicates kept; a null value is None, which is not an empty one."""

CONTROL_PREFIX: Final = "deliver-"
"""Every header of this prefix belongs to the protocol, known or not, and is removed on release."""

DELAY_DUE: Final = "delay-due"
DELAY_SOURCE: Final = "delay-source"
DELAY_SOURCE_TIMESTAMP: Final = "delay-source-timestamp"
DELAY_ID: Final = "delay-id"
DELAY_ERROR: Final = "delay-error"
DELAY_ERROR_MESSAGE: Final = "delay-error-message"

PROVENANCE: Final = frozenset((DELAY_DUE, DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP, DELAY_ID))
"""Headers the router adds to a released record; inbound ones of these names are dropped, so they can be trusted."""

_OURS = PROVENANCE | {DELAY_ERROR, DELAY_ERROR_MESSAGE}

MAX_PARTITION: Final = 2**31 - 1
MAX_ID_BYTES: Final = 256
_MAX_ALIAS_CHARS: Final = 256
_MAX_REMEMBERED: Final = 4096
_SHOWN_BYTES: Final = 80

_USUAL_DIGITS: Final = 13
_FIRST_SECONDS: Final = 10**9  # 2001 in seconds; in milliseconds it would be January 1970
_FIRST_MILLIS: Final = 10**11  # 1973 in milliseconds; in seconds it would be the year 5138
_FIRST_MICROS: Final = 10**14  # 1973 in microseconds; in milliseconds it would be the year 5138
_FIRST_NANOS: Final = 10**17  # 1973 in nanoseconds


class Role(StrEnum):
    """What a control header is for."""

    AT = "at"
    AFTER = "after"
    TO = "to"
    KEY = "key"
    PARTITION = "partition"
    ID = "id"
    EXPIRE = "expire-after"
    KIND = "kind"
    """Must be ``schedule``: systems that send cancellations through the same topic mark the records so."""
    REFUSED = "refused"
    """Asks for what this router does not do; ignoring it would deliver something else than was asked for."""
    IGNORED = "ignored"
    """Bookkeeping of the other system: removed on release, without a meaning here."""


class Unit(StrEnum):
    """How the value of a time header is written; the other roles have only ``NATIVE``."""

    NATIVE = "native"
    """As the ``deliver-`` header of that role: a number of milliseconds, or the ISO / RFC notation."""
    MS = "ms"
    S = "s"
    RFC3339 = "rfc3339"
    ISO8601 = "iso8601"


class Alias(NamedTuple):
    """Another name for a control header, and the unit its producers write."""

    name: str
    role: Role
    unit: Unit = Unit.NATIVE


PRESETS: Final[Mapping[str, tuple[Alias, ...]]] = {
    "cesium": (
        Alias("cesium-deliver-at", Role.AT, Unit.MS),
        Alias("cesium-delay-ms", Role.AFTER, Unit.MS),
    ),
    "etf1": (
        Alias("scheduler-epoch", Role.AT, Unit.S),
        Alias("scheduler-target-topic", Role.TO),
        Alias("scheduler-target-key", Role.KEY),
    ),
    "karafka": (
        Alias("schedule_target_epoch", Role.AT, Unit.S),
        Alias("schedule_target_topic", Role.TO),
        Alias("schedule_target_key", Role.KEY),
        Alias("schedule_target_partition", Role.PARTITION),
        Alias("schedule_target_partition_key", Role.REFUSED),
        Alias("schedule_source_type", Role.KIND),
        Alias("schedule_schema_version", Role.IGNORED),
    ),
    "timebridge": (
        Alias("X-Timebridge-When", Role.AT, Unit.RFC3339),
        Alias("X-Timebridge-Where", Role.TO),
    ),
}
"""Header sets of other schedulers, by the name used in the configuration."""

NATIVE: Final = tuple(
    Alias(CONTROL_PREFIX + role, role)
    for role in (Role.AT, Role.AFTER, Role.TO, Role.KEY, Role.PARTITION, Role.ID, Role.EXPIRE)
)


class UnitSuspectedError(ValueError):
    """A number that is well formed but only makes sense in another unit than the header's."""


Reader: TypeAlias = Callable[[bytes], int | bytes]
"""Turns a header value into ms, a partition, or bytes; raises ValueError saying what is allowed."""


def quoted(raw: bytes | None) -> str:
    """Show a header value in a message: printable ASCII, the rest escaped, and capped; safe in any log."""
    if raw is None:
        return "null"
    shown = repr(raw[:_SHOWN_BYTES])[1:]
    return shown if len(raw) <= _SHOWN_BYTES else f"{shown}... ({len(raw)} bytes)"


def reader(alias: Alias) -> Reader:
    """Return what reads values of this header; ValueError when the role is not written in that unit."""
    found = _READERS.get((alias.role, alias.unit))
    if found is None:
        units = " or ".join(unit for role, unit in _READERS if role == alias.role)
        raise ValueError(f"alias {alias.name!r}: role '{alias.role}' takes unit {units}, not {alias.unit}")
    return found


def with_natives(aliases: Iterable[Alias]) -> dict[str, Alias]:
    """Join aliases and native headers by name; ValueError on an illegal name or a name with two meanings."""
    known = {native.name: native for native in NATIVE}
    for name, role, unit in aliases:
        alias = Alias(name, Role(role), Unit(unit))
        if not 1 <= len(name) <= _MAX_ALIAS_CHARS or not name.isprintable():
            raise ValueError(f"alias {name!r}: a header name has 1 to {_MAX_ALIAS_CHARS} printable characters")
        if name in _OURS:
            raise ValueError(f"alias {name!r}: this name is written by the router itself; choose another")
        other = known.setdefault(name, alias)
        if other != alias:
            raise ValueError(f"alias {name!r}: is '{other.role}' in unit {other.unit} already; a name has one meaning")
        reader(alias)
    return known


class StrippedNames(dict[str, bool]):
    """Whether a header name is removed on release: ``stripped[name]``.

    Removed are all names starting with ``deliver-``, every alias, and the provenance names, which the router
    writes itself. Names seen are remembered (a lookup is then one step), but not without bound, because producers
    choose them.
    """

    def __init__(self, control_names: Iterable[str]) -> None:
        """Take the names of all control headers, aliases included."""
        super().__init__()
        self._ours = PROVENANCE.union(control_names)

    def __missing__(self, name: str) -> bool:
        """Judge a name that is not remembered."""
        stripped = name in self._ours or name.startswith(CONTROL_PREFIX)
        if len(name) <= _MAX_ALIAS_CHARS:
            if len(self) >= _MAX_REMEMBERED:
                self.clear()
            self[name] = stripped
        return stripped


def _at_native(raw: bytes) -> int:
    # As many digits as milliseconds have from 2001 to 2286: nearly every record has them, and no other unit fits.
    if len(raw) == _USUAL_DIGITS and raw.isdigit() and raw >= b"1":
        return int(raw)
    return _at_ms(raw) if raw.isdigit() else _at_rfc3339(raw)


def _at_ms(raw: bytes) -> int:
    value = parse_number(raw)
    if value < _FIRST_SECONDS or _FIRST_MILLIS <= value < _FIRST_MICROS:
        return value
    raise UnitSuspectedError(f"looks like {_unit_of(value)}, but the unit is milliseconds since 1970")


def _at_s(raw: bytes) -> int:
    value = parse_number(raw)
    if value < _FIRST_MILLIS:
        return value * 1000
    raise UnitSuspectedError(f"looks like {_unit_of(value)}, but the unit is seconds since 1970")


def _unit_of(value: int) -> str:
    if value < _FIRST_MILLIS:
        return "seconds"
    if value < _FIRST_MICROS:
        return "milliseconds"
    return "microseconds" if value < _FIRST_NANOS else "nanoseconds"


def _at_rfc3339(raw: bytes) -> int:
    # Before 1970 is as past as 1970 is; due times are never negative.
    return max(parse_instant_ms(raw), 0)


def _after_s(raw: bytes) -> int:
    duration_ms = parse_number(raw) * 1000
    if duration_ms > INT64_MAX:
        raise ValueError(f"the duration is longer than {INT64_MAX} milliseconds")
    return duration_ms


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


_READERS: Final[Mapping[tuple[Role, Unit], Reader]] = {
    (Role.AT, Unit.NATIVE): _at_native,
    (Role.AT, Unit.MS): _at_ms,
    (Role.AT, Unit.S): _at_s,
    (Role.AT, Unit.RFC3339): _at_rfc3339,
    (Role.AFTER, Unit.NATIVE): parse_duration_ms,
    (Role.AFTER, Unit.MS): parse_number,
    (Role.AFTER, Unit.S): _after_s,
    (Role.AFTER, Unit.ISO8601): parse_iso_duration_ms,
    (Role.TO, Unit.NATIVE): _as_is,
    (Role.KEY, Unit.NATIVE): _as_is,
    (Role.PARTITION, Unit.NATIVE): _partition,
    (Role.ID, Unit.NATIVE): _id,
    (Role.EXPIRE, Unit.NATIVE): parse_duration_ms,
    (Role.EXPIRE, Unit.MS): parse_number,
    (Role.EXPIRE, Unit.S): _after_s,
    (Role.EXPIRE, Unit.ISO8601): parse_iso_duration_ms,
    (Role.KIND, Unit.NATIVE): _kind,
    (Role.REFUSED, Unit.NATIVE): _refused,
    (Role.IGNORED, Unit.NATIVE): _as_is,
}
