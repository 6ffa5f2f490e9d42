"""Pauses: the policy that sets a pause, and pauses that end by themselves.

A policy with ``paused_until`` is written once, and no record is written when its pause ends. Every router looks at the
policies in force at its own time of day (:func:`in_force`). So all routers of a group resume alike, also a router that
starts later, and none has to be up at that moment. An ended pause counts as never set: a less specific policy decides
again.

Rejected: a router removes the policy. No router is the right one for it, and the policies topic may be down just then.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from sidecar.config.units import format_instant
from sidecar.policies.policy import DEFAULT, Policy, Scope, target_scope, topic_scope

MOST_TOLD: Final = 4
"""The most pauses that a status names."""

_NO_PAUSE: Final = {"paused": None, "paused_until_ms": None, "paused_reason": None}


Ended = tuple[Scope, int]
"""A pause that has ended: its scope, and its end in ms since 1970."""


class Pause(NamedTuple):
    """A pause that a policy has set; ``until_ms`` is None if the pause does not end by itself."""

    scope: Scope
    until_ms: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        until = "" if self.until_ms is None else f" until {format_instant(self.until_ms)}"
        return f"paused{until} by policy {self.scope}" + (f": {self.reason}" if self.reason else "")


def pause_in(scope: Scope, policy: Policy) -> Pause | None:
    """Return the pause that a policy sets, even if it has ended; None if it sets none."""
    return Pause(scope, policy.paused_until_ms, policy.paused_reason or "") if policy.paused else None


def pause_of_topic(policies: Mapping[Scope, Policy], topic: str) -> Pause | None:
    """Return the pause of a delay topic by policies in force; the most specific policy decides."""
    for scope in (topic_scope(topic), DEFAULT):
        policy = policies.get(scope)
        if policy is not None and policy.paused is not None:
            return pause_in(scope, policy)
    return None


def why_paused(policies: Mapping[Scope, Policy], topic: str, targets: Iterable[str]) -> str:
    """Return a text for people about the pauses of a delay topic and its targets; empty if there are none."""
    pause = pause_of_topic(policies, topic)
    told = [str(pause)] if pause else []
    for scope in map(target_scope, targets):
        pause = pause_in(scope, policies[scope]) if scope in policies else None
        if pause:
            told.append(f"target {scope.name} is {pause}")
    more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return "; ".join(told[:MOST_TOLD] + more)


def ended_by(policies: Mapping[Scope, Policy], now_ms: int) -> set[Ended]:
    """Return the pauses that have ended by now."""
    ends = ((scope, policy.paused_until_ms) for scope, policy in policies.items())
    return {(scope, until_ms) for scope, until_ms in ends if until_ms is not None and until_ms <= now_ms}


def in_force(
    policies: Mapping[Scope, Policy], now_ms: int, ended: Collection[Ended] = frozenset()
) -> dict[Scope, Policy]:
    """Return the policies without the pauses that have ended by now, and without those that are known to have ended."""
    over = ended_by(policies, now_ms).union(ended)
    return {
        scope: policy.model_copy(update=_NO_PAUSE) if (scope, policy.paused_until_ms) in over else policy
        for scope, policy in policies.items()
    }


def next_end_ms(policies: Mapping[Scope, Policy], now_ms: int) -> int | None:
    """Return the time at which the next pause ends; None if no pause ends by itself."""
    ends_ms = (policy.paused_until_ms for policy in policies.values())
    return min((end_ms for end_ms in ends_ms if end_ms is not None and end_ms > now_ms), default=None)
