"""Partitions that share a transactional producer, on a real broker; ``tests/faults/test_lanes.py`` has the faults."""

from functools import partial
from random import Random

from confluent_kafka import OFFSET_END

from tests.integration.scenario import Load, Stage, wait_until
from tests.integration.stored_buckets import lanes, truncate

PARTITIONS = 4


def _lanes(stage: Stage, delay: str) -> set[str]:
    return {*lanes(stage, delay, PARTITIONS)}


def _some_have_no_lane(stage: Stage, delay: str, *, expected: bool) -> bool:
    return ("" in _lanes(stage, delay)) is expected


def test_a_killed_router_is_followed_by_one_that_fences_its_lane(stage: Stage, rng: Random) -> None:
    delay = stage.delay(partitions=PARTITIONS, default_target=stage.target())
    with stage.router(lanes=1) as router, Load(stage, [delay], rng, partitions=PARTITIONS) as load:
        router.start_and_wait()
        wait_until(lambda: "" not in _lanes(stage, delay), "every state names a lane")
        (before,) = _lanes(stage, delay)
        assert before.startswith(f"{stage.group_id}.lane.")
        router.kill()
        router.start_and_wait()
        wait_until(lambda: not {"", before} & _lanes(stage, delay), "every state names the lane of the new process")
        load.finish()
        assert stage.settle().released_once > 0
        assert router.stop() == 0
    # Every state was given back, so that a router without lanes may go on.
    assert _lanes(stage, delay) == {""}


def test_partitions_go_from_lanes_to_producers_of_their_own_and_back(stage: Stage, rng: Random) -> None:
    delay = stage.delay(partitions=PARTITIONS, default_target=stage.target())
    in_lanes, without = stage.router("in-lanes", lanes=2), stage.router("without", lanes=0)
    with in_lanes, without, Load(stage, [delay], rng, partitions=PARTITIONS) as load:
        for router in (in_lanes, without, in_lanes, without):
            router.start_and_wait()
            expected = router is without
            wait_until(partial(_some_have_no_lane, stage, delay, expected=expected), "the states say so")
            # A killed one leaves the name of its lane behind.
            router.kill()
        without.start_and_wait()
        load.finish()
        assert stage.settle().released_once > 0
        assert without.stop() == 0


def test_a_partition_whose_lane_is_unknown_starts_over_once_the_routers_have_stopped(stage: Stage) -> None:
    """Until then its owner would write on by a lane that nothing names, beside the next owner."""
    delay = stage.delay(partitions=PARTITIONS, default_target=stage.target())
    with stage.router(lanes=1) as router:
        router.start_and_wait()
        wait_until(lambda: "" not in _lanes(stage, delay), "every state names a lane")
        truncate(stage, delay, OFFSET_END)
        refused = router.command("start-over", f"{delay}/0", "--yes")
        assert refused.returncode == 1
        assert f"Group {stage.group_id} still has members (1): stop its routers" in refused.stderr
        router.kill()
        wait_until(lambda: router.command("start-over", f"{delay}/0", "--yes").returncode == 0, "the group is empty")
        router.start_and_wait()
        stage.send(delay, ("deliver-after", b"100"))
        assert stage.settle().released_once == 1
        assert router.stop() == 0
