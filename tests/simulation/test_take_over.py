"""Tests of a take-over that fails, on the ports of the simulation."""

import random
from typing import NoReturn

import pytest

from index.buckets.bucket_rules import SealRules
from index.errors import ClusterError, ClusterTrouble
from index.rules.rules import Rules
from sidecar.engine.ownership.lanes import Claims
from sidecar.engine.ownership.owned_partition import OwnedPartition, take_over
from sidecar.engine.release.rates import TargetLimit
from tests.simulation.host import Host
from tests.simulation.run import first_state
from tests.simulation.settings import Surroundings
from tests.simulation.world import DELAY_TOPIC, Clock, DelayLog, Faults, OwnClock, Store

RULES = Rules(DELAY_TOPIC, default_target="out")


def test_what_fails_half_way_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A take-over is tried again and again, and nobody else can close the objects that only the failed one knew."""
    faults = Faults(random.Random(1))
    faults.stop()
    around = Surroundings(
        OwnClock(Clock()), DelayLog(), Store(faults), faults, SealRules(), max_buckets=2, trims=False, rules=RULES
    )
    around.store.begin(first_state(RULES))
    closed: list[str] = []
    monkeypatch.setattr("tests.simulation.host.SimulatedAhead.close", lambda _: closed.append("ahead"))
    monkeypatch.setattr(OwnedPartition, "_apply", _unanswered)
    host = Host(around)
    host.rates.learn(DELAY_TOPIC, 2)
    host.fence()
    with pytest.raises(ClusterError, match="no answer"):
        take_over(host, Claims(host.context))
    assert closed == ["ahead"]
    assert host.budget.used_bytes == 0
    assert host.rates.share(TargetLimit(10, sources=(DELAY_TOPIC,))) == 0


def _unanswered(*_: object) -> NoReturn:
    raise ClusterError(ClusterTrouble.UNANSWERED, "no answer")
