"""Reads the schedule of a record from its native headers, independently of the router."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from hashlib import blake2b
from math import ceil
from typing import Final, NamedTuple

AT_ONCE: Final = 0
"""Due time of a record that names none."""

UNREADABLE: Final = -1
"""Due time of a record whose schedule cannot be read; the router should have rejected it."""

_PROVENANCE: Final = frozenset(
    {"delay-due", "delay-spread", "delay-source", "delay-source-timestamp", "delay-id", "delay-hops"}
    | {"delay-occurrence", "delay-series"}
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AMOUNT: Final = r"(\d+(?:[.,]\d+)?)"
_DURATION: Final = re.compile(rf"P(?:{_AMOUNT}W)?(?:{_AMOUNT}D)?(?:T(?:{_AMOUNT}H)?(?:{_AMOUNT}M)?(?:{_AMOUNT}S)?)?")
_SHORT: Final = re.compile(r"(\d+)(ms|s|m|h|d)")
_SHORT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_MS: Final = (604_800_000, 86_400_000, 3_600_000, 60_000, 1_000)

_NUMBERS: Final = ("offset", "number", "due")

Header = tuple[str, bytes | None]


class AuditedRecord(NamedTuple):
    """A record of a topic; ``appended`` says that its timestamp is the broker's append time."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int
    appended: bool = True

    @property
    def place(self) -> str:
        """Place of the record: ``topic/partition/offset``."""
        return f"{self.topic}/{self.partition}/{self.offset}"


def due_ms(record: AuditedRecord, delay_ms: int = 0) -> int:
    """Return the due time in epoch ms, AT_ONCE or UNREADABLE; ``delay_ms`` is the delay of records without a time."""
    named = [(name.lower(), raw) for name, raw in record.headers if raw is not None]
    occurrence = _occurrence(named)
    if occurrence is not None:
        return occurrence[2]
    times = [header for header in named if header[0] in {"deliver-at", "deliver-after"}]
    if not times:
        times = [("deliver-after", raw) for name, raw in named if name == "deliver-every"]
    if not times:
        return record.timestamp_ms + delay_ms if delay_ms and not recurs(named) else AT_ONCE
    given = dict(times)
    if len(given) < len(times):
        return UNREADABLE
    try:
        if "deliver-at" in given:
            return instant_ms(given["deliver-at"])
        return record.timestamp_ms + _duration_ms(given["deliver-after"])
    except ValueError:
        return UNREADABLE


def recurs(headers: Iterable[Header]) -> bool:
    """Say whether the headers are, or claim to be, those of a recurring schedule."""
    return any(name.lower() in {"deliver-every", "deliver-cron"} and raw is not None for name, raw in headers)


def begun_by(record: AuditedRecord) -> str:
    """Return the place of the record that began the series, if this is the first occurrence; else an empty text."""
    named = [(name.lower(), raw) for name, raw in record.headers if raw is not None]
    occurrence = _occurrence(named)
    if occurrence is None or occurrence[1] != 1:
        return ""
    return f"{record.topic}/{record.partition}/{occurrence[0]}"


def follows_from(record: AuditedRecord) -> int | None:
    """Return the offset of the origin of a record that a router has written; None for all other records.

    The origin is the first record of a series, or the control that has moved the schedule.
    """
    occurrence = _occurrence((name.lower(), raw) for name, raw in record.headers if raw is not None)
    if occurrence is not None:
        return occurrence[0]
    lane, _, offset = source_of(record).rpartition("/")
    # A record that has come through another delay topic names an origin there.
    is_moved = lane == f"{record.topic}/{record.partition}" and offset.isdecimal() and offset.isascii()
    return int(offset) if is_moved and int(offset) < record.offset else None


def _occurrence(named: Iterable[tuple[str, bytes]]) -> tuple[int, int, int] | None:
    """Return (offset of the first record of the series, number, due time) of an occurrence; None for other records."""
    for name, raw in named:
        numbers = raw.split(b" ")[:3]
        if name == "deliver-series" and len(numbers) == len(_NUMBERS) and all(each.isdigit() for each in numbers):
            first, number, due = map(int, numbers)
            return first, number, due
    return None


def instant_ms(raw: bytes | None) -> int:
    """Return an instant in epoch ms; raise ValueError if the bytes are no instant."""
    text = (raw or b"").decode("ascii")
    if text.isdigit():
        return int(text)
    since = datetime.fromisoformat(text.upper())
    if since.tzinfo is None:
        raise ValueError(f"{text!r} has no offset from UTC")
    # Rounded up; an instant before 1970 counts as 0, for it is long past.
    return max(0, -((_EPOCH - since) // timedelta(milliseconds=1)))


def _duration_ms(raw: bytes | None) -> int:
    text = (raw or b"").decode("ascii")
    if text.isdigit():
        return int(text)
    short = _SHORT.fullmatch(text)
    if short:
        return int(short[1]) * _SHORT_MS[short[2]]
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        raise ValueError(f"{text!r} is not a duration")
    parts = zip(match.groups(), _UNITS_MS, strict=True)
    return ceil(sum(Fraction(amount.replace(",", ".")) * unit_ms for amount, unit_ms in parts if amount))


def targets(headers: Iterable[Header], default_target: str) -> tuple[str, ...]:
    """Return the target topics of a record, each once; empty if it names none and there is no default."""
    asked = [raw or b"" for name, raw in headers if name.lower() == "deliver-to"]
    named = dict.fromkeys(raw.decode("ascii", "replace") for raw in asked)
    return tuple(named) or ((default_target,) if default_target else ())


def released_key(record: AuditedRecord) -> bytes | None:
    """Return the key that the record must have in its target."""
    keys = [raw for name, raw in record.headers if name.lower() == "deliver-key"]
    return keys[0] if keys else record.key


def user_headers(headers: Iterable[Header]) -> list[Header]:
    """Return the headers that the record must keep, without control and provenance headers."""
    named = ((header[0].lower(), header) for header in headers)
    return [header for name, header in named if not name.startswith("deliver-") and name not in _PROVENANCE]


def source_of(record: AuditedRecord) -> str:
    """Return the last ``delay-source``, which the router wrote; an inbound header of that name may precede it."""
    for name, raw in reversed(record.headers):
        if name == "delay-source":
            return (raw or b"").decode("utf-8", "replace")
    return ""


def spread_of(record: AuditedRecord) -> int:
    """Return the spread of a released record in ms, from its last ``delay-spread``; 0 if it has none."""
    told = next((raw for name, raw in reversed(record.headers) if name == "delay-spread"), None) or b""
    return int(told) if told.isdigit() else 0


def digest(key: bytes | None, value: bytes | None, headers: Iterable[Header]) -> bytes:
    """Return a digest of key, value and headers; each part carries its length, and null differs from empty."""
    parts = [key, value]
    for name, raw in headers:
        parts += name.encode(), raw
    told_apart = [b"-" if part is None else b"%d:%b" % (len(part), part) for part in parts]
    return blake2b(b"".join(told_apart), digest_size=16).digest()
