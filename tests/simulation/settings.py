"""What surrounds the routers of a run, and what it has configured and ruled for them."""

from dataclasses import dataclass, field

from index.bucket_rules import SealRules
from index.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.retention import FOREVER_MS, Retention
from sidecar.limits import Limits
from sidecar.policies.table import TopicSettings
from sidecar.release.expiry import NEVER_EXPIRES
from sidecar.release.rates import TargetLimit
from tests.simulation.smaller import SMALL
from tests.simulation.world import DelayLog, Faults, OwnClock, Store


@dataclass
class Surroundings:
    """What all routers of a run share but clock and rules; ``trims``: they remove what they do not need from the log.

    ``gated`` and ``paused`` are what policies say now: targets that are limited, and when the pause of the delay topic
    ends by itself; empty while it is not paused. ``refuses_moves``: the delay topic refuses some of what is moved.
    ``retention`` is the present one of the delay topic, alone in its list.
    """

    clock: OwnClock
    log: DelayLog
    store: Store
    faults: Faults
    seal_rules: SealRules
    max_buckets: int
    trims: bool
    rules: Rules
    limits: Limits = SMALL
    gated: dict[str, TargetLimit] = field(default_factory=dict)
    paused: list[int] = field(default_factory=list)
    refuses_moves: bool = False
    retention: list[Retention] = field(default_factory=lambda: [Retention(FOREVER_MS)])


class SimulatedSettings:
    """What holds for the delay topic, as one router has heard of it."""

    def __init__(self, around: Surroundings, topic: DelayTopicConfig) -> None:
        self._around = around
        self._topic = topic
        self._version = self._at(around.clock.now_ms)

    def version(self, now_ms: int) -> object:
        """Another object whenever something has changed."""
        now = self._at(now_ms)
        if now != self._version:
            self._version = now
        return self._version

    def read(self) -> TopicSettings:
        """What holds now."""
        rules, gated, paused = self._version
        return TopicSettings(self._topic, rules, 0, NEVER_EXPIRES, {}, paused=paused, drained=False, gated=gated)

    def _at(self, now_ms: int) -> tuple[Rules, dict[str, TargetLimit], bool]:
        paused = any(now_ms < until_ms for until_ms in self._around.paused)
        return self._around.rules, dict(self._around.gated), paused
