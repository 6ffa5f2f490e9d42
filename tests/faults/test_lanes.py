"""Partitions that share a transactional producer: kills, zombies, and partitions that hold up the others."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import CREATE_TIME, Load, now_ms, wait_until
from tests.integration.stored_buckets import lanes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 6
SESSION_S = 2
LANES: dict[str, Any] = {"lanes": 1, "session_timeout": f"{SESSION_S}s"}
KILLS = 8
ZOMBIES = 4


@contextmanager
def two_routers(stage: FaultStage, rng: Random) -> Iterator[tuple[str, list[RouterProcess], Load]]:
    """Start two routers with a lane each, under a load; yield the delay topic, the routers and the load."""
    delay = stage.delay(partitions=PARTITIONS, default_target=stage.target(partitions=2), **SMALL_BUCKETS)
    one, two = (stage.router(name, instance_id=name, **LANES) for name in ("one", "two"))
    with one, two, Load(stage, [delay], rng, partitions=PARTITIONS, a_second=200, delays_ms=(0, 6_000)) as load:
        one.start_and_wait()
        wait_until(lambda: all(lanes(stage, delay, PARTITIONS)), "every state names a lane")
        two.start_and_wait()
        yield delay, [one, two], load


def end_in_order(stage: FaultStage, routers: Sequence[RouterProcess], load: Load) -> None:
    """End the load and the routers; each record must have arrived once, and no router met a defect."""
    load.finish()
    settled(stage)
    for router in routers:
        assert not router.events("partition_failed")
        assert router.stop() == 0


def test_routers_that_are_killed_lose_and_double_nothing(lone: FaultStage, rng: Random) -> None:
    with two_routers(lone, rng) as (delay, routers, load):
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.5, 4))
            router = rng.choice(routers)
            router.kill()
            if rng.random() < 0.5:
                time.sleep(rng.uniform(0, 3))
            router.start()
        end_in_order(lone, routers, load)
        assert not any(router.events("partition_refused") for router in routers)
        # An orderly end gives each state back, so that a router without lanes may go on.
        assert not any(lanes(lone, delay, PARTITIONS))


def test_a_router_that_was_stopped_and_goes_on_writes_nothing_more(lone: FaultStage, rng: Random) -> None:
    with two_routers(lone, rng) as (_, routers, load):
        for number in range(ZOMBIES):
            stopped, other = routers[number % 2], routers[1 - number % 2]
            time.sleep(rng.uniform(0.5, 3))
            stopped.pause()
            before = len(other.events("partition_active"))
            wait_until(lambda: len(other.events("partition_active")) > before, "the other one takes over", 30)  # noqa: B023
            time.sleep(rng.uniform(0, 2))
            stopped.resume()
        end_in_order(lone, routers, load)


def test_a_router_that_goes_on_during_its_take_over_doubles_nothing(lone: FaultStage, rng: Random) -> None:
    """The partitions of a lane are taken over at once: one reads its state, and another then fences the lane."""
    with two_routers(lone, rng) as (_, routers, load):
        for number in range(2 * ZOMBIES):
            stopped = routers[number % 2]
            time.sleep(rng.uniform(1, 3))
            stopped.pause()
            time.sleep(SESSION_S + rng.uniform(0, 1))
            stopped.resume()
        end_in_order(lone, routers, load)


def test_a_partition_whose_records_are_refused_leaves_the_lane(lone: FaultStage) -> None:
    """The search for a refused record takes some tenths of a second, in which no other partition commits."""
    out = lone.target()
    strict = lone.target("strict", config={**CREATE_TIME, "message.timestamp.before.max.ms": "600000"})
    delay = lone.delay(
        partitions=PARTITIONS, default_target=out, allowed_targets=[strict], config=CREATE_TIME, timestamp="source"
    )
    with lone.router(**LANES) as router:
        router.start_and_wait()
        wait_until(lambda: all(lanes(lone, delay, PARTITIONS)), "every state names a lane")
        old_ms = now_ms() - 3_600_000
        for _ in range(3):
            lone.send(delay, ("deliver-after", b"50"), ("deliver-to", strict.encode()), timestamp_ms=old_ms)
        wait_until(lambda: lanes(lone, delay, PARTITIONS)[0] == "", "the partition has a producer of its own")
        assert all(lanes(lone, delay, PARTITIONS)[1:])
        lone.wait_records(f"{delay}.rejected", 3)
        for partition in range(PARTITIONS):
            lone.send(delay, ("deliver-after", b"50"), partition=partition)
        assert len(lone.wait_records(out, PARTITIONS)) == PARTITIONS


def test_a_partition_whose_state_is_damaged_is_left_out_and_the_others_go_on(lone: FaultStage) -> None:
    out = lone.target()
    delay = lone.delay(partitions=PARTITIONS, default_target=out)
    lone.send(f"{delay}.delay-state", key=b"no key of a router", partition=2)
    with lone.router(**LANES) as router:
        router.start()
        wait_until(lambda: bool(router.events("partition_refused")), "the damaged partition is refused")
        others = [partition for partition in range(PARTITIONS) if partition != 2]
        due_ms = now_ms() + 2_000
        for partition in others:
            lone.send(delay, ("deliver-at", b"%d" % due_ms), partition=partition)
        released = lone.wait_records(out, len(others))
        assert {each.timestamp_ms - due_ms < 1_000 for each in released} == {True}
