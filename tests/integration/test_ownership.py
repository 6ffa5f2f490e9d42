"""Tests of several routers on the same partitions: each record is released once, by any owner."""

import time
from random import Random

import pytest
from confluent_kafka import Consumer

from sidecar import failpoints
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, now_ms, wait_until
from tests.integration.serving import serving
from tests.integration.stored_buckets import lanes as lanes_of

SESSION = {"session_timeout": "2s"}


def owned(stage: Stage, body: str) -> int:
    """Return the number of partitions that a router claims, in any state."""
    return body.count('"state"')


def test_a_router_that_was_stopped_past_its_session_cannot_commit(stage: Stage, rng: Random) -> None:
    out = stage.target("out", 2)
    delay = stage.delay("delay", 4, default_target=out)
    first = stage.router("first", instance_id="first", **SESSION)
    second = stage.router("second", instance_id="second", **SESSION)
    with first, second, Load(stage, [delay], rng, partitions=4, delays_ms=(0, 1_500)) as load:
        first.start_and_wait()
        second.start_and_wait()
        wait_until(lambda: owned(stage, first.http("/readyz")[1]) == 2, "two partitions each")
        taken_over = len(second.events("partition_active"))
        first.pause()
        wait_until(lambda: len(second.events("partition_active")) >= taken_over + 2, "the second has all four")
        assert first.events("partition_interrupted") == []
        time.sleep(0.5)
        first.resume()
        wait_until(lambda: bool(first.events("partition_interrupted")), "the first notices")
        verdicts = {event["verdict"] for event in first.events("partition_interrupted")}
        # A producer that learns of the fence before it writes gets a plain fatal error that does not name the fence.
        assert verdicts <= {"FENCED", "REBUILD"}, first.events("partition_interrupted")
        wait_until(lambda: '"ready": true' in first.http("/readyz")[1], "the first is a member again")
        load.finish()
        report = stage.settle()
        assert report.sent > 500
        assert second.running
        assert first.stop() == 0
        assert second.stop() == 0


@pytest.mark.parametrize("lanes", [0, 1])
def test_routers_join_and_leave_while_records_are_released(lanes: int, stage: Stage, rng: Random) -> None:
    out = stage.target("out", 2)
    delay = stage.delay("delay", 4, default_target=out)
    routers = [stage.router(f"r{number}", instance_id="", lanes=lanes) for number in range(3)]
    with routers[0], routers[1], routers[2], Load(stage, [delay], rng, partitions=4, delays_ms=(0, 1_500)) as load:
        routers[0].start_and_wait()
        routers[1].start_and_wait()
        wait_until(lambda: owned(stage, routers[1].http("/readyz")[1]) == 2, "two partitions each")
        time.sleep(rng.uniform(0, 1))
        assert routers[0].stop() == 0
        wait_until(lambda: owned(stage, routers[1].http("/readyz")[1]) == 4, "the second has all four")
        routers[2].start_and_wait()
        time.sleep(rng.uniform(0, 1))
        routers[1].kill()
        wait_until(lambda: owned(stage, routers[2].http("/readyz")[1]) == 4, "the third has all four")
        routers[2].wait_ready()
        assert len({*lanes_of(stage, delay, 4)} - {""}) == lanes
        load.finish()
        assert stage.settle().sent > 500
        assert routers[2].stop() == 0


def test_a_delay_topic_added_under_the_same_instance_id_is_served(stage: Stage) -> None:
    """A coordinator ignores a changed subscription of a static member that comes back."""
    out = stage.target()
    old = stage.delay("old", default_target=out)
    with stage.router("before") as before:
        before.start_and_wait()
        stage.send(old, value=b"1")
        stage.wait_records(out, 1)
        assert before.stop() == 0
    new = stage.delay("new", default_target=out)
    with stage.router("after") as after:
        after.start_and_wait()
        for topic in (old, new):
            stage.send(topic, ("deliver-at", b"%d" % (now_ms() + 200)))
        stage.settle()
        assert after.stop() == 0


def test_a_router_with_nothing_to_do_is_ready_and_takes_over(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    with stage.router("busy", instance_id="") as busy, stage.router("idle", instance_id="") as idle:
        busy.start_and_wait()
        idle.start_and_wait()
        assert {owned(stage, router.http("/readyz")[1]) for router in (busy, idle)} == {0, 1}
        stage.send(delay, ("deliver-after", b"1500"))
        (owner, other) = (busy, idle) if owned(stage, busy.http("/readyz")[1]) else (idle, busy)
        assert owner.stop() == 0
        assert stage.settle().released_once == 1
        assert other.stop() == 0


def test_a_static_member_that_was_fenced_joins_again(stage: Stage) -> None:
    """The test takes its name away, as brokers do on their own if they go down while it joins."""
    with serving(stage) as (router, delay, _):
        name = next(iter(members(stage)))
        thief = Consumer(
            {
                **stage.kafka,
                "group.id": stage.group_id,
                "group.instance.id": name,
                "log_level": 0,
                "session.timeout.ms": 2_000,
                "partition.assignment.strategy": "cooperative-sticky",
            }
        )
        thief.subscribe([delay])
        deadline = time.monotonic() + 60
        while not router.events("membership_fenced"):
            thief.poll(0.1)
            assert time.monotonic() < deadline, "the router was not fenced"
        thief.close()
        stage.send(delay, ("deliver-after", b"200"))
        assert stage.settle().released_once == 1
        router.wait_ready()
        assert router.stop() == 0


def members(stage: Stage) -> set[str]:
    """Return the names of the static members of the group."""
    (future,) = stage.admin.describe_consumer_groups([stage.group_id]).values()
    return {member.group_instance_id for member in future.result(10).members}


def test_partitions_that_a_killed_router_gave_up_get_an_owner(
    stage: Stage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = stage.delay("delay", 4, default_target=stage.target())
    # A member whose session ends before it comes back is removed, and the group assigns all partitions by itself.
    longer = {"session_timeout": "20s"}
    first = stage.router("first", instance_id="first", **longer)
    second = stage.router("second", instance_id="second", **longer)
    with first, second, Load(stage, [delay], rng, partitions=4, delays_ms=(0, 1_500)) as load:
        with monkeypatch.context() as environ:
            environ.setenv(failpoints.VARIABLE, "group.given_up")
            first.start_and_wait()
        assert owned(stage, first.http("/readyz")[1]) == 4
        second.start()
        wait_until(lambda: not first.running, "the first dies while it gives up two partitions")
        first.start()
        wait_until(lambda: _owned_by(stage, [first, second]) == 4, "every partition has an owner")
        joined_anew = [*first.events("partitions_without_owner"), *second.events("partitions_without_owner")]
        assert {len(event["partitions"]) for event in joined_anew} == {2}
        load.finish()
        assert stage.settle().released_once > 0
        assert first.stop() == 0
        assert second.stop() == 0


def _owned_by(stage: Stage, routers: list[RouterProcess]) -> int:
    return sum(owned(stage, router.http("/readyz")[1]) for router in routers if router.running)
