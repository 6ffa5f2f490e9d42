"""Measures how soon a written policy holds on every router of a group.

Three routers own one partition each, and a policy of their delay topic is switched again and again, at random instants.

*Under load*: each partition gets a record every 10 ms, to be released at once. ``enabled`` is switched, so from the
change on records are rejected, or released again. The first record of a partition with the other fate, by the broker's
append time, proves that its router has the policy: by behaviour, not by the router's own report.

*At rest*: no records arrive, and a sleeping worker looks at policies when it wakes up. ``paused`` is switched, and
``/readyz`` of all routers is polled until each reports it; the report is up to a quarter of a second old.

The time counts from the hand-over of the policy to the producer, so it includes the acknowledgement by the brokers.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from sidecar.policies.policy import Policy, topic_scope
from tests.bench import instances, workload
from tests.bench.context import Context
from tests.bench.instances import Group, PolicyWriter
from tests.bench.released import CHUNK, CONSUMER, READ_TIMEOUT_S, Lateness
from tests.bench.results import BenchmarkFailed, Row, at_most

INSTANCES: Final = 3
LIMIT_MS: Final = 1_000

PROBE_EVERY_S: Final = 0.01
LEAST_GAP_S: Final = 1.0
MOST_GAP_S: Final = 1.5
LAST_PROBES_S: Final = 2.0

LOOK_EVERY_S: Final = 0.01
REST_TIMEOUT_S: Final = 10.0


class Change(NamedTuple):
    """One written policy, with times in epoch ms; ``rejects`` is its intended effect."""

    handed_ms: int
    acknowledged_ms: int
    rejects: bool


class Outcome(NamedTuple):
    """The fate of one record."""

    append_ms: int
    partition: int
    rejected: bool


def policy_change(context: Context) -> Iterator[Row]:
    """Measure the time from a written policy to its effect on the last of three routers."""
    with instances.running(context.bootstrap, INSTANCES, INSTANCES) as group:
        writer = PolicyWriter(context.bootstrap, group.policies_topic)
        at_rest_ms = _at_rest(context, group, writer)
        changes, sent = _switch(context, group, writer)
        outcomes = _read(context.bootstrap, group, sent)
    effects_ms = [effect_ms(outcomes, change, following) for change, following in _pairs(changes)]
    acknowledged = Lateness(sorted(change.acknowledged_ms - change.handed_ms for change in changes), 0, 0)
    detail = f"{_text(effects_ms)}; until acknowledged: p50 {acknowledged.percentile(50)} ms"
    what = f"{INSTANCES} routers, {len(effects_ms)} changes under load"
    yield _row(f"{what}: p50 of the last router", effects_ms, 50, detail)
    yield _row(f"{what}: p99 of the last router", effects_ms, 99, "")
    what = f"{INSTANCES} routers, {len(at_rest_ms)} changes at rest"
    yield _row(f"{what}: p99, as /readyz says", at_rest_ms, 99, _text(at_rest_ms))


def effect_ms(outcomes: Sequence[Outcome], change: Change, following_ms: int) -> int:
    """Return the time from a change to the first record with its effect in the last partition.

    Raise BenchmarkFailed if a partition had no such record.
    """
    first_ms: dict[int, int] = {}
    for append_ms, partition, rejected in outcomes:
        if rejected is change.rejects and change.handed_ms <= append_ms < following_ms:
            first_ms[partition] = min(append_ms, first_ms.get(partition, append_ms))
    if len(first_ms) < INSTANCES:
        raise BenchmarkFailed(f"only partitions {sorted(first_ms)} followed a policy before it was changed again")
    return max(first_ms.values()) - change.handed_ms


def _pairs(changes: Sequence[Change]) -> Iterator[tuple[Change, int]]:
    following_ms = [change.handed_ms for change in changes[1:]] + [workload.now_ms()]
    return zip(changes, following_ms, strict=True)


def _row(what: str, effects_ms: Sequence[int], percent: int, detail: str) -> Row:
    value_ms = Lateness(sorted(effects_ms), 0, 0).percentile(percent)
    return Row("policy", what, value_ms, "ms", goal=at_most(LIMIT_MS), detail=detail)


def _text(effects_ms: Sequence[int]) -> str:
    ordered = Lateness(sorted(effects_ms), 0, 0)
    return (
        f"min {ordered.sorted_ms[0]} ms, p50 {ordered.percentile(50)} ms, p99 {ordered.percentile(99)} ms, "
        f"max {ordered.sorted_ms[-1]} ms"
    )


def _at_rest(context: Context, group: Group, writer: PolicyWriter) -> list[int]:
    effects_ms: list[int] = []
    scope = topic_scope(group.delay_topic)
    for number in range(context.sizes.policy_changes // 2):
        wanted = "active" if number % 2 else "paused"
        time.sleep(context.random.uniform(0.2, 0.7))
        handed_ms, _ = writer.write(scope, Policy(paused=wanted == "paused"))
        while {each["state"] for own in group.partitions() for each in own.values()} != {wanted}:
            if workload.now_ms() - handed_ms > REST_TIMEOUT_S * 1_000:
                raise BenchmarkFailed(f"not every router is {wanted} after {REST_TIMEOUT_S:.0f} s")
            time.sleep(LOOK_EVERY_S)
        effects_ms.append(workload.now_ms() - handed_ms)
    writer.write(scope, None)
    return effects_ms


def _switch(context: Context, group: Group, writer: PolicyWriter) -> tuple[list[Change], int]:
    """Send probes and switch the policy meanwhile. Return the changes and the number of probes."""
    producer = workload.ordered_producer(context.bootstrap, linger_ms=0)
    changes: list[Change] = []
    sent = 0
    next_change_s = time.monotonic() + LEAST_GAP_S
    until_s = float("inf")
    while (now_s := time.monotonic()) < until_s:
        headers = workload.headers(workload.now_ms(), group.target)
        for partition in range(INSTANCES):
            producer.produce(group.delay_topic, workload.VALUE, workload.KEY, partition, headers=headers)
            sent += 1
        producer.poll(0)
        if now_s >= next_change_s and len(changes) < context.sizes.policy_changes:
            rejects = len(changes) % 2 == 0
            changes.append(Change(*writer.write(topic_scope(group.delay_topic), Policy(enabled=not rejects)), rejects))
            next_change_s = now_s + context.random.uniform(LEAST_GAP_S, MOST_GAP_S)
            if len(changes) == context.sizes.policy_changes:
                until_s = now_s + LAST_PROBES_S
        time.sleep(max(0.0, now_s + PROBE_EVERY_S - time.monotonic()))
    workload.flush(producer)
    return changes, sent


def _read(bootstrap: str, group: Group, sent: int) -> list[Outcome]:
    """Return the fate of every probe. Raise BenchmarkFailed if one is lost or doubled."""
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(topic, 0, 0) for topic in (group.target, group.rejected)])
    outcomes: dict[bytes, Outcome] = {}
    until_s = time.monotonic() + READ_TIMEOUT_S
    while len(outcomes) < sent:
        if time.monotonic() > until_s:
            raise BenchmarkFailed(f"lost: {sent - len(outcomes)} of {sent} records")
        for message in consumer.consume(CHUNK, 0.2):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise BenchmarkFailed(f"{message.topic()}: {error}")
                continue
            source = dict(message.headers() or ())["delay-source"]
            if not isinstance(source, bytes) or source in outcomes:
                raise BenchmarkFailed(f"released or rejected twice: {source!r}")
            partition = int(source.split(b"/")[1])
            outcomes[source] = Outcome(message.timestamp()[1], partition, message.topic() == group.rejected)
    consumer.close()
    return list(outcomes.values())
