"""Rules as plain values, in the form that the state keeps: ``Rules.to_json`` writes it and ``from_json`` reads it.

A field of a later version is written only where it differs from its default, so older rules keep their bytes.
"""

from dataclasses import dataclass, fields
from typing import Any, Final, TypeVar

from index.protocol.headers import Alias, HeaderRole, Unit
from index.rules.retrying import Retry
from index.rules.targets import TargetRule

RULES_VERSION: Final = 6
"""Raise it whenever a change of code changes a decision. Rules of released versions decide as they did, for as long as
records need them (:data:`KNOWN_VERSIONS`); any other version is refused, never guessed."""

RULES_OF_0_1_0: Final = 2
"""The version of the rules that 0.1.0 wrote. These rules know names of headers in lower case only and ignore all
others, controls too (:mod:`index.protocol.control_headers`). They refuse a null time and durations like ``15m``. Topics
of other routers may be targets. Headers that a client has altered are taken as they were handed over
(:mod:`index.rules.unreadable`)."""

KNOWN_VERSIONS: Final = (RULES_OF_0_1_0, RULES_VERSION)

MIN_PERIOD_MS: Final = 1_000
"""Default of ``min_period_ms``."""

_LATER: Final = frozenset(
    ("enabled", "at_once", "require_time", "ignores_unknown", "recurring", "min_period_ms", "delay_ms", "spread_ms")
)
"""Fields that are written only where they differ from their default."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class StoredRules:
    """The rules of one delay topic, as they are configured and kept; :class:`index.rules.rules.Rules` decides by them.

    * ``topic``: the delay topic.
    * ``default_target``: where records without a target go; "" = such records are rejected.
    * ``allowed_targets``: names, or patterns with ``*``; see index.rules.targets.
    * ``max_delay_ms``: longest delay; 0 = no limit.
    * ``aliases``: other names for control headers; see index.protocol.headers.
    * ``forbidden_targets``: every topic that belongs to a router; the delay topic itself is always added.
    * ``enabled``: while it is False, every record is rejected with DELAY_DISABLED, before any other problem.
    * ``version``: version of the code that decides.
    * ``at_once``: while it is True, times are read and not waited for: every record is due at once.
    * ``target_rules``: rules of single targets; see index.rules.targets.
    * ``require_time``: a record without a time is rejected.
    * ``ignores_unknown``: unknown ``deliver-`` headers mean nothing; else they are refused.
    * ``recurring``: schedules may recur, see index.protocol.recurring; else records that ask for it are rejected.
    * ``min_period_ms``: the shortest time between two occurrences of a schedule.
    * ``delay_ms``: delay of a record that names no time; 0: none.
    * ``spread_ms``: records due at one instant leave within this span after it, see index.rules.spreading; 0: at it.
    * ``retry``: attempts are counted, see index.rules.retrying; None: they are not.
    """

    topic: str
    default_target: str = ""
    allowed_targets: tuple[str, ...] = ()
    max_delay_ms: int = 0
    aliases: tuple[Alias, ...] = ()
    forbidden_targets: frozenset[str] = frozenset()
    enabled: bool = True
    version: int = RULES_VERSION
    at_once: bool = False
    target_rules: tuple[TargetRule, ...] = ()
    require_time: bool = False
    ignores_unknown: bool = False
    recurring: bool = False
    min_period_ms: int = MIN_PERIOD_MS
    delay_ms: int = 0
    spread_ms: int = 0
    retry: Retry | None = None

    @property
    def are_of_0_1_0(self) -> bool:
        """True if 0.1.0 wrote these rules."""
        return self.version == RULES_OF_0_1_0


def plain_of(rules: StoredRules) -> dict[str, Any]:
    """Return every field as a JSON value."""
    plain: dict[str, Any] = {
        "aliases": rules.aliases,
        "allowed_targets": rules.allowed_targets,
        "default_target": rules.default_target,
        "forbidden_targets": sorted(rules.forbidden_targets),
        "max_delay_ms": rules.max_delay_ms,
        "topic": rules.topic,
        "version": rules.version,
    }
    if rules.target_rules:
        # A rule without a spread has three values, as in rules of earlier versions.
        plain["target_rules"] = [rule if rule.spread_ms is not None else rule[:3] for rule in rules.target_rules]
    if rules.retry is not None:
        plain["retry"] = rules.retry.plain()
    later = {each.name: each.default for each in fields(StoredRules) if each.name in _LATER}
    return plain | {name: value for name in later if (value := getattr(rules, name)) != later[name]}


def fields_of(plain: dict[str, Any]) -> dict[str, Any]:
    """Read the fields of rules from the output of ``plain_of``; raise ValueError, TypeError or LookupError."""
    version = plain["version"]
    # JSON's true would pass for 1.
    if type(version) is not int or version not in KNOWN_VERSIONS:
        raise ValueError(f"they have version {version!r}, and this program knows only {_known()}; upgrade the router")
    retry = plain.get("retry")
    return {
        "enabled": _typed(plain.get("enabled", True), bool),
        "at_once": _typed(plain.get("at_once", False), bool),
        "require_time": _typed(plain.get("require_time", False), bool),
        "ignores_unknown": _typed(plain.get("ignores_unknown", False), bool),
        "recurring": _typed(plain.get("recurring", False), bool),
        "min_period_ms": _typed(plain.get("min_period_ms", MIN_PERIOD_MS), int),
        "delay_ms": _typed(plain.get("delay_ms", 0), int),
        "spread_ms": _typed(plain.get("spread_ms", 0), int),
        "target_rules": tuple(_target_rule(*rule) for rule in plain.get("target_rules", ())),
        "retry": None if retry is None else _retry(**retry),
        "version": version,
        "topic": _typed(plain["topic"], str),
        "default_target": _typed(plain["default_target"], str),
        "allowed_targets": tuple(_typed(name, str) for name in plain["allowed_targets"]),
        "max_delay_ms": _typed(plain["max_delay_ms"], int),
        "aliases": tuple(
            Alias(_typed(name, str), HeaderRole(role), Unit(unit)) for name, role, unit in plain["aliases"]
        ),
        "forbidden_targets": frozenset(_typed(name, str) for name in plain["forbidden_targets"]),
    }


def differing(one: StoredRules, other: StoredRules) -> tuple[str, ...]:
    """Return the names of the fields, as they are stored, in which the rules differ."""
    before, after = plain_of(one), plain_of(other)
    return tuple(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def refuse_unknown(version: int) -> None:
    """Raise ValueError when this program cannot decide by rules of this version."""
    if version not in KNOWN_VERSIONS:
        raise ValueError(f"version {version}: this program knows only version {_known()}")


def _known() -> str:
    return ", ".join(map(str, KNOWN_VERSIONS))


def _target_rule(target: object, max_delay_ms: object, enabled: object, spread_ms: object = None) -> TargetRule:
    limit_ms = None if max_delay_ms is None else _typed(max_delay_ms, int)
    span_ms = None if spread_ms is None else _typed(spread_ms, int)
    return TargetRule(_typed(target, str), limit_ms, _typed(enabled, bool), span_ms)


def _retry(dead_letter: object, **numbers: object) -> Retry:
    return Retry(
        **{name: _typed(number, int) for name, number in numbers.items()}, dead_letter=_typed(dead_letter, str)
    )


def _typed(value: object, kind: type[_T]) -> _T:
    # JSON's true and 1.0 would pass for 1.
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {value!r}")
    return value
