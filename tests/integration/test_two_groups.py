"""Tests of two groups of routers on one delay topic, which is a mistake: they fence each other, and say so."""

import json
import time
from random import Random

import pytest

from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, wait_until


@pytest.mark.parametrize("lanes", [0, 1])
def test_two_groups_on_one_topic_double_lose_and_hasten_nothing(lanes: int, stage: Stage, rng: Random) -> None:
    out = stage.target()
    delay = stage.delay(partitions=2, default_target=out)
    first = stage.router("first", instance_id="first", lanes=lanes)
    second = stage.router("second", instance_id="second", group_id=f"{stage.group_id}.new", lanes=lanes)
    with first, second, Load(stage, [delay], rng, partitions=2, a_second=200, delays_ms=(0, 3_000)) as load:
        first.start_and_wait()
        second.start()
        # The first one may come back before the second one has finished its take-over, and fence it.
        wait_until(lambda: _refused(first) | _refused(second) == {0, 1}, "each partition is refused by one group")
        for loser, winner in ((first, second), (second, first)):
            for number in _refused(loser):
                why = json.loads(loser.http("/readyz")[1])["partitions"][f"{delay}/{number}"]["why"]
                assert f"routers of group {winner.group_id} have taken {delay}/{number} over from this group" in why
                fenced = [event["groups"] for event in winner.events("other_group_fenced")]
                assert [loser.group_id] in fenced
        time.sleep(2)
        # An operator stops one group. A router of the other one that is new to the partitions takes them at once.
        assert second.stop() == 0
        first.kill()
        first.start_and_wait()
        load.finish()
        stage.settle()
        assert first.stop() == 0


def test_two_groups_that_start_at_the_same_moment_double_nothing(stage: Stage, rng: Random) -> None:
    """One of them has a lane."""
    out = stage.target()
    delay = stage.delay(partitions=4, default_target=out)
    routers = [
        stage.router(name, instance_id=name, group_id=f"{stage.group_id}.{name}", lanes=lanes)
        for name, lanes in (("a", 0), ("b", 1))
    ]
    with routers[0], routers[1], Load(stage, [delay], rng, partitions=4, a_second=200, delays_ms=(0, 2_000)) as load:
        for router in routers:
            router.start()
        wait_until(lambda: set().union(*map(_active, routers)) == set(range(4)), "one of them serves each partition")
        load.finish()
        stage.settle()
        assert [router.stop() for router in routers] == [0, 0]


def _active(router: RouterProcess) -> set[int]:
    return {event["partition"] for event in router.events("partition_active")}


def _refused(router: RouterProcess) -> set[int]:
    return {event["partition"] for event in router.events("partition_refused")}
