"""Measures how late the records of other partitions are while one partition of a lane, or its target, is in trouble."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import NewTopic

from sidecar.dev.local_kafka import BENCH_JVM, Cluster, cluster
from tests.bench import growth, router, workload
from tests.bench.context import Context
from tests.bench.released import Lateness
from tests.bench.results import BenchmarkFailed, Row
from tests.support import kafka_tools

PARTITIONS: Final = 10
LANES: Final = 2
PER_S: Final = 50
"""Records that fall due in each second in each partition."""

LEAD_S: Final = 15
"""Time from the first write to the first due time."""

WARM_S: Final = 15
SESSION_OVER_S: Final = 60
OTHER_PER_S: Final = 2
"""Records for the second target, which partition 0 has beside its share."""

QUOTA_BYTES_PER_S: Final = 1_000_000
LARGE_BYTES: Final = 70_000
LARGE_PER_S: Final = 20
"""So many large records exceed the quota of the one broker; the share of the other brokers stays below it."""

DAMAGED_S: Final = 15
"""Time for a router to start that will not be ready, because the state of a partition is damaged."""

OLD_MS: Final = 3_600_000
TWO_REPLICAS: Final = {
    "default.replication.factor": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
}
STRICT: Final = {"message.timestamp.before.max.ms": "600000"}


class Trouble(NamedTuple):
    """A trouble of partition 0, or of the broker that alone has the second target; its row has the ``name``.

    ``refuses`` says that the second target takes no old records. ``is_bare`` says that this broker has nothing else: it
    is away while all other topics are created. ``is_limited`` says that the producers of the router have a quota, and
    that the records for the second target are large.
    """

    name: str
    is_damaged: bool = False
    uses_second: bool = False
    kills: bool = False
    refuses: bool = False
    is_bare: bool = False
    is_limited: bool = False
    seals: bool = False
    loses_segments: bool = False
    partitions: int = PARTITIONS


TROUBLES: Final = (
    Trouble("no trouble"),
    Trouble("a broker refuses records of one partition", uses_second=True, refuses=True),
    Trouble("a broker refuses records of one partition", uses_second=True, refuses=True, partitions=100),
    Trouble("the state of one partition is damaged", is_damaged=True),
    Trouble("no trouble, and a seal a second", seals=True),
    Trouble("a seal a second, and all segments of one partition are lost", seals=True, loses_segments=True),
    Trouble("a broker is killed", kills=True),
    Trouble("a broker is killed that alone has a target of one partition", uses_second=True, kills=True),
    Trouble(
        "a broker is killed that has nothing but a target of one partition", uses_second=True, kills=True, is_bare=True
    ),
    Trouble("one partition has more bytes than a quota of the producers allows", uses_second=True, is_limited=True),
)


def isolation(context: Context) -> Iterator[Row]:
    """Measure each trouble on three brokers of its own; lost, doubled or early records end the benchmark."""
    for trouble in TROUBLES:
        properties = TWO_REPLICAS if trouble.is_bare else {}
        with cluster(3, own_nodes=True, jvm=BENCH_JVM, properties=properties) as kafka:
            lateness = _measure(replace(context, bootstrap=kafka.bootstrap), kafka, trouble)
        name = f"{trouble.partitions} partitions, {LANES} lanes, three brokers: {trouble.name}"
        for percent in (50, 99, 100):
            yield Row("isolation", f"{name}: p{percent}", lateness.percentile(percent), "ms")


def _measure(context: Context, kafka: Cluster, trouble: Trouble) -> Lateness:
    out, second = workload.name("out"), workload.name("second")
    node = kafka.nodes[-1]
    settings = STRICT if trouble.refuses else workload.APPEND_TIME
    if trouble.is_bare:
        node.kill()
        _wait_for_brokers(kafka, len(kafka.nodes) - 1)
    workload.create(kafka.bootstrap, out, workload.APPEND_TIME)
    topic = {"default_target": out, "allowed_targets": [second], "timestamp": "source"}
    if trouble.seals:
        topic |= {"seal_age": "1s"}
    group = workload.name("router")
    shared = {"lanes": LANES, "group_id": group}
    with router.prepared(kafka.bootstrap, trouble.partitions, topic=topic, router=shared) as running:
        if trouble.is_limited:
            kafka_tools.limit_producers(kafka.bootstrap, group, QUOTA_BYTES_PER_S)
        _start(kafka, running, trouble)
        if trouble.is_bare:
            node.start()
            _wait_for_brokers(kafka, len(kafka.nodes))
        _create(kafka, NewTopic(second, 1, replica_assignment=[[node.node_id]], config=settings))
        seconds = context.sizes.isolated_s
        served = range(1 if trouble.is_damaged else 0, trouble.partitions)
        began_ms = workload.now_ms() + LEAD_S * 1_000
        first_ms = began_ms + WARM_S * 1_000
        last_ms = first_ms + seconds * 1_000
        records = len(served) * PER_S * (WARM_S + seconds)
        growth.fill(context, running.delay_topic, out, [began_ms, last_ms], served, records)
        if trouble.uses_second:
            value, per_s = workload.VALUE, OTHER_PER_S
            if trouble.is_limited:
                value, per_s = context.random.randbytes(LARGE_BYTES), LARGE_PER_S
            _fill_second(context, running.delay_topic, second, [first_ms, last_ms], seconds * per_s, value)
        workload.sleep_until(first_ms)
        if trouble.kills:
            node.kill()
        if trouble.loses_segments:
            _lose_segments(kafka, running)
        workload.sleep_until(last_ms)
        return growth.read(context, out, records, first_ms, left_out=f"{running.delay_topic}/0")


def _create(kafka: Cluster, topic: NewTopic) -> None:
    admin = workload.admin(kafka.bootstrap)
    for future in admin.create_topics([topic]).values():
        future.result(workload.REQUEST_TIMEOUT_S)


def _wait_for_brokers(kafka: Cluster, count: int) -> None:
    """Wait until the cluster has so many brokers: it counts a dead one until its session ends."""
    admin = workload.admin(kafka.bootstrap)
    until_s = time.monotonic() + SESSION_OVER_S
    while len(admin.list_topics(timeout=workload.REQUEST_TIMEOUT_S).brokers) != count:
        if time.monotonic() > until_s:
            raise BenchmarkFailed(f"the cluster does not have {count} brokers after {SESSION_OVER_S} s")
        time.sleep(0.5)


def _start(kafka: Cluster, running: router.Router, trouble: Trouble) -> None:
    if not trouble.is_damaged:
        running.start()
        return
    producer = workload.ordered_producer(kafka.bootstrap, 0)
    producer.produce(f"{running.delay_topic}.delay-state", b"value", b"no key of a router", 0)
    workload.flush(producer)
    running.process.start()
    time.sleep(DAMAGED_S)


def _lose_segments(kafka: Cluster, running: router.Router) -> None:
    """Remove all segments of partition 0, which the router makes anew from the delay topic."""
    admin = workload.admin(kafka.bootstrap)
    (deleted,) = admin.delete_records(
        [TopicPartition(f"{running.delay_topic}.delay-snapshots", 0, OFFSET_END)]
    ).values()
    if deleted.result(workload.REQUEST_TIMEOUT_S).low_watermark <= 0:
        raise BenchmarkFailed("partition 0 had no segment to lose")


def _fill_second(context: Context, delay: str, second: str, between_ms: list[int], records: int, value: bytes) -> None:
    """Write records of partition 0 for the second target, too old for a target that refuses old ones."""
    producer = workload.ordered_producer(context.bootstrap, workload.FILL_LINGER_MS)
    for _ in range(records):
        headers = workload.headers(context.random.randint(*between_ms), second)
        producer.produce(delay, value, None, 0, headers=headers, timestamp=workload.now_ms() - OLD_MS)
    workload.flush(producer)
