"""The topics to which a delay topic may release records, and the rules of single targets.

A header that names a topic is a way around ACLs: a producer who may write to the delay topic could write to any topic
that the router can write to (reliability note, rules S01 to S06). So the operator allows targets one by one, for each
delay topic:

1. never: names starting with ``__``, every topic of the router, and every name that the topics of any router beside a
   delay topic may have (``SCHEME``), even where it is allowed: a record released into one of those would loop, or be
   taken for state;
2. always: the delay topic's own ``default_target``, which is the operator's choice too, and at release its
   ``dead_letter``, which no record may name unless it is allowed;
3. else: names matched in full by an entry of ``allowed_targets``, in which ``*`` stands for any characters, none
   included, and every other character, ``.`` too, for itself. Without entries only the default target is left.

A single target may have rules of its own, on top of the rules of the delay topic (:mod:`index.rules.rules`). Its own
maximum delay replaces the delay topic's, shorter or longer, and so does its own spread (:mod:`index.rules.spreading`).
A record with several targets goes to all of them or to none, at one time, so the strictest of its targets decides, and
the largest spread. While a target is switched off, every record that names it is rejected with DELAY_DISABLED.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from index.protocol.headers import MAX_TOPIC_CHARS
from index.protocol.times import INT64_MAX
from index.rules.spreading import MAX_SPREAD_MS

INTERNAL_PREFIX: Final = "__"

STATE_ENDING: Final = ".delay-state"
"""Ending of the name of a state topic; the part before it is the name of the delay topic."""

SCHEME: Final = (STATE_ENDING, ".delay-snapshots", ".delay-backfill", ".rejected", ".receipts")
"""Endings of the names of topics that a router keeps beside a delay topic, unless they are configured otherwise."""

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_PATTERN = re.compile(r"[a-zA-Z0-9._*-]{1,249}")
_TOPIC_RULE = (
    f"a topic name has 1 to {MAX_TOPIC_CHARS} characters of a-z, A-Z, 0-9, '.', '_' and '-', and is not '.' or '..'"
)
_PATTERN_RULE = (
    f"an allowed target has 1 to {MAX_TOPIC_CHARS} characters of a-z, A-Z, 0-9, '.', '_' and '-', "
    "and '*' as its only wildcard"
)


def illegal_topic(name: str) -> str | None:
    """Say why Kafka would not take this as a topic name, or None when it would."""
    if _TOPIC.fullmatch(name) and name not in (".", ".."):
        return None
    return _TOPIC_RULE


def illegal_pattern(pattern: str) -> str | None:
    """Say why this cannot be an entry of ``allowed_targets``, or None when it can."""
    if _PATTERN.fullmatch(pattern):
        return None
    return _PATTERN_RULE


def topic_of(raw: bytes | None) -> str:
    """Return the topic that a header names; bytes outside ASCII become a character that no topic name has."""
    return "" if raw is None else raw.decode("ascii", "replace")


def matches(pattern: str, name: str) -> bool:
    """Return whether the pattern, with ``*`` as its only wildcard, covers the whole name.

    The pieces between the stars are found left to right, each at its first place. That is exact for this kind of
    pattern and never goes back, so the time is bounded by the lengths of name and pattern.

    >>> matches("billing.*", "billing.eu"), matches("billing.*", "billingXeu"), matches("*.eu", "billing.eu")
    (True, False, True)
    """
    head, *rest = pattern.split("*")
    if not rest:
        return name == pattern
    *middle, tail = rest
    end = len(name) - len(tail)
    if len(head) > end or not name.startswith(head) or not name.endswith(tail):
        return False
    at = len(head)
    for piece in middle:
        at = name.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


def of_scheme(name: str) -> str | None:
    """Say why a topic of this name, or all that a pattern can match, belongs to some router; None when it may not."""
    ending = next((ending for ending in SCHEME if name.endswith(ending)), None)
    return f"topics whose names end in '{ending}' belong to delay routers and are never a target" if ending else None


class TargetPolicy:
    """The three rules above for one delay topic; immutable.

    Without ``refuses_scheme`` the first rule is that of 0.1.0, which knows only the router's own topics.
    """

    __slots__ = ("_allowed", "_forbidden", "_own", "_refuses_scheme")

    def __init__(
        self,
        default_target: str,
        allowed_targets: Iterable[str],
        forbidden_targets: Iterable[str],
        *,
        refuses_scheme: bool = True,
        dead_letter: str = "",
    ) -> None:
        """Check names and patterns; raise ValueError when one is illegal or can never be a target."""
        self._refuses_scheme = refuses_scheme
        self._own = {default_target, dead_letter}
        self._allowed = tuple(allowed_targets)
        self._forbidden = frozenset(forbidden_targets)
        for pattern in self._allowed:
            if problem := illegal_pattern(pattern):
                raise ValueError(f"allowed_targets {pattern!r}: {problem}")
            if refuses_scheme and (problem := of_scheme(pattern)):
                raise ValueError(f"allowed_targets {pattern!r}: {problem}")
        for key, name in (("default_target", default_target), ("dead_letter", dead_letter)):
            if name and (problem := self.refusal(name)):
                raise ValueError(f"{key} {name!r}: {problem}")

    def refusal(self, name: str) -> str | None:
        """Say why nothing may be released to this topic, or None when it may."""
        if problem := illegal_topic(name):
            return problem
        if name.startswith(INTERNAL_PREFIX):
            return f"topics starting with '{INTERNAL_PREFIX}' are internal and never a target"
        if name in self._forbidden:
            return "a delay, state, snapshot, backfill or rejected topic of the router is never a target"
        if self._refuses_scheme and (problem := of_scheme(name)):
            return problem
        if name in self._own or any(matches(pattern, name) for pattern in self._allowed):
            return None
        return "not in allowed_targets of this delay topic"


class TargetRule(NamedTuple):
    """The rules of one target; None for ``max_delay_ms`` and ``spread_ms`` means the delay topic's, 0 means none."""

    target: str
    max_delay_ms: int | None = None
    enabled: bool = True
    spread_ms: int | None = None


class TargetRules:
    """The rules of all targets of one delay topic, prepared for decisions; immutable."""

    __slots__ = ("_disabled", "_limits_ms", "_spreads_ms", "_topic_limit_ms", "_topic_spread_ms", "max_ahead_ms")

    def __init__(self, topic_limit_ms: int, rules: Sequence[TargetRule], topic_spread_ms: int = 0) -> None:
        """Raise ValueError, naming the target, when a rule cannot be accepted."""
        names = [rule.target for rule in rules]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"target_rules: {name!r} is named twice")
        self._topic_limit_ms = topic_limit_ms
        self._limits_ms = {rule.target: rule.max_delay_ms for rule in rules if rule.max_delay_ms is not None}
        self._disabled = frozenset(rule.target for rule in rules if not rule.enabled)
        for name, limit_ms in self._limits_ms.items():
            if not 0 <= limit_ms <= INT64_MAX:
                raise ValueError(
                    f"target_rules {name!r}: max_delay_ms {limit_ms}: expected 0 (no limit) to {INT64_MAX}"
                )
        self._topic_spread_ms = topic_spread_ms
        self._spreads_ms = {rule.target: rule.spread_ms for rule in rules if rule.spread_ms is not None}
        for name, spread_ms in self._spreads_ms.items():
            if not 0 <= spread_ms <= MAX_SPREAD_MS:
                message = f"target_rules {name!r}: spread_ms {spread_ms}: expected 0 (none) to {MAX_SPREAD_MS}"
                raise ValueError(message)
        limits_ms = [limit_ms for limit_ms in (topic_limit_ms, *self._limits_ms.values()) if limit_ms]
        # A delay up to here is within every limit, so one comparison is enough for nearly every record.
        self.max_ahead_ms = min(limits_ms, default=INT64_MAX)

    def limit_ms(self, targets: Iterable[str]) -> int:
        """Return the longest delay of a record with these targets, 0 for no limit."""
        limits_ms = [self._limits_ms.get(target, self._topic_limit_ms) for target in targets]
        return min((limit_ms for limit_ms in limits_ms if limit_ms), default=0)

    @property
    def longest_ms(self) -> int:
        """The longest delay of a record with any targets, 0 for no limit."""
        limits_ms = [self._topic_limit_ms, *self._limits_ms.values()]
        return max(limits_ms) if all(limits_ms) else 0

    @property
    def spreads(self) -> bool:
        """True if any target has a spread."""
        return bool(self._topic_spread_ms or any(self._spreads_ms.values()))

    def spread_ms(self, targets: Iterable[str]) -> int:
        """Return the span over which a record with these targets is spread, 0 for none."""
        return max((self._spreads_ms.get(target, self._topic_spread_ms) for target in targets), default=0)

    def disabled(self, targets: Sequence[str]) -> str | None:
        """Return the first of these targets that is switched off; None if all are on."""
        if not self._disabled:
            return None
        return next((target for target in targets if target in self._disabled), None)
