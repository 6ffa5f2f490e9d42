"""What rules make of records of the common form, for native code that decides these and leaves all others to Python.

Nothing is decided here a second time: what the name of a header means, and where a record goes, is asked of the rules
themselves, once for each.
"""

from dataclasses import fields
from typing import Final, Self

from index.headers import Role, Unit
from index.rules import RULES_VERSION, Rules
from index.schedule import Schedule
from index.targets import TargetRules

_NOTHING: Final = 0
_ROLES: Final = {
    Role.AT: 1,
    Role.AFTER: 2,
    Role.TO: 3,
    Role.KEY: 4,
    Role.PARTITION: 5,
    Role.ID: 6,
    Role.EXPIRE: 7,
}
_NOT_COMMON: Final = 15
_DIGITS: Final = 16
_TEXT: Final = 32
_TIMES: Final = frozenset({Role.AT, Role.AFTER, Role.EXPIRE})
_NOTATIONS: Final = {Unit.NATIVE: _DIGITS | _TEXT, Unit.MS: _DIGITS, Unit.RFC3339: _TEXT}
"""How a time may be written that is read natively; one in any other unit is read by Python."""

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
    }
)
"""Fields of rules that are thought of here. Rules that say more than these are Python's."""

_SOME_TIME: Final = ("deliver-after", b"1")
"""Within any limit, of a record at the beginning of time."""

_NO_TEXT: Final = ("\0", "\N{REPLACEMENT CHARACTER}")
"""What the client has altered may have these in a name (:mod:`index.unreadable`)."""


class CommonForm:
    """Of rules that have a common form at all (:meth:`of`)."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.delay_ms = rules.delay_ms
        self.requires_time = rules.require_time
        self.max_ahead_ms = TargetRules(rules.max_delay_ms, rules.target_rules).max_ahead_ms
        self.default_targets = self._targets()

    @classmethod
    def of(cls, rules: Rules) -> Self | None:
        """None for rules by which Python decides every record."""
        more = [each for each in fields(rules) if each.init and each.name not in _KNOWN]
        if any(getattr(rules, each.name) != each.default for each in more):
            return None
        if rules.version != RULES_VERSION or not rules.enabled or rules.at_once or rules.spreads:
            return None
        return cls(rules)

    def means(self, name: str) -> int:
        """What a header of this name is for, in the numbers of the kernel."""
        controls = self._rules.controls
        if any(each in name for each in _NO_TEXT):
            return _NOT_COMMON
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
        """The target that a ``deliver-to`` names; None where a record with it is rejected."""
        return self._targets(("deliver-to", raw))

    def _targets(self, *to: tuple[str, bytes]) -> tuple[str] | None:
        decision = self._rules.decide([*to, _SOME_TIME], 0)
        if not isinstance(decision, Schedule):
            return None
        (target,) = decision.targets
        return (target,)
