"""Reads the attempts of a record in a delay topic that counts them, independently of the router."""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor
from typing import Final, NamedTuple, Self

from sidecar.dev.audit.record import AT_ONCE, UNREADABLE, AuditedRecord, Header, due_ms, targets

_ATTEMPT: Final = "delay-attempt"
_TARGET: Final = "delay-target"
_EXHAUSTED: Final = "delay-attempts-exhausted"
_MAX: Final = "deliver-attempts-max"
_MOST: Final = 1_000
_DIGITS: Final = 19


class AttemptRules(NamedTuple):
    """The retry of a delay topic; ``allowed`` are the topics that ``delay-target`` may name."""

    first_ms: int
    factor: Fraction
    max_ms: int
    jitter: Fraction
    attempts: int
    dead_letter: str
    allowed: frozenset[str]


class AuditedAttempt(NamedTuple):
    """The attempt of a record: its number, its targets, and the times between which it is due.

    The number of an exhausted record is that of its last attempt. A count that cannot be read has the number -1.
    """

    number: int
    exhausted: bool
    targets: tuple[str, ...]
    from_ms: int
    to_ms: int
    kept: tuple[Header, ...]

    @classmethod
    def of(cls, record: AuditedRecord, default_target: str, rules: AttemptRules) -> Self:
        """Read the attempt of a record of the delay topic."""
        made, most = _number(record.headers, _ATTEMPT, 0, 0), _number(record.headers, _MAX, 1, rules.attempts)
        own, asked_ms = targets(record.headers, ""), due_ms(record)
        if made < 0 or most < 0:
            return cls(UNREADABLE, False, own, UNREADABLE, UNREADABLE, ())
        if made >= most:
            return cls(
                made, True, (rules.dead_letter,), AT_ONCE, AT_ONCE, tuple(_named(record.headers, _ATTEMPT, _TARGET))
            )
        before = [(raw or b"").decode("ascii", "replace") for _, raw in _named(record.headers, _TARGET)]
        given = own or tuple(each for each in before if each in {*rules.allowed, default_target})
        to = given or ((default_target,) if default_target else ())
        if asked_ms != AT_ONCE or _names_time(record.headers):
            return cls(made + 1, False, to, asked_ms, asked_ms, ())
        wait_ms = min(ceil(rules.first_ms * rules.factor**made), rules.max_ms)
        latest_ms = record.timestamp_ms + wait_ms
        return cls(made + 1, False, to, latest_ms - floor(wait_ms * rules.jitter), latest_ms, ())

    def due_ms(self, released: AuditedRecord) -> int:
        """Return the due time that a copy names, if the record may be due then; else the earliest time."""
        told = next((raw for name, raw in reversed(released.headers) if name == "delay-due"), None) or b""
        return int(told) if told.isdigit() and self.from_ms <= int(told) <= self.to_ms else self.from_ms

    def is_told(self, released: AuditedRecord) -> bool:
        """Say whether a copy has the headers of this attempt."""
        found = tuple(_named(released.headers, _ATTEMPT, _TARGET))
        last = _named(released.headers, _EXHAUSTED)
        if self.exhausted:
            return found == self.kept and last == [(_EXHAUSTED, b"%d" % self.number)]
        asked = ((_ATTEMPT, b"%d" % self.number), (_TARGET, released.topic.encode()))
        return found == asked and not last


def without_attempts(headers: Sequence[Header]) -> list[Header]:
    """Return the headers without those that tell the attempt."""
    return [header for header in headers if header[0].lower() not in {_ATTEMPT, _TARGET, _EXHAUSTED}]


def _named(headers: Sequence[Header], *names: str) -> list[Header]:
    return [header for header in headers if header[0].lower() in names]


def _names_time(headers: Sequence[Header]) -> bool:
    return any(raw is not None for _, raw in _named(headers, "deliver-at", "deliver-after"))


def _number(headers: Sequence[Header], name: str, least: int, absent: int) -> int:
    """Return the number in the one header of a name; -1 if the router should reject the record."""
    given = [raw or b"" for _, raw in _named(headers, name)]
    if not given:
        return absent
    if len(given) > 1 or not given[0].isdigit() or len(given[0]) > _DIGITS:
        return UNREADABLE
    return int(given[0]) if least <= int(given[0]) <= _MOST else UNREADABLE
