"""What may be ruled for a single target topic, on top of the rules of the delay topic (:mod:`index.rules`).

A target's own maximum delay takes the place of the delay topic's, shorter or longer. A record with several targets goes
to all of them or to none, so the strictest of its targets decides. While a target is switched off, whatever names it is
rejected with DELAY_DISABLED.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from index.times import INT64_MAX


class TargetRule(NamedTuple):
    """Rules of one target; ``max_delay_ms`` None is the delay topic's, 0 is no limit."""

    target: str
    max_delay_ms: int | None = None
    enabled: bool = True


class TargetRules:
    """The rules of all targets of one delay topic, made for deciding; immutable."""

    __slots__ = ("_disabled", "_limits_ms", "_topic_limit_ms", "max_ahead_ms")

    def __init__(self, topic_limit_ms: int, rules: Sequence[TargetRule]) -> None:
        """ValueError naming the target when one cannot be accepted."""
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
        limits_ms = [limit_ms for limit_ms in (topic_limit_ms, *self._limits_ms.values()) if limit_ms]
        # Nothing up to here is over any limit, which one comparison tells of nearly every record.
        self.max_ahead_ms = min(limits_ms, default=INT64_MAX)

    def limit_ms(self, targets: Iterable[str]) -> int:
        """The longest delay of a record with these targets, 0 for no limit."""
        limits_ms = [self._limits_ms.get(target, self._topic_limit_ms) for target in targets]
        return min((limit_ms for limit_ms in limits_ms if limit_ms), default=0)

    def disabled(self, targets: Sequence[str]) -> str | None:
        """The first of these targets that is switched off."""
        if not self._disabled:
            return None
        return next((target for target in targets if target in self._disabled), None)
