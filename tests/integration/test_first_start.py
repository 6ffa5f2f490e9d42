"""Tests of a partition without a state: it begins if nothing can have been delivered yet, and otherwise asks."""

import json
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import NewPartitions, NewTopic

from tests.integration.group_offsets import group_offset
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Stage, now_ms, wait_until
from tests.integration.stored_buckets import lanes

RECORDS = 20


def status_of(router: RouterProcess, place: str) -> dict[str, Any]:
    body = router.http("/readyz")[1]
    found: dict[str, Any] = json.loads(body)["partitions"] if body.startswith("{") else {}
    status: dict[str, Any] = found.get(place, {"state": "", "why": ""})
    return status


def refused(router: RouterProcess, place: str) -> bool:
    return bool(status_of(router, place)["state"] == "refused")


def errors(router: RouterProcess, *arguments: str) -> list[dict[str, str]]:
    """Return the errors that ``init`` finds, in agreement with its exit code."""
    done = router.command("init", "--json", *arguments)
    found = [each for each in json.loads(done.stdout)["findings"] if each["level"] == "error"]
    assert done.returncode == bool(found), done.stdout + done.stderr
    return found


def by_hand(stage: Stage, out: str, partitions: int = 1) -> str:
    """Create a delay topic without its companion topics."""
    delay = f"{stage.word}.by-hand"
    stage.create([NewTopic(delay, partitions, 1, config={**APPEND_TIME, "retention.ms": "-1"})])
    stage.delays[delay] = {"name": delay, "default_target": out}
    return delay


def test_state_and_group_are_both_gone(stage: Stage) -> None:
    """No record of past deliveries is left: `init` and the router ask, and deliver nothing twice."""
    out = stage.target()
    delay = by_hand(stage, out)
    # A static member stays in the group for a while.
    with stage.router(instance_id="") as router:
        router.init()
        stage.send_many(delay, [[] for _ in range(RECORDS)])
        router.start_and_wait()
        stage.wait_records(out, RECORDS)
        assert router.stop() == 0
        stage.delete(f"{delay}.delay-state")
        stage.admin.delete_consumer_groups([stage.group_id])[stage.group_id].result(20)
        (asked,) = errors(router)
        assert asked["thing"] == f"delay topic {delay}"
        assert "delivered before" in asked["message"]
        assert "--deliver-existing" in asked["remedy"]
        assert "rebuild" in asked["remedy"]
        router.start()
        wait_until(lambda: refused(router, f"{delay}/0"), "a refusal")
        why = status_of(router, f"{delay}/0")["why"]
        assert f"delay-router start-over {delay}/0" in why
        assert "delay-router init --deliver-existing" in why
        assert len(stage.records(out)) == RECORDS
        assert router.stop() == 0


def test_the_state_alone_is_gone(stage: Stage) -> None:
    """`init` writes no beginning for a partition with a committed offset, even with --deliver-existing."""
    out = stage.target()
    delay = by_hand(stage, out)
    with stage.router() as router:
        router.init()
        stage.send(delay)
        router.start_and_wait()
        stage.wait_records(out, 1)
        wait_until(lambda: group_offset(stage, delay) > 0, "an offset of the group")
        assert router.stop() == 0
        stage.delete(f"{delay}.delay-state")
        (lost,) = errors(router, "--deliver-existing")
        assert "the state was lost" in lost["message"]
        assert f"start-over {delay}/0" in lost["remedy"]
        kept = group_offset(stage, delay)
        router.start()
        wait_until(lambda: refused(router, f"{delay}/0"), "a refusal")
        # A router asks the group whether it still owns a refused partition, which leaves the sign as it was.
        assert group_offset(stage, delay) == kept
        (lost,) = errors(router, "--deliver-existing")
        assert "the state was lost" in lost["message"]
        assert len(stage.records(out)) == 1
        assert router.stop() == 0


def test_a_delay_topic_with_records_that_no_router_has_seen(stage: Stage) -> None:
    out = stage.target()
    delay = by_hand(stage, out)
    stage.send(delay, value=b"from before")
    with stage.router() as router:
        (asked,) = errors(router)
        assert asked["thing"] == f"delay topic {delay}", asked
        assert errors(router, "--deliver-existing") == []
        stage.send(delay, value=b"before the first start")
        router.start_and_wait()
        assert [each.value for each in stage.wait_records(out, 2)] == [b"from before", b"before the first start"]
        # A second run beside a running router writes nothing and fences no owner.
        assert errors(router, "--deliver-existing") == []
        stage.send(delay, ("deliver-at", b"%d" % (now_ms() + 500)))
        stage.settle()
        assert router.events("partition_interrupted") == []
        assert router.stop() == 0


def test_partitions_added_to_the_delay_topic_of_a_running_router(stage: Stage) -> None:
    """The router reports the missing partitions; `init` adds them, and the router goes on with all of their records."""
    out = stage.target()
    delay = by_hand(stage, out)
    with stage.router(kafka={"topic.metadata.refresh.interval.ms": 2_000}, lanes=1) as router:
        router.init()
        router.start_and_wait()
        stage.send(delay)
        stage.admin.create_partitions([NewPartitions(delay, 3)])[delay].result(10)
        wait_until(lambda: refused(router, f"{delay}/2"), "a refusal")
        why = status_of(router, f"{delay}/2")["why"]
        assert f"state topic {delay}.delay-state has no partition 2" in why
        assert "delay-router init" in why
        # A producer that has not cached the former number of partitions.
        producer = Producer(stage.kafka)
        producer.produce(delay, b"meanwhile", partition=2)
        assert producer.flush(10) == 0
        assert errors(router) == []
        wait_until(router.ready, "every partition is active")
        producer.produce(delay, b"afterwards", partition=1, headers=[("deliver-after", b"100")])
        assert producer.flush(10) == 0
        values = {each.value for each in stage.wait_records(out, 3)}
        assert values == {b"v", b"meanwhile", b"afterwards"}
        # The first one has its own producer, as it was alone when it was taken over.
        assert [bool(lane) for lane in lanes(stage, delay, 3)] == [False, True, True]
        assert stage.settle().released_once == 3
        assert router.stop() == 0


def test_partitions_of_a_lost_state_do_not_count_as_added(stage: Stage) -> None:
    """Brokers create a deleted state topic again with fewer partitions, and somebody starts one of these over."""
    out = stage.target()
    delay = by_hand(stage, out, partitions=2)
    with stage.router(instance_id="") as router:
        router.init()
        for partition in range(2):
            stage.send(delay, partition=partition)
        router.start_and_wait()
        stage.wait_records(out, 2)
        assert router.stop() == 0
        stage.delete(f"{delay}.delay-state")
        stage.create([NewTopic(f"{delay}.delay-state", 1, 1, config={"cleanup.policy": "compact"})])
        stage.admin.delete_consumer_groups([stage.group_id])[stage.group_id].result(20)
        assert router.command("start-over", f"{delay}/0", "--yes").returncode == 0
        (asked,) = errors(router)
        assert "records in partitions 1, of which" in asked["message"]
