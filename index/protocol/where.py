"""The predicate of a control that cancels many schedules at once: ``deliver-cancel-where``, a JSON object.

::

    {"target": "orders", "due_from": "2026-11-26T00:00:00Z", "due_to": 1800000000000,
     "id_prefix": "order-", "header": {"name": "customer", "value": "7"}}

At least one field is given, and a schedule matches if all given fields are true of it. Due times are a half-open range,
read as ``deliver-at`` is read. They are compared with the requested due time. A schedule that named no time has the
timestamp of its record. A target matches if it is one of the targets of the schedule. A header matches if any header of
the record has this name and this value, byte for byte.

A typing error must not cancel everything. So a field that is unknown, empty or given twice, and a range that holds no
time, make the whole predicate unreadable.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from index.protocol.headers import MAX_NAME_CHARS, MAX_TOPIC_CHARS, Alias, HeaderRole, Headers
from index.protocol.readers import MAX_ID_BYTES, UnitSuspectedError, is_certain, reader
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Schedule
from index.protocol.times import INT64_MAX

MAX_WHERE_BYTES: Final = 4_096
"""Longest predicate: the state keeps it, and each record that leaves is compared with it."""

TARGET: Final = "target"
DUE_FROM: Final = "due_from"
DUE_TO: Final = "due_to"
ID_PREFIX: Final = "id_prefix"
HEADER: Final = "header"
FIELDS: Final = (TARGET, DUE_FROM, DUE_TO, ID_PREFIX, HEADER)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HEADER_PARTS: Final = {"name", "value"}

_read_instant: Final = reader(Alias(HEADER, HeaderRole.AT))


class WantedHeader(NamedTuple):
    """A header that a record must have."""

    name: str
    value: bytes

    def is_in(self, headers: Headers | None) -> bool:
        """Return whether one of these headers has the name and the value."""
        return any(name == self.name and raw == self.value for name, raw in headers or ())


class CancelWhere(NamedTuple):
    """A predicate over schedules; a field that is None, or an empty target, is true of each.

    >>> where = parse_where(b'{"target": "orders", "due_to": 5000}')
    >>> where.target, where.due_to_ms, where.canonical()
    ('orders', 5000, b'{"due_to":5000,"target":"orders"}')
    >>> schedule = Schedule(4_000, ("orders", "audit"), -1, None, None, both_times=False)
    >>> where.matches(schedule, None), where.matches(schedule._replace(due_ms=5_000), None)
    (True, False)
    """

    target: str = ""
    due_from_ms: int | None = None
    due_to_ms: int | None = None
    id_prefix: bytes | None = None
    header: WantedHeader | None = None

    def canonical(self) -> bytes:
        """Encode the predicate so that equal predicates have equal bytes."""
        given: dict[str, object] = {TARGET: self.target or None}
        given |= {DUE_FROM: _written(self.due_from_ms), DUE_TO: _written(self.due_to_ms)}
        if self.id_prefix is not None:
            given[ID_PREFIX] = self.id_prefix.decode()
        if self.header is not None:
            given[HEADER] = {"name": self.header.name, "value": self.header.value.decode()}
        plain = {name: value for name, value in given.items() if value is not None}
        return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()

    @property
    def is_empty(self) -> bool:
        """True if no schedule can match, because the range holds no time."""
        return self.due_from_ms is not None and self.due_to_ms is not None and self.due_from_ms >= self.due_to_ms

    @property
    def _is_bounded(self) -> bool:
        return self.due_from_ms is not None or self.due_to_ms is not None

    def takes_due(self, asked_ms: int) -> bool:
        """Return whether a schedule that is due then may match."""
        begins = self.due_from_ms is None or asked_ms >= self.due_from_ms
        return begins and (self.due_to_ms is None or asked_ms < self.due_to_ms)

    def takes_id(self, deliver_id: bytes | None) -> bool:
        """Return whether a schedule of this id may match; None stands for a schedule without one."""
        return self.id_prefix is None or (deliver_id is not None and deliver_id.startswith(self.id_prefix))

    def excludes(self, asked_ms: int, deliver_id: bytes | None) -> bool:
        """Return whether due time and id show that a schedule does not match; AT_ONCE stands for any due time."""
        return not self.takes_id(deliver_id) or (asked_ms != AT_ONCE and not self.takes_due(asked_ms))

    def is_decided_by(self, asked_ms: int) -> bool:
        """Return whether due time and id tell if a schedule matches; AT_ONCE stands for any due time."""
        return not self.target and self.header is None and not (self._is_bounded and asked_ms == AT_ONCE)

    def needs_record(self, schedule: Schedule) -> bool:
        """Return whether only the record tells if this schedule matches."""
        return self.header is not None or (self._is_bounded and schedule.asked_ms == AT_ONCE)

    def matches(self, schedule: Schedule, record: Record | None) -> bool:
        """Return whether a schedule matches; ``record`` may only be None where ``needs_record`` says no."""
        if self.target and self.target not in schedule.targets:
            return False
        if not self.takes_id(schedule.deliver_id):
            return False
        asked_ms = schedule.asked_ms
        if asked_ms == AT_ONCE and record is not None:
            asked_ms = max(record.timestamp_ms, AT_ONCE)
        if not self.takes_due(asked_ms):
            return False
        return self.header is None or (record is not None and self.header.is_in(record.headers))


def parse_where(raw: bytes) -> CancelWhere:
    """Read a predicate; raise ValueError, which names the field, for anything that cannot be followed.

    >>> parse_where(b'{"id_prefix": ""}')
    Traceback (most recent call last):
    ...
    ValueError: id_prefix: expected text that is not empty
    """
    _refuse_long(raw)
    given = _object(raw)
    if not given:
        raise ValueError(f"no field is given, which would cancel everything; there are {', '.join(FIELDS)}")
    _refuse_unknown(given, FIELDS, "")
    found = CancelWhere(
        *(_text(given, TARGET, MAX_TOPIC_CHARS) or "", _instant(given, DUE_FROM), _instant(given, DUE_TO)),
        id_prefix=_prefix(given),
        header=_header(given),
    )
    if found.is_empty:
        raise ValueError(f"{DUE_TO}: {found.due_to_ms} is not after {DUE_FROM}, {found.due_from_ms}")
    # The canonical form of a time may be longer, and is read again.
    _refuse_long(found.canonical())
    return found


def _refuse_long(raw: bytes) -> None:
    if len(raw) > MAX_WHERE_BYTES:
        raise ValueError(f"a predicate has up to {MAX_WHERE_BYTES} bytes, and this one has {len(raw)}")


def _written(instant_ms: int | None) -> int | str | None:
    """Write a time so that it is read again, though the unit of a number would be in doubt."""
    if instant_ms is None or is_certain(instant_ms):
        return instant_ms
    return (_EPOCH + timedelta(milliseconds=instant_ms)).isoformat()


def _object(raw: bytes) -> Mapping[str, object]:
    try:
        found = json.loads(raw.decode(), object_pairs_hook=_once, parse_constant=_no_number)
    except UnicodeDecodeError:
        raise ValueError("it is no UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError("expected a JSON object")  # noqa: TRY004 -- the caller rejects a value, whatever its type
    return found


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{_shown(name)}: is given more than once")
        found[name] = value
    return found


def _no_number(name: str) -> object:
    raise ValueError(f"{name} is no number")


def _refuse_unknown(given: Mapping[str, object], known: Sequence[str], within: str) -> None:
    for name in given:
        if name not in known:
            raise ValueError(f"{_shown(within + name)}: there is no such field; there are {', '.join(known)}")


def _shown(name: str) -> str:
    return name[:40].encode("ascii", "backslashreplace").decode()


def _text(given: Mapping[str, object], name: str, most: int, within: str = "", *, may_be_empty: bool = False) -> str:
    if name not in given:
        return ""
    value = given[name]
    if not isinstance(value, str) or not (value or may_be_empty):
        raise ValueError(f"{within}{name}: expected text{'' if may_be_empty else ' that is not empty'}")
    if len(value) > most:
        raise ValueError(f"{within}{name}: has {len(value)} characters, and may have {most}")
    return value


def _bytes(text: str, name: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name}: holds half of a character") from None


def _prefix(given: Mapping[str, object]) -> bytes | None:
    if ID_PREFIX not in given:
        return None
    prefix = _bytes(_text(given, ID_PREFIX, MAX_ID_BYTES), ID_PREFIX)
    if len(prefix) > MAX_ID_BYTES:
        raise ValueError(f"{ID_PREFIX}: an id has up to {MAX_ID_BYTES} bytes")
    return prefix


def _instant(given: Mapping[str, object], name: str) -> int | None:
    if name not in given:
        return None
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, (int, str)) or (isinstance(value, int) and value < 0):
        raise ValueError(f"{name}: expected epoch milliseconds, or RFC 3339 with an offset")
    raw = b"%d" % value if isinstance(value, int) else _bytes(value, name)
    try:
        instant_ms = int(_read_instant(raw))
    except UnitSuspectedError as error:
        raise UnitSuspectedError(f"{name}: {error}") from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
    if instant_ms > INT64_MAX:
        raise ValueError(f"{name}: is over {INT64_MAX}")
    return instant_ms


def _header(given: Mapping[str, object]) -> WantedHeader | None:
    if HEADER not in given:
        return None
    parts = given[HEADER]
    if not isinstance(parts, dict) or not parts.keys() >= _HEADER_PARTS:
        raise ValueError(f"{HEADER}: expected an object with name and value")
    within = f"{HEADER}."
    _refuse_unknown(parts, sorted(_HEADER_PARTS), within)
    name = _text(parts, "name", MAX_NAME_CHARS, within)
    value = _text(parts, "value", MAX_WHERE_BYTES, within, may_be_empty=True)
    _bytes(name, f"{within}name")
    return WantedHeader(name, _bytes(value, f"{within}value"))
