"""The settings of a delay topic that hold for a partition at a time, and the port through which it reads them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.release.expiry import Expiry
from sidecar.engine.release.rates import TargetLimit


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings of one delay topic; ``topic`` is its configuration with policies applied.

    ``timestamps`` are the modes of targets with a mode of their own. ``gated`` has the targets that are paused or have
    a rate. ``why_paused`` tells people of the pauses, with policy, reason and end. While ``is_doubtful``, the rules in
    the state outrank ``rules``: they are the last rules that are known to have held.
    """

    topic: DelayTopicConfig
    rules: Rules
    tick_ms: int
    expiry: Expiry
    timestamps: Mapping[str, str]
    paused: bool
    drained: bool
    gated: Mapping[str, TargetLimit] = field(default_factory=dict)
    is_doubtful: bool = False
    why_paused: str = ""


class SettingsSource(Protocol):
    """The port through which an owned partition reads the settings of its delay topic."""

    def version(self, now_ms: int) -> object:
        """Return a token of the settings: a new object whenever they may have changed."""

    def read(self) -> TopicSettings:
        """Return the settings of the last version asked for; raise ValueError if they cannot be reconciled."""
