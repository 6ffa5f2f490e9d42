"""Translates rules for native code, which decides records of the common form and leaves all others to Python.

This module repeats no decision: it asks the rules themselves for the meaning of a header name and for the target of a
record, once for each.
"""

from array import array
from dataclasses import fields
from typing import Final, Self

from index.protocol.headers import ATTEMPTS_MAX, DELAY_ATTEMPT, DELAY_TARGET, HeaderRole, Unit
from index.protocol.schedule import Attempted, Schedule
from index.rules.retrying import jitter_ms, known_name, waits_ms
from index.rules.rules import RULES_VERSION, Rules
from index.rules.targets import TargetRules

_NOTHING: Final = 0
_ROLES: Final = {
    HeaderRole.AT: 1,
    HeaderRole.AFTER: 2,
    HeaderRole.TO: 3,
    HeaderRole.KEY: 4,
    HeaderRole.PARTITION: 5,
    HeaderRole.ID: 6,
    HeaderRole.EXPIRE: 7,
}
_OF_RETRIES: Final = {DELAY_ATTEMPT: 8, DELAY_TARGET: 9, ATTEMPTS_MAX: 10}
_NOT_COMMON: Final = 15
_DIGITS: Final = 16
_TEXT: Final = 32
_TIMES: Final = frozenset({HeaderRole.AT, HeaderRole.AFTER, HeaderRole.EXPIRE})
_NOTATIONS: Final = {Unit.NATIVE: _DIGITS | _TEXT, Unit.MS: _DIGITS, Unit.RFC3339: _TEXT}
"""Notations of times that native code reads; Python reads times in any other unit."""

_KNOWN: Final = frozenset(
    {
        "topic",
        "default_target",
        "allowed_targets",
        "max_delay_ms",
        "aliases",
        "forbidden_targets",
        "enabled",
        "version",
        "at_once",
        "target_rules",
        "require_time",
        "ignores_unknown",
        "recurring",
        "min_period_ms",
        "delay_ms",
        "retry",
    }
)
"""Fields of rules that this module considers. Python decides all records by rules that set further fields."""

_SOME_TIME: Final = ("deliver-after", b"1")
"""A header with a time that is within any limit for a record with timestamp 0."""

_NO_TEXT: Final = ("\0", "\N{REPLACEMENT CHARACTER}")
"""Characters in a name that the client may have altered (:mod:`index.rules.unreadable`)."""


class CommonForm:
    """The numbers and answers of one set of rules that native code needs; :meth:`of` makes it."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.delay_ms = rules.delay_ms
        self.requires_time = rules.require_time
        self.max_ahead_ms = TargetRules(rules.max_delay_ms, rules.target_rules).max_ahead_ms
        self.default_targets = self._targets()
        retry = rules.retry
        waits = (0,) if retry is None else waits_ms(retry)
        self.attempts = 0 if retry is None else retry.attempts
        self.waits_ms = array("q", waits)
        self.jitters_ms = array("q", (0 if retry is None else jitter_ms(retry, each) for each in waits))

    @classmethod
    def of(cls, rules: Rules) -> Self | None:
        """Return the common form of these rules, or None if Python must decide every record by them."""
        more = [each for each in fields(rules) if each.init and each.name not in _KNOWN]
        if any(getattr(rules, each.name) != each.default for each in more):
            return None
        spreads = TargetRules(rules.max_delay_ms, rules.target_rules, rules.spread_ms).spreads
        if rules.version != RULES_VERSION or not rules.enabled or rules.at_once or spreads:
            return None
        return cls(rules)

    def means(self, name: str) -> int:
        """Return the meaning of a header name, in the numbers of the kernel."""
        controls = self._rules.controls
        if any(each in name for each in _NO_TEXT):
            return _NOT_COMMON
        if self.attempts and (role := _OF_RETRIES.get(known_name(name))):
            return role
        if controls[name] is None:
            return _NOTHING
        alias = controls.alias(name)
        if alias is None or alias.role not in _ROLES or controls.refuses(name) or controls.is_read_apart(name):
            return _NOT_COMMON
        if alias.role not in _TIMES:
            return _ROLES[alias.role]
        notations = _NOTATIONS.get(alias.unit, 0)
        return _ROLES[alias.role] | notations if notations else _NOT_COMMON

    def route(self, raw: bytes) -> tuple[str] | None:
        """Return the target that a ``deliver-to`` names, or None if a record with it is rejected."""
        return self._targets(("deliver-to", raw))

    def retry_route(self, raw: bytes) -> tuple[str] | None:
        """Return the target of a record with this ``delay-target`` and without a ``deliver-to``; None: ask Python."""
        return self._targets((DELAY_TARGET, raw))

    def attempt(self, number: int, jitter_ms: int) -> Attempted:
        """Return the attempt with this number."""
        return Attempted(number, jitter_ms=jitter_ms)

    def _targets(self, *to: tuple[str, bytes]) -> tuple[str] | None:
        decision = self._rules.decide([*to, _SOME_TIME], 0)
        if not isinstance(decision, Schedule):
            return None
        (target,) = decision.targets
        return (target,)
