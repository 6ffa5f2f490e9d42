"""Pauses: which policy one is of, and pauses that end by themselves.

A policy with ``paused_until`` is written once, and nothing is written when its pause ends: every router looks at what
holds at its own time of day (:func:`in_force`), so all of a group resume alike, also one that starts later, and none
needs to be up at that moment. What has ended is as if it had never been set: a less specific policy decides again.

Rejected: that a router takes the policy back. Which one, and what if the policies topic cannot be written just then?
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sidecar.config.units import format_instant
from sidecar.policies.policy import DEFAULT, Policy, Scope, target_scope, topic_scope

MOST_TOLD: Final = 4
"""Of the pauses that a status names."""

_NO_PAUSE: Final = {"paused": None, "paused_until_ms": None, "paused_reason": None}


class Pause(NamedTuple):
    """A pause that a policy has set; ``until_ms`` is None while nobody has said when it ends."""

    scope: Scope
    until_ms: int | None = None
    reason: str = ""

    def __str__(self) -> str:
        until = "" if self.until_ms is None else f" until {format_instant(self.until_ms)}"
        return f"paused{until} by policy {self.scope}" + (f": {self.reason}" if self.reason else "")


def pause_in(scope: Scope, policy: Policy) -> Pause | None:
    """The pause that a policy sets, whether or not it has ended."""
    return Pause(scope, policy.paused_until_ms, policy.paused_reason or "") if policy.paused else None


def pause_of_topic(policies: Mapping[Scope, Policy], topic: str) -> Pause | None:
    """The pause of a delay topic by policies that are in force, the most specific first."""
    for scope in (topic_scope(topic), DEFAULT):
        policy = policies.get(scope)
        if policy is not None and policy.paused is not None:
            return pause_in(scope, policy)
    return None


def why_paused(policies: Mapping[Scope, Policy], topic: str, targets: Iterable[str]) -> str:
    """What is paused of a delay topic and its targets, for people; empty when nothing is."""
    pause = pause_of_topic(policies, topic)
    told = [str(pause)] if pause else []
    for scope in map(target_scope, targets):
        pause = pause_in(scope, policies[scope]) if scope in policies else None
        if pause:
            told.append(f"target {scope.name} is {pause}")
    more = [f"and {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else []
    return "; ".join(told[:MOST_TOLD] + more)


def in_force(policies: Mapping[Scope, Policy], now_ms: int) -> dict[Scope, Policy]:
    """Policies without the pauses that have ended by now."""
    return {scope: _without_ended_pause(policy, now_ms) for scope, policy in policies.items()}


def next_end_ms(policies: Mapping[Scope, Policy], now_ms: int) -> int | None:
    """When the next pause ends; None when none does by itself."""
    ends_ms = (policy.paused_until_ms for policy in policies.values())
    return min((end_ms for end_ms in ends_ms if end_ms is not None and end_ms > now_ms), default=None)


def _without_ended_pause(policy: Policy, now_ms: int) -> Policy:
    if policy.paused_until_ms is None or policy.paused_until_ms > now_ms:
        return policy
    return policy.model_copy(update=_NO_PAUSE)
