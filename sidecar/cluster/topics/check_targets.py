"""Finds the topics of other delay routers on the same cluster that the configured targets cover, for ``check``."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from index.rules.targets import STATE_ENDING, matches, of_scheme
from sidecar.cluster.topics.findings import Finding, ok, warn
from sidecar.config.model import Config

_SHOWN: Final = 5


def findings(config: Config, existing: Iterable[str]) -> Iterator[Finding]:
    """Yield the findings about the existing topics of other routers, recognized by the topics beside a delay topic.

    Delay topics of other routers stay allowed, since a user may chain delay topics on purpose: a record that comes back
    without a time is rejected after some rounds (see index.protocol.released_headers).
    """
    own, existing = config.forbidden_targets(), [*existing]
    others = sorted({name for name in existing if of_scheme(name)} - own)
    delay_topics = delay_topics_of_others(config, existing)
    for topic in config.delay_topics:
        rules, thing = config.rules_for(topic), f"delay topic {topic.name}"
        if covered := [name for name in delay_topics if rules.allowed(name)]:
            yield warn(
                thing,
                f"may deliver to delay topics of other routers ({_some(covered)}), where records wait again",
                "leave them out of default_target and allowed_targets, unless that is meant",
            )
        for pattern in topic.allowed_targets:
            if kept := [name for name in others if matches(pattern, name)]:
                yield ok(thing, f"{pattern!r} covers what other routers keep, never a target: {_some(kept)}")


def delay_topics_of_others(config: Config, existing: Iterable[str]) -> list[str]:
    """Return the delay topics that other routers serve, as far as the names of their state topics tell."""
    own = config.forbidden_targets()
    states = {name for name in existing if name.endswith(STATE_ENDING)} - own
    return sorted({name.removesuffix(STATE_ENDING) for name in states} - own)


def _some(names: Collection[str]) -> str:
    shown = ", ".join([*names][:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
