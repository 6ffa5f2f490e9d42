"""Builds the headers of a delayed record, for any Kafka client: one file that needs only the standard library.

    from delay_router_client import deliver

    headers = deliver(after=timedelta(minutes=15), to="orders", max_delay=timedelta(days=7))
    producer.produce("orders.delay", value, key, headers=headers)

The distribution kafka-delay-router-client has this file as the package ``delay_router_client``; the router has it as
``sidecar.producing``. It needs only Python 3.10. The result is a list of (name, bytes), which confluent-kafka,
kafka-python and aiokafka accept as ``headers``; your own headers may stand before or behind.

Kafka cannot refuse a record after it was appended, so a delay over the limit would only show as a record in the
rejected topic. With ``max_delay``, the limit of the delay topic, :class:`MaxDelayExceeded` is raised here, before the
record is sent (PIP-315's check in the client). All other headers that the router would reject raise an error here too:
a time without an offset, seconds in place of milliseconds, the same target twice, an id that is too long. Only the
router knows the allowed targets and the shortest period, and whether a date such as February 30 in cron fields ever
comes. The machine's own list of time zones judges ``zone``; where there is no list, the router does.
"""

import json
import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from difflib import get_close_matches
from typing import Final, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

__all__ = ["KEEP_KEY", "Headers", "KeepKey", "MaxDelayExceeded", "cancel", "cancel_where", "deliver", "move"]

Headers: TypeAlias = list[tuple[str, str | bytes | None]]
"""Headers in order, of the type that confluent-kafka takes. Each value is bytes; only ``deliver-key`` can be null."""
Instant: TypeAlias = datetime | str | int
Span: TypeAlias = timedelta | str | int


class KeepKey:
    """The type of :data:`KEEP_KEY`."""

    def __repr__(self) -> str:
        return "KEEP_KEY"


KEEP_KEY: Final = KeepKey()
"""Value of ``key`` with which the released record keeps its own key; None stands for the null key instead."""


class MaxDelayExceeded(ValueError):
    """The delay is over the maximum; the router would reject the record with the same message."""


_INT64_MAX: Final = 2**63 - 1
_MAX_PARTITION: Final = 2**31 - 1
_MAX_ID_BYTES: Final = 256
_MAX_TOPIC_CHARS: Final = 249
_MAX_NAME_CHARS: Final = 256
_MAX_WHERE_BYTES: Final = 4_096
_TOPIC: Final = re.compile(
    r"(?!\.{1,2}\Z)(?!__)(?!.*\.(?:delay-state|delay-snapshots|delay-backfill|rejected|receipts)\Z)[A-Za-z0-9._-]{1,249}\Z"
)

_FIRST_SECONDS: Final = 10**9  # 2001 in seconds; in milliseconds it would be January 1970
_FIRST_MILLIS: Final = 10**11  # 1973 in milliseconds; in seconds it would be the year 5138
_FIRST_MICROS: Final = 10**14  # 1973 in microseconds; in milliseconds it would be the year 5138

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)  # noqa: UP017 - UTC is new in Python 3.11
_MS: Final = timedelta(milliseconds=1)
_INSTANT: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt]((?:[01][0-9]|2[0-3]):[0-5][0-9]):([0-5][0-9]|60)(?:\.([0-9]{1,9}))?"
    r"([Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])\Z"
)
_LEAP_SECOND: Final = 60
_ISO_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,19})W)?(?:([0-9]{1,19})D)?"
    r"(?:T(?=[0-9])(?:([0-9]{1,19})H)?(?:([0-9]{1,19})M)?(?:([0-9]{1,19})(?:[.,]([0-9]{1,9}))?S)?)?\Z"
)
_ISO_UNITS_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)
_SHORT_DURATION: Final = re.compile(r"([0-9]{1,19})(ms|s|m|h|d|)\Z")
_SHORT_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

_CRON: Final = re.compile(r"(?=.{9,256}\Z)[0-9A-Za-z*,/#-]+(?:[ \t]+[0-9A-Za-z*,/#-]+){4}\Z")
_CRON_TERM: Final = re.compile(r"(\*|[0-9]+|[A-Z]{3})(?:-([0-9]+|[A-Z]{3}))?(?:/([0-9]+))?\Z")
_LAST_DAY: Final = re.compile(r"LW?(?:/0*[1-9][0-9]*)?\Z")
_NTH_WEEKDAY: Final = re.compile(r"(?:([0-9]+)L|([0-9]+|[A-Z]{3})#0*[1-5])\Z")
_ZONE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+){0,2}\Z")


class _CronField(NamedTuple):
    """The numbers that a field of cron may have, and names that stand for them, from the first number on."""

    name: str
    numbers: range
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Return the number that a text names; -1 where the field has no such number."""
        if text in self.names:
            return self.numbers.start + self.names.index(text)
        return int(text) if text.isdigit() and int(text) in self.numbers else -1


_DAY_OF_WEEK: Final = _CronField("day of week", range(8), ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))
_DAY_OF_MONTH: Final = _CronField("day of month", range(1, 32))
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_CRON_FIELDS: Final = (
    _CronField("minute", range(60)),
    _CronField("hour", range(24)),
    _DAY_OF_MONTH,
    _CronField("month", range(1, 13), _MONTHS),
    _DAY_OF_WEEK,
)


def deliver(
    *,
    at: Instant | None = None,
    after: Span | None = None,
    to: str | Iterable[str] = (),
    key: bytes | str | KeepKey | None = KEEP_KEY,
    partition: int | None = None,
    deliver_id: bytes | str | None = None,
    replace: bool = False,
    if_due: Instant | None = None,
    expire_after: Span | None = None,
    every: Span | None = None,
    cron: str | None = None,
    zone: str | None = None,
    until: Instant | None = None,
    times: int | None = None,
    missed: str | None = None,
    max_delay: Span | None = None,
    now_ms: int | None = None,
) -> Headers:
    """Return the control headers; raise ValueError or TypeError, naming the argument, if a router would reject them.

    * ``at``: deliver not before this instant: a datetime with a time zone, RFC 3339 text with an offset, or epoch ms.
    * ``after``: deliver this long after the record's timestamp: a timedelta, ms, ``15m`` or ``PT15M``. Without both:
      at once. Every other length of time is written as ``after``.
    * ``to``: one target topic or several (all of them, in one transaction); none: the delay topic's default target.
    * ``key``, ``partition``: of the released record; by default the record's own key, and the partition by key.
    * ``deliver_id``: your name for this schedule, up to 256 bytes; the released record has it as ``delay-id``.
    * ``replace``: replace all pending schedules of this id; use their key, so that the record reaches their partition.
      With ``if_due``, written as ``at``, only if they are due exactly then; otherwise this record is not delivered.
    * ``expire_after``: reject the record if it would be released later than this after its due time; 0: never; None:
      as the delay topic has it.
    * ``every``, or ``cron`` in ``zone``: recur with this period, or at the minutes of five cron fields in a time zone,
      by its IANA name, UTC by default. The delay topic must allow it.
    * ``until``, ``times``: end the series at an instant, written as ``at``, or after so many occurrences. ``missed``:
      deliver ``one`` or ``all`` of the occurrences missed during downtime.
    * ``max_delay``: the limit of the delay topic; 0 or None: no check.
    * ``now_ms``: the record's timestamp, if you set one; default: the clock, as clients and brokers do.

    Times are rounded up to the millisecond, so that rounding never delivers early.

    >>> deliver(after=timedelta(minutes=15), to=["orders", "billing"], deliver_id="reminder-7")
    [('deliver-after', b'900000'), ('deliver-to', b'orders'), ('deliver-to', b'billing'), ('deliver-id', b'reminder-7')]
    """
    if at is not None and after is not None:
        raise ValueError("at and after: give one of them")
    headers: Headers = []
    limit_ms = 0 if max_delay is None else _duration_ms("max_delay", max_delay)
    sent_ms = time.time_ns() // 1_000_000 if now_ms is None else _whole("now_ms", now_ms, _INT64_MAX)
    if at is not None:
        due_ms, text = _instant(at)
        _check_delay(due_ms - sent_ms, limit_ms)
        headers.append(("deliver-at", text.encode("ascii")))
    if after is not None:
        after_ms = _duration_ms("after", after)
        _check_delay(after_ms, limit_ms)
        if sent_ms + after_ms > _INT64_MAX:
            raise ValueError(f"after: the due time is over {_INT64_MAX} ms")
        headers.append(("deliver-after", b"%d" % after_ms))
    headers += [("deliver-to", target.encode("ascii")) for target in _targets(to)]
    if not isinstance(key, KeepKey):
        headers.append(("deliver-key", None if key is None else _as_bytes("key", key)))
    if partition is not None:
        headers.append(("deliver-partition", b"%d" % _whole("partition", partition, _MAX_PARTITION)))
    if deliver_id is not None:
        headers.append(("deliver-id", _id(deliver_id)))
    if expire_after is not None:
        headers.append(("deliver-expire-after", b"%d" % _duration_ms("expire_after", expire_after)))
    recurring = _recurring(every, cron, zone, until, times, missed)
    if replace or if_due is not None:
        recurring += _replaces(if_due, asked=replace, named=deliver_id is not None)
    return headers + recurring


def cancel(deliver_id: bytes | str, *, if_due: Instant | None = None) -> Headers:
    """Return the headers of a record that cancels all pending schedules of an id; send it with their key.

    >>> cancel("reminder-7", if_due=1893456000000)  # written as ``at``: only schedules due exactly then
    [('deliver-cancel', b'reminder-7'), ('deliver-if-due', b'1893456000000')]
    """
    return [("deliver-cancel", _id(deliver_id)), *_if_due(if_due)]


def move(
    deliver_id: bytes | str, *, at: Instant | None = None, after: Span | None = None, if_due: Instant | None = None
) -> Headers:
    """Return the headers of a record that gives the pending schedule of an id another due time; send it with its key.

    >>> move("reminder-7", after=timedelta(hours=1))
    [('deliver-move', b'reminder-7'), ('deliver-after', b'3600000')]
    """
    if (at is None) == (after is None):
        raise ValueError("move: give at or after, one of them")
    return [("deliver-move", _id(deliver_id)), *deliver(at=at, after=after), *_if_due(if_due)]


def cancel_where(
    *,
    target: str | None = None,
    due_from: Instant | None = None,
    due_to: Instant | None = None,
    id_prefix: str | None = None,
    header: tuple[str, str] | None = None,
) -> Headers:
    """Return the headers of a record that cancels all pending schedules that match; send one to each partition.

    All that is given must be true of a schedule: one of its targets; a due time, written as ``at``, from ``due_from``
    on and before ``due_to``; the beginning of its id; a header with this name and value.

    >>> cancel_where(target="billing", header=("customer", "7"))
    [('deliver-cancel-where', b'{"target":"billing","header":{"name":"customer","value":"7"}}')]
    """
    bounds = {"due_from": due_from, "due_to": due_to}
    dues = {name: _instant(bound, name) for name, bound in bounds.items() if bound is not None}
    if len(dues) == len(bounds) and dues["due_from"][0] >= dues["due_to"][0]:
        raise ValueError("due_to: is not after due_from")
    where: dict[str, object] = {} if target is None else {"target": _text("target", target, _MAX_TOPIC_CHARS)}
    where |= {name: text for name, (_, text) in dues.items()}
    if id_prefix is not None:
        where["id_prefix"] = _text("id_prefix", id_prefix, _MAX_ID_BYTES)
    if header is not None:
        name, value = header
        where["header"] = {
            "name": _text("header", name, _MAX_NAME_CHARS),
            "value": value and _text("header", value, _MAX_WHERE_BYTES),
        }
    if not where:
        raise ValueError("cancel_where: nothing is given, which would cancel everything")
    raw = json.dumps(where, ensure_ascii=False, separators=(",", ":")).encode()
    if len(raw) > _MAX_WHERE_BYTES:
        raise ValueError(f"cancel_where: {len(raw)} bytes; a query has up to {_MAX_WHERE_BYTES}")
    return [("deliver-cancel-where", raw)]


def _replaces(if_due: Instant | None, *, asked: bool, named: bool) -> Headers:
    if not asked or not named:
        raise ValueError("replace: needs deliver_id beside it" if asked else "if_due: needs replace beside it")
    return [("deliver-replace", b"true"), *_if_due(if_due)]


def _if_due(if_due: Instant | None) -> Headers:
    return [] if if_due is None else [("deliver-if-due", _instant(if_due, "if_due")[1].encode("ascii"))]


def _recurring(
    every: Span | None, cron: str | None, zone: str | None, until: Instant | None, times: int | None, missed: str | None
) -> Headers:
    if cron is not None:
        _check_cron(cron)
    if zone is not None:
        _check_zone(zone)
    if missed not in (None, "one", "all"):
        raise ValueError(f"missed: {missed!r} is neither 'one' nor 'all'")
    given = {
        "every": None if every is None else _some("every", _duration_ms("every", every)),
        "cron": cron,
        "timezone": zone,
        "until": None if until is None else _instant(until, "until")[1],
        "times": None if times is None else _some("times", _whole("times", times, _INT64_MAX)),
        "missed": missed,
    }
    asked = {name: text for name, text in given.items() if text is not None}
    if "every" in asked and "cron" in asked:
        raise ValueError("every and cron: give one of them")
    if asked and "every" not in asked and "cron" not in asked:
        raise ValueError(f"{next(iter(asked))}: needs every or cron beside it")
    if "every" in asked and "timezone" in asked:
        raise ValueError("zone: needs cron beside it, since a period is the same everywhere")
    return [(f"deliver-{name}", text.encode("ascii")) for name, text in asked.items()]


def _check_cron(cron: str) -> None:
    if not _CRON.match(cron):
        raise ValueError(f"cron: {cron!r} are not five fields: minute, hour, day of month, month, day of week")
    for field, text in zip(_CRON_FIELDS, cron.upper().split(), strict=True):
        for term in text.split(","):
            if not _is_cron_term(field, term):
                numbers = f"{field.numbers.start} to {field.numbers.stop - 1}"
                raise ValueError(
                    f"cron: {term!r} is no {field.name}: {numbers}, a range such as 1-5, or a step such as */2"
                )


def _is_cron_term(field: _CronField, term: str) -> bool:
    if field is _DAY_OF_MONTH and _LAST_DAY.match(term):
        return True
    if field is _DAY_OF_WEEK and (nth := _NTH_WEEKDAY.match(term)):
        return field.number(nth[1] or nth[2]) >= 0
    found = _CRON_TERM.match(term)
    if found is None or (found[3] is not None and not int(found[3])):
        return False
    if found[1] == "*":
        return found[2] is None
    first = field.number(found[1])
    return first >= 0 and (found[2] is None or field.number(found[2]) >= first)


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        known = available_timezones()
        if known or not _ZONE.match(zone):
            close = "".join(f"; did you mean {each!r}?" for each in get_close_matches(zone, known, n=1))
            raise ValueError(f"zone: {zone!r} is no time zone that this machine knows{close}") from None


def _some(name: str, number: int) -> str:
    if not number:
        raise ValueError(f"{name}: more than nothing")
    return str(number)


def _check_delay(delay_ms: int, limit_ms: int) -> None:
    if limit_ms and delay_ms > limit_ms:
        raise MaxDelayExceeded(f"Exceeds max allowed delivery delay of {limit_ms} milliseconds")


def _instant(at: Instant, name: str = "at") -> tuple[int, str]:
    """Return epoch ms and the header's text: the number, unless it could be taken for another unit."""
    if isinstance(at, datetime):
        if at.utcoffset() is None:
            raise ValueError(f"{name}: {at!r} has no time zone; give it one, as in datetime.now(timezone.utc)")
        due_ms = max(-((_EPOCH - at) // _MS), 0)
        return due_ms, _written(due_ms, "", name)
    if isinstance(at, str):
        due_ms = max(_rfc3339_ms(at, name), 0)
        return due_ms, _written(due_ms, at, name)
    due_ms = _whole(name, at, _INT64_MAX)
    if _FIRST_SECONDS <= due_ms < _FIRST_MILLIS:
        raise ValueError(f"{name}: {at} looks like seconds, but the unit is milliseconds since 1970")
    if due_ms >= _FIRST_MICROS:
        raise ValueError(f"{name}: {at} looks like microseconds or nanoseconds, not milliseconds since 1970")
    return due_ms, str(due_ms)


def _written(due_ms: int, otherwise: str, name: str) -> str:
    """Write an instant unambiguously: as a number if it can only be ms, else in RFC 3339."""
    if due_ms < _FIRST_SECONDS or _FIRST_MILLIS <= due_ms < _FIRST_MICROS:
        return str(due_ms)
    if otherwise:
        return otherwise
    try:
        return (_EPOCH + due_ms * _MS).isoformat(timespec="milliseconds")
    except OverflowError:
        raise ValueError(f"{name}: the last instant that can be written is 9999-12-31T23:59:59.999Z") from None


def _rfc3339_ms(text: str, name: str) -> int:
    found = _INSTANT.match(text)
    if found is None:
        raise ValueError(f"{name}: {text!r} is not RFC 3339 with an offset, such as 2030-01-31T08:00:00Z")
    day, minute, second, decimals, offset = found.groups()
    try:
        # Parse without the offset: an instant of the year 1 or 9999 may lie outside of the range in UTC.
        local = datetime.fromisoformat(f"{day}T{minute}:00+00:00")
    except ValueError as error:
        raise ValueError(f"{name}: {text!r}: {error}") from None
    ahead_minutes = 0 if offset in "Zz" else int(offset[1:3]) * 60 + int(offset[4:6])
    ahead_minutes = -ahead_minutes if offset[0] == "-" else ahead_minutes
    whole_ms = (local - _EPOCH) // _MS - ahead_minutes * 60_000 + int(second) * 1_000
    if int(second) == _LEAP_SECOND:
        # A leap second has no number of its own: each part of it counts as the start of the next minute.
        return whole_ms
    return whole_ms + _fraction_ms(decimals)


def _duration_ms(name: str, duration: Span) -> int:
    if isinstance(duration, str):
        return _whole(name, _written_ms(name, duration), _INT64_MAX)
    if not isinstance(duration, timedelta):
        return _whole(name, duration, _INT64_MAX)
    if duration < timedelta(0):
        raise ValueError(f"{name}: {duration!r} is negative")
    return -(-duration // _MS)


def _written_ms(name: str, text: str) -> int:
    if short := _SHORT_DURATION.match(text):
        return int(short[1]) * _SHORT_UNITS_MS[short[2]]
    found = _ISO_DURATION.match(text)
    if found is None:
        raise ValueError(f"{name}: {text!r} is no length of time, such as 500ms, 15m, 7d or PT15M")
    *amounts, decimals = found.groups()
    whole_ms = sum(int(amount or 0) * unit_ms for amount, unit_ms in zip(amounts, _ISO_UNITS_MS, strict=True))
    return whole_ms + _fraction_ms(decimals)


def _fraction_ms(decimals: str | None) -> int:
    """Return the decimals of a second as ms, rounded up."""
    return -(-int((decimals or "0").ljust(9, "0")) // 1_000_000)


def _targets(to: str | Iterable[str]) -> list[str]:
    targets = [to] if isinstance(to, str) else list(to)
    for target in targets:
        if not isinstance(target, str):
            raise TypeError(f"to: {target!r} is not text")
        if not _TOPIC.match(target):
            raise ValueError(f"to: {target!r} is no topic name, or one that records are never delivered to")
    if len(set(targets)) < len(targets):
        raise ValueError(f"to: {targets!r} names the same target twice, which would deliver the record twice")
    return targets


def _id(deliver_id: bytes | str) -> bytes:
    raw = _as_bytes("deliver_id", deliver_id)
    if len(raw) > _MAX_ID_BYTES:
        raise ValueError(f"deliver_id: {len(raw)} bytes; an id has up to {_MAX_ID_BYTES}")
    return raw


def _text(name: str, text: str, most: int) -> str:
    if not isinstance(text, str):
        raise TypeError(f"{name}: {text!r} is not text")
    if not 0 < len(text.encode()) <= most:
        raise ValueError(f"{name}: {text!r} is empty, or longer than {most} bytes")
    return text


def _as_bytes(name: str, value: bytes | str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{name}: expected bytes or text, not {type(value).__name__}")


def _whole(name: str, value: int, most: int) -> int:
    # Python counts True as 1, and a float is usually a number of seconds.
    if type(value) is not int:
        raise TypeError(f"{name}: expected a whole number, not {value!r}")
    if not 0 <= value <= most:
        raise ValueError(f"{name}: {value} is not within 0 to {most}")
    return value
