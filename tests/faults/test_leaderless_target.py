"""Tests a target partition without a leader, or with too few in-sync replicas: only records for that partition wait."""

from http import HTTPStatus
from random import Random

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic, TopicMetadata

from sidecar.config.model import load
from sidecar.dev.audit import AuditedRecord
from sidecar.dev.local_kafka import Node
from sidecar.kafka.client.admin import TopicFacts, connect, topic_facts
from tests.faults.stage import FaultStage, Proxied, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, TIMEOUT_S, Header, Stage, now_ms, released_late_ms, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]

DUE_IN_MS = 20_000
"""Counted from the start of the router, which is ready long before."""

WITHIN_MS = 5_000
LATE_MS = 15_000
"""The limit suits a busy machine; if a take-over waited for a broker, no record would arrive at all."""

SILENCE_MS = 10_000
"""The producer gives the first transaction up so much later, a sixth of the timeout of its transactions."""

STUCK_MS = 5_000
"""The process gives up the id of a lane whose last transaction has not ended so much later."""

ANSWER_WITHIN_S = 5
"""A client that asks a node in the moment of its death waits for the answer for as long as it may."""

STREAM = 270
STREAM_BEGINS_IN_MS = 10_000
STREAM_EVERY_MS = 150
OTHERS = 100
WAITING = 10
KEYS = 30


@pytest.mark.parametrize("lanes", [0, 1])
def test_a_target_that_loses_its_leader_while_the_router_runs_holds_up_its_own_records_alone(
    lanes: int, three_nodes: Proxied, replicated: FaultStage, rng: Random
) -> None:
    """The first transaction with a record for it fails; the take-over that follows finds the place without a leader."""
    node = three_nodes.cluster.nodes[2]
    out = replicated.target("a.out")
    away = _on_single_replicas(replicated, "a.audit", [node.node_id])
    delay = replicated.delay("a.delay", 1 + lanes, default_target=out, allowed_targets=[f"{replicated.word}.a.*"])
    to_away: Header = ("deliver-to", away.encode())
    with _router(replicated, lanes, transaction_timeout="60s") as router:
        router.start_and_wait()
        node.kill()
        wait_until(lambda: _led_by_nobody(replicated) == {away}, f"other leaders for all but {away}")
        began_ms = now_ms()
        for number in range(WAITING):
            replicated.post(delay, _due(began_ms - DUE_IN_MS, rng), to_away, value=b"waits-%d" % number)
        _post_others(replicated, delay, began_ms - DUE_IN_MS, rng, 1 + lanes)
        replicated.flush()
        on_time = replicated.wait_records(out, OTHERS)
        _come_back(three_nodes, node)
        assert max(map(released_late_ms, on_time)) <= SILENCE_MS + LATE_MS
        assert len(replicated.wait_records(away, WAITING)) == WAITING
        assert settled(replicated).released_once == OTHERS + WAITING
        assert router.stop() == 0


def test_a_target_with_too_few_in_sync_replicas_holds_up_its_own_records_alone(
    three_nodes: Proxied, replicated: FaultStage
) -> None:
    """Such a target takes neither records nor markers, so a transaction that has written to it does not end."""
    one, node = three_nodes.cluster.nodes[1:]
    out = replicated.target("a.out")
    away = _with_replicas(replicated, "a.audit", [[one.node_id, node.node_id]])
    delay = replicated.delay("a.delay", 2, default_target=out, allowed_targets=[f"{replicated.word}.a.*"])
    with _router(replicated, 1, transaction_timeout="60s") as router:
        router.start_and_wait()
        node.kill()
        wait_until(lambda: _in_sync(replicated, away) == [one.node_id], "the cluster without the node")
        _post_stream(replicated, delay, away)
        replicated.wait_records(away, STREAM // 10)
        replicated.alter(away, {"min.insync.replicas": "2"})
        on_time = replicated.wait_records(out, STREAM)
        assert max(map(released_late_ms, on_time)) <= SILENCE_MS + STUCK_MS + LATE_MS
        assert router.events("lane_renamed"), "the lane was not stuck"
        assert len(replicated.records(away)) < STREAM
        _come_back(three_nodes, node)
        assert len(replicated.wait_records(away, STREAM)) == STREAM
        assert settled(replicated).released_once == 2 * STREAM
        assert router.stop() == 0


def _post_stream(stage: FaultStage, delay: str, away: str) -> None:
    """Post two records for each due time: one of the first partition for this target, and one of either for another."""
    began_ms = now_ms() + STREAM_BEGINS_IN_MS
    for number in range(STREAM):
        at: Header = ("deliver-at", b"%d" % (began_ms + number * STREAM_EVERY_MS))
        stage.post(delay, at, value=b"other-%d" % number, partition=number % 2)
        stage.post(delay, at, ("deliver-to", away.encode()), value=b"waits-%d" % number)
    stage.flush()


def _in_sync(stage: FaultStage, target: str) -> list[int]:
    found = _topics(stage).get(target)
    return [] if found is None else list(found.partitions[0].isrs)


def test_an_admin_client_whose_controller_has_died_asks_another_broker(
    three_nodes: Proxied, replicated: FaultStage
) -> None:
    """Otherwise no target could be looked up, and nothing would be released."""
    target = replicated.target("a.out")
    replicated.delay("a.delay", default_target=target)
    admin = connect(load(replicated.router("asks").config, {}))
    assert isinstance(topic_facts(admin, [target])[target], TopicFacts)
    controller = admin.list_topics(timeout=TIMEOUT_S).controller_id
    node = next(each for each in three_nodes.cluster.nodes if each.node_id == controller)
    node.kill()
    try:
        wait_until(lambda: _answers(admin, target), "an answer of another broker", 40)
    finally:
        _come_back(three_nodes, node)


def _answers(admin: AdminClient, target: str) -> bool:
    try:
        return isinstance(topic_facts(admin, [target])[target], TopicFacts)
    except KafkaException:
        return False


@pytest.mark.parametrize(
    ("waiting", "lanes"), [(0, 0), (WAITING, 1)], ids=["nothing-goes-there", "some-go-there-in-a-lane"]
)
def test_a_target_without_a_leader_holds_up_its_own_records_alone(
    waiting: int, lanes: int, three_nodes: Proxied, replicated: FaultStage, rng: Random
) -> None:
    """A pattern allows this target, and nothing was ever delivered to it."""
    node = three_nodes.cluster.nodes[2]
    out = replicated.target("a.out")
    away = _on_single_replicas(replicated, "a.audit", [node.node_id])
    delay = replicated.delay("a.delay", 1 + lanes, default_target=out, allowed_targets=[f"{replicated.word}.a.*"])
    to_away: Header = ("deliver-to", away.encode())
    with _router(replicated, lanes) as router:
        router.start_and_wait()
        _take_over_without(node, router, replicated, away)
        began_ms = now_ms()
        _post_others(replicated, delay, began_ms, rng, 1 + lanes)
        for number in range(waiting):
            replicated.post(delay, _due(began_ms, rng), to_away, value=b"waits-%d" % number)
        replicated.flush()
        on_time = replicated.wait_records(out, OTHERS)
        _come_back(three_nodes, node)
        assert max(map(released_late_ms, on_time)) <= LATE_MS
        assert len(replicated.wait_records(away, waiting)) == waiting
        report = settled(replicated)
        assert report.released_once == OTHERS + waiting
        assert router.stop() == 0


def test_a_partition_without_a_leader_holds_up_its_own_records_alone(
    three_nodes: Proxied, replicated: FaultStage, rng: Random
) -> None:
    """The other partitions of the same topic go on, by number and by key, and receive the records without a key."""
    node = three_nodes.cluster.nodes[2]
    nodes = [each.node_id for each in three_nodes.cluster.nodes]
    wide = _on_single_replicas(replicated, "wide", nodes)
    partition_of = _partitions_of_keys(replicated, [b"key-%d" % number for number in range(KEYS)])
    delay = replicated.delay(default_target=wide)
    with _router(replicated) as router:
        router.start_and_wait()
        _take_over_without(node, router, replicated, wide)
        began_ms = now_ms()
        for number in range(OTHERS):
            at: Header = ("deliver-partition", b"%d" % (number % 3))
            replicated.post(delay, _due(began_ms, rng), at, value=b"by-number-%d" % (number % 3))
            replicated.post(delay, _due(began_ms, rng), value=b"without-key", key=None)
        for key, number in partition_of.items():
            replicated.post(delay, _due(began_ms, rng), value=b"by-key-%d" % number, key=key)
        replicated.flush()
        wait_until(lambda: _left(router, delay, wide) >= _goes_elsewhere(partition_of), "what goes elsewhere")
        _come_back(three_nodes, node)
        settled(replicated)
        found = replicated.records(wide)
        late = [record for record in found if released_late_ms(record) > LATE_MS and not _names(record, 2)]
        assert not late, f"{len(late)} records waited for the leader of a partition that they do not go to"
        assert {record.partition for record in found if _names(record, 2)} == {2}
        assert router.stop() == 0


def _goes_elsewhere(partition_of: dict[bytes, int]) -> int:
    by_number = sum(number % 3 != 2 for number in range(OTHERS))
    return by_number + OTHERS + sum(number != 2 for number in partition_of.values())


def _names(record: AuditedRecord, partition: int) -> bool:
    """Say whether a record was sent to this partition, by number or by key, according to its value."""
    return (record.value or b"").endswith(b"-%d" % partition)


def _left(router: RouterProcess, delay: str, target: str) -> float:
    return router.metric(f'records_released_total{{target="{target}",topic="{delay}"}}')


def _post_others(stage: FaultStage, delay: str, began_ms: int, rng: Random, partitions: int) -> None:
    """Post records for the default target to each partition in turn; the others go to the first one."""
    for number in range(OTHERS):
        stage.post(delay, _due(began_ms, rng), value=b"other-%d" % number, partition=number % partitions)


def _router(stage: FaultStage, lanes: int = 0, transaction_timeout: str = "20s") -> RouterProcess:
    return stage.router(transaction_timeout=transaction_timeout, session_timeout="6s", lanes=lanes)


def _on_single_replicas(stage: Stage, name: str, nodes: list[int]) -> str:
    """Create a target whose partitions have one replica each, on these nodes."""
    return _with_replicas(stage, name, [[node] for node in nodes])


def _with_replicas(stage: Stage, name: str, nodes: list[list[int]]) -> str:
    """Create a target whose partitions have replicas on these nodes."""
    target = f"{stage.word}.{name}"
    Stage.create(stage, [NewTopic(target, len(nodes), replica_assignment=nodes, config=APPEND_TIME)])
    stage.targets.append(target)
    return target


def _partitions_of_keys(stage: Stage, keys: list[bytes]) -> dict[bytes, int]:
    """Return the partition of three to which each key belongs, as a producer sees it."""
    topic = f"{stage.word}.keys"
    stage.create([NewTopic(topic, 3, 1, config={})])
    for key in keys:
        stage.post(topic, value=b"", key=key, partition=-1)
    stage.flush()
    return {record.key or b"": record.partition for record in stage.records(topic)}


def _take_over_without(node: Node, router: RouterProcess, stage: FaultStage, target: str) -> None:
    """Kill a node, wait until other nodes lead every partition that they have, and restart the router."""
    node.kill()
    wait_until(lambda: _led_by_nobody(stage) == {target}, f"other leaders for all but {target}")
    router.kill()
    router.start()
    wait_until(lambda: router.http("/metrics")[0] == HTTPStatus.OK, "a process that answers")


def _topics(stage: FaultStage) -> dict[str, TopicMetadata]:
    """Return the topics of the cluster; none where the client has asked a node that does not answer."""
    try:
        return stage.admin.list_topics(timeout=ANSWER_WITHIN_S).topics
    except KafkaException:
        return {}


def _led_by_nobody(stage: FaultStage) -> set[str]:
    own = {name: topic for name, topic in _topics(stage).items() if name.startswith((stage.word, "__"))}
    return {name for name, topic in own.items() if any(each.leader < 0 for each in topic.partitions.values())}


def _come_back(three_nodes: Proxied, node: Node) -> None:
    node.start()
    three_nodes.cluster.wait_ready()


def _due(began_ms: int, rng: Random) -> Header:
    return "deliver-at", b"%d" % (began_ms + DUE_IN_MS + rng.randint(0, WITHIN_MS))
