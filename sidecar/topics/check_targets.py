"""Which topics of other delay routers on the same cluster the configured targets cover, as ``check`` tells it."""

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from index.targets import STATE_ENDING, matches, of_scheme
from sidecar.config.model import Config
from sidecar.topics.findings import Finding, ok, warn

_SHOWN: Final = 5


def findings(config: Config, existing: Iterable[str]) -> Iterator[Finding]:
    """What there is to say of these topics; what is beside a delay topic of somebody else tells that it is one.

    Delay topics of others stay allowed, since one may be handed on to on purpose: a record that comes back without a
    time is rejected after some rounds (see index.released_headers).
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
    """Return the delay topics that other routers serve, as far as their state topics tell by their names."""
    own = config.forbidden_targets()
    states = {name for name in existing if name.endswith(STATE_ENDING)} - own
    return sorted({name.removesuffix(STATE_ENDING) for name in states} - own)


def _some(names: Collection[str]) -> str:
    shown = ", ".join([*names][:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"
