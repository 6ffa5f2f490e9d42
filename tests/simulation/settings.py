"""Holds the surroundings of the routers of a run, with their configuration and rules."""

from dataclasses import dataclass, field

from index.buckets.bucket_rules import SealRules
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.retention import FOREVER_MS, Retention
from sidecar.engine.limits import Limits
from sidecar.engine.ownership.ports import TopicSettings
from sidecar.engine.release.expiry import NEVER_EXPIRES
from sidecar.engine.release.rates import TargetLimit
from tests.simulation.process import SimulatedProcess
from tests.simulation.smaller import SMALL
from tests.simulation.world import DelayLog, Faults, OwnClock, Store


@dataclass
class Surroundings:
    """The state that all routers of a run share, except clock and rules.

    ``trims``: routers remove records that they do not need any more from the log. ``gated``, ``paused`` and ``drained``
    come from the policies: the limits of targets, the time at which the pause of the delay topic ends by itself, empty
    without a pause, and one element while the topic is drained. ``refuses_moves``: the delay topic refuses some moved
    schedules. ``retention`` has one element, the present retention of the delay topic. ``process`` has the lanes of one
    router.
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
    drained: list[bool] = field(default_factory=list)
    refuses_moves: bool = False
    retention: list[Retention] = field(default_factory=lambda: [Retention(FOREVER_MS)])
    process: SimulatedProcess = field(default_factory=lambda: SimulatedProcess(None))


class SimulatedSettings:
    """The settings of the delay topic, as one router knows them."""

    def __init__(self, around: Surroundings, topic: DelayTopicConfig) -> None:
        self._around = around
        self._topic = topic
        self._version = self._at(around.clock.now_ms)

    def version(self, now_ms: int) -> object:
        """Return an object that is another one after each change."""
        now = self._at(now_ms)
        if now != self._version:
            self._version = now
        return self._version

    def read(self) -> TopicSettings:
        """Return the present settings."""
        rules, gated, paused, drained = self._version
        return TopicSettings(self._topic, rules, 0, NEVER_EXPIRES, {}, paused=paused, drained=drained, gated=gated)

    def _at(self, now_ms: int) -> tuple[Rules, dict[str, TargetLimit], bool, bool]:
        paused = any(now_ms < until_ms for until_ms in self._around.paused)
        return self._around.rules, dict(self._around.gated), paused, bool(self._around.drained)
