"""Tests of too few replicas for writers, and of leaders that change while all brokers run."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import ElectionType

from tests.faults.stage import SMALL_BUCKETS, FaultStage, Proxied, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import LANES, TIMEOUT_S, Load, now_ms, wait_until
from tests.support import kafka_tools

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

TRANSACTIONS = "__transaction_state"
GROUPS = "__consumer_offsets"
MOVES = 3
FAILED_OVER_S = 12.0


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("whose", ["of-the-router", "of-the-state", "of-the-target", "of-transactions"])
def test_a_topic_has_fewer_replicas_in_sync_than_it_must(
    whose: str, lanes: int, three_nodes: Proxied, replicated: FaultStage, rng: Random
) -> None:
    """The other brokers replace the missing one; only the required number of replicas stops releases."""
    router, load, delay = _loaded(replicated, rng, lanes)
    (out,) = replicated.targets
    topics = {
        "of-the-router": replicated.topics(),
        "of-the-state": [f"{delay}.delay-state"],
        "of-the-target": [out],
        "of-transactions": [TRANSACTIONS],
    }[whose]
    with router, load:
        router.start_and_wait()
        time.sleep(3)
        _require(replicated, topics, 3)
        try:
            node = three_nodes.cluster.nodes[2]
            node.kill()
            _wait_until_told(router)
            time.sleep(FAILED_OVER_S)
            _wait_until_told(router)
            # The times are looked up later: a new leader does not give its log end while too few replicas are in sync.
            from_ms = now_ms()
            time.sleep(3)
            to_ms = now_ms()
            node.start()
            three_nodes.cluster.wait_ready()
        finally:
            _require(replicated, topics, 2)
        load.finish()
        router.wait_ready(90)
        settled(replicated, timeout_s=150)
        released = [record for record in replicated.records(out) if from_ms <= record.timestamp_ms < to_ms]
        assert not released, "was released with fewer replicas than it must"
        assert router.stop() == 0


def test_two_of_three_brokers_are_away(three_nodes: Proxied, replicated: FaultStage, rng: Random) -> None:
    router, load, _ = _loaded(replicated, rng)
    away = rng.sample(three_nodes.cluster.nodes, 2)
    with router, load:
        router.start_and_wait()
        time.sleep(3)
        for node in away:
            node.kill()
        _wait_until_told(router)
        for node in away:
            node.start()
        three_nodes.cluster.wait_ready()
        load.finish()
        router.wait_ready(90)
        settled(replicated, timeout_s=150)
        assert router.stop() == 0


def test_leaders_change_while_every_broker_runs(
    three_nodes: Proxied, replicated: FaultStage, rng: Random, tmp_path: Path
) -> None:
    router, load, _ = _loaded(replicated, rng)
    with router, load:
        router.start_and_wait()
        topics = [*replicated.topics(), TRANSACTIONS, GROUPS]
        for number in range(MOVES):
            time.sleep(rng.uniform(1, 3))
            before = _leaders(replicated, topics)
            _prefer_the_next(replicated, topics, tmp_path / f"plan-{number}.json")
            replicated.admin.elect_leaders(ElectionType.PREFERRED, None).result(TIMEOUT_S)
            _wait_until_moved(replicated, topics, before)
        load.finish()
        router.wait_ready()
        settled(replicated, timeout_s=150)
        assert not router.events("partition_failed")
        assert router.stop() == 0


def _loaded(stage: FaultStage, rng: Random, lanes: int = LANES) -> tuple[RouterProcess, Load, str]:
    # Three partitions use lanes by themselves; partitions without records would not be held.
    out = stage.target("out", 3)
    delay = stage.delay("delay", 3, default_target=out, **SMALL_BUCKETS)
    load = Load(stage, [delay], rng, partitions=3, a_second=100, delays_ms=(0, 6_000))
    return stage.router(transaction_timeout="20s", session_timeout="6s", lanes=lanes), load, delay


def _require(stage: FaultStage, topics: Sequence[str], replicas: int) -> None:
    for topic in topics:
        stage.alter(topic, {"min.insync.replicas": str(replicas)})


def _wait_until_told(router: RouterProcess) -> None:
    """Wait until the router says why it holds records, and gives a reason for every partition that is not served."""

    def is_told() -> bool:
        _, body = router.http("/readyz")
        plain = json.loads(body) if body[:1] == "{" else {}
        partitions = plain.get("partitions", {}).values()
        held = [each["why"] for each in partitions if each["state"] != "active" or each.get("why")]
        told = all(held) if held else bool(plain.get("why"))
        # A router that is ready holds all records: each partition says why.
        told &= not plain.get("ready", True) or len(held) == len(partitions) > 0
        if told:
            print(f"told: {plain.get('why')} {held}")
        return told

    wait_until(is_told, "it says why it does not release", 90.0)


def _leaders(stage: FaultStage, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    known = stage.admin.list_topics(timeout=TIMEOUT_S).topics
    return {(topic, number): each.leader for topic in topics for number, each in known[topic].partitions.items()}


def _wait_until_moved(stage: FaultStage, topics: Sequence[str], before: dict[tuple[str, int], int]) -> None:
    def are_moved() -> bool:
        now = _leaders(stage, topics)
        return sum(now[each] != leader for each, leader in before.items()) > len(before) // 2

    wait_until(are_moved, "most leaders are others")


def _prefer_the_next(stage: FaultStage, topics: Sequence[str], file: Path) -> None:
    """Put the second replica of each partition first, which an election then makes the leader."""
    known = stage.admin.list_topics(timeout=TIMEOUT_S).topics
    plan = [
        {"topic": topic, "partition": number, "replicas": [*each.replicas[1:], each.replicas[0]]}
        for topic in topics
        for number, each in known[topic].partitions.items()
    ]
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    command = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    arguments = ["--bootstrap-server", stage.bootstrap, "--reassignment-json-file", str(file), "--execute"]
    kafka_tools.run(command, arguments)
