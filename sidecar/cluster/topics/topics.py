"""The settings that the topics of a router should have, all of them explicit, and the faults of existing topics.

======================  ==========================  ==================================================================
topic                   policy                      reason for the settings
======================  ==========================  ==================================================================
delay topic             delete, ``max_delay`` and   the router needs each record until its release; append time,
                        a margin                    so that ``deliver-after`` counts by the brokers' clock
state                   compact, small segments     a restore reads the whole partition, and the active segment is
                                                    never cleaned: it has to roll soon (notes on Kafka, 6.6)
snapshots               compact and delete, but     as the state topic; and a topic that is only compacted refuses
                        never by age or size        DeleteRecords, with which the router removes released segments
rejected                delete, 7 days              records are a little larger than in the delay topic: error headers
backfill                compact, small segments     as the state topic; it is empty unless buckets of a job wait
receipts                delete, 7 days              the receipt of a control lies in the partition of the control
policies                compact, one partition      a policy holds until it is written again; all routers may share it
======================  ==========================  ==================================================================

The router never alters an existing topic: its settings may be intended. It reports each difference, with the command
that removes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sidecar.cluster.topics.findings import Finding, counted, error, ok, warn
from sidecar.cluster.topics.retention import (
    DEFAULT_MAX_MESSAGE_BYTES,
    Remedies,
    retention_findings,
    wanted_retention_ms,
)
from sidecar.config.delay_topic import DAY_MS, DelayTopicConfig
from sidecar.durations import spoken_duration
from sidecar.kafka.client.admin import TopicFacts
from sidecar.kafka.client.commands import alter_command, describe_hint

KEPT_MS: Final = 7 * DAY_MS
"""Retention of rejected records and of receipts, in which people have time to examine them."""

ERROR_HEADER_BYTES: Final = 65_536
"""Bytes that a record of the rejected topic may have beyond one of the delay topic: delay-error, -message and -source,
and batch overhead. The same holds for the receipts topic, whose records have the headers of controls."""

DELAY: Final = "delay topic"
STATE: Final = "state topic"
SNAPSHOTS: Final = "snapshots topic"
BACKFILL: Final = "backfill topic"
REJECTED: Final = "rejected topic"
RECEIPTS: Final = "receipts topic"
POLICIES: Final = "policies topic"
_HOUR_MS: Final = 3_600_000
_FOREVER: Final = -1

COMPACTED_SEGMENT_BYTES: Final = 16 << 20
"""Size of a file of a compacted topic: brokers compact a file only when they write to the next one."""

_COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": str(COMPACTED_SEGMENT_BYTES),
    "segment.ms": str(_HOUR_MS),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(_HOUR_MS),
    # The control record of every transaction stays for this time too, one each 10 ms at worst; a restore takes seconds.
    "delete.retention.ms": str(600_000),
    "max.message.bytes": str(DEFAULT_MAX_MESSAGE_BYTES),
    "message.timestamp.type": "CreateTime",
    "compression.type": "producer",
    "unclean.leader.election.enable": "false",
}

SNAPSHOTS_POLICY: Final = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "-1"}
"""Policy of the snapshots topic. ``delete`` only permits DeleteRecords: nothing is removed by age or size, since a live
segment may be as old as the longest delay. ``compact`` serves tombstones if the right to DeleteRecords is missing."""

_AT_MOST: Final = frozenset(
    {
        "segment.bytes",
        "segment.ms",
        "min.cleanable.dirty.ratio",
        "max.compaction.lag.ms",
        "delete.retention.ms",
    }
)
_AT_LEAST: Final = frozenset({"max.message.bytes", "min.insync.replicas"})
_EQUAL: Final = frozenset({"unclean.leader.election.enable"})


@dataclass(frozen=True, slots=True)
class WantedTopic:
    """A topic to create; -1 leaves partitions or replication to the brokers' defaults."""

    role: str
    name: str
    partitions: int
    replication_factor: int
    settings: dict[str, str]
    exact_partitions: bool = False


def wanted_delay_topic(topic: DelayTopicConfig, partitions: int, replication_factor: int) -> WantedTopic:
    """Return the delay topic to create."""
    settings = {
        "cleanup.policy": "delete",
        "retention.ms": str(wanted_retention_ms(topic)),
        "retention.bytes": str(_FOREVER),
        "message.timestamp.type": "LogAppendTime",
        "compression.type": "producer",
        "unclean.leader.election.enable": "false",
    }
    return WantedTopic(DELAY, topic.name, partitions, replication_factor, settings)


def wanted_beside(topic: DelayTopicConfig, delay: TopicFacts) -> tuple[WantedTopic, ...]:
    """Return the state, snapshots, rejected, backfill and receipts topic to create beside an existing delay topic.

    They have the replication factor of the delay topic.
    """
    replicas = delay.replication_factor
    # One replica may be away without stopping the router, if there are enough replicas.
    insync = {"min.insync.replicas": str(2 if replicas > 2 else 1)}  # noqa: PLR2004 - majority of three
    kept = {
        "cleanup.policy": "delete",
        "retention.ms": str(KEPT_MS),
        "retention.bytes": str(_FOREVER),
        "max.message.bytes": str(_max_message_bytes(delay) + ERROR_HEADER_BYTES),
        "message.timestamp.type": "CreateTime",
        "compression.type": "producer",
        "unclean.leader.election.enable": "false",
        **insync,
    }
    count = delay.partitions
    snapshots = {**_COMPACTED, **SNAPSHOTS_POLICY, **insync}
    return (
        WantedTopic(STATE, topic.state, count, replicas, {**_COMPACTED, **insync}, True),
        WantedTopic(SNAPSHOTS, topic.snapshots, count, replicas, snapshots, True),
        WantedTopic(REJECTED, topic.rejected, count, replicas, kept),
        WantedTopic(BACKFILL, topic.backfill, count, replicas, {**_COMPACTED, **insync}, True),
        WantedTopic(RECEIPTS, topic.receipts, count, replicas, kept, True),
    )


def wanted_policies(name: str, replicas: int) -> WantedTopic:
    """Return the policies topic to create, with one partition so that all policies have one order."""
    insync = {"min.insync.replicas": str(2 if replicas > 2 else 1)}  # noqa: PLR2004 - majority of three
    # Append time tells when a policy was set, for every writer.
    settings = {**_COMPACTED, "message.timestamp.type": "LogAppendTime", **insync}
    return WantedTopic(POLICIES, name, 1, replicas, settings)


def examine_delay_topic(topic: DelayTopicConfig, facts: TopicFacts, bootstrap: str) -> Iterator[Finding]:
    """Yield the faults of an existing delay topic, or one ``ok``."""
    thing = f"delay topic {topic.name}"
    settings = facts.settings
    if settings is None:
        yield warn(thing, "its settings may not be described, so retention is not checked", describe_hint(topic.name))
        return
    problems = [*_policy_problems(thing, topic.name, settings, bootstrap)]
    problems += retention_findings(thing, topic, settings, _remedies(topic, bootstrap))
    yield from problems
    if not problems:
        clock = settings.get("message.timestamp.type", "")
        yield ok(thing, f"{counted(facts.partitions, 'partition')}, {_kept(facts)}, {clock}")
    if settings.get("message.timestamp.type") == "CreateTime":
        yield ok(thing, "message.timestamp.type=CreateTime: deliver-after counts from the producer's own clock")
    if facts.replication_factor == 1:
        # KAFKA-20734; the topics beside it have the same replication factor.
        yield ok(thing, "one replica: enough to try it out, but a broker killed with -9 may lose half of a transaction")


def examine_beside(wanted: WantedTopic, facts: TopicFacts, bootstrap: str) -> Iterator[Finding]:
    """Yield the faults of an existing topic beside a delay topic, or one ``ok``."""
    thing = f"{wanted.role} {wanted.name}"
    problems = [*_partition_problems(thing, wanted, facts, bootstrap)]
    if facts.settings is None:
        problems.append(warn(thing, "its settings may not be described", describe_hint(wanted.name)))
    else:
        problems += _setting_problems(thing, wanted, facts.settings, bootstrap)
    how_many = counted(facts.partitions, "partition")
    yield from problems or [ok(thing, f"{how_many}, {wanted.settings['cleanup.policy']}")]


def _max_message_bytes(facts: TopicFacts) -> int:
    return facts.number("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)


def _kept(facts: TopicFacts) -> str:
    retention_ms = facts.number("retention.ms", _FOREVER)
    return "kept for ever" if retention_ms < 0 else f"kept {spoken_duration(retention_ms)}"


def _policy_problems(thing: str, name: str, settings: dict[str, str], bootstrap: str) -> Iterator[Finding]:
    policy = settings.get("cleanup.policy", "delete")
    if "compact" in policy:
        yield error(
            thing,
            f"cleanup.policy={policy} removes pending records that share a key with a later one",
            alter_command(bootstrap, name, {"cleanup.policy": "delete"}),
        )


def _remedies(topic: DelayTopicConfig, bootstrap: str) -> Remedies:
    return Remedies(
        longer=alter_command(bootstrap, topic.name, {"retention.ms": str(wanted_retention_ms(topic))}),
        any_size=alter_command(bootstrap, topic.name, {"retention.bytes": str(_FOREVER)}),
        smaller_records=alter_command(bootstrap, topic.name, {"max.message.bytes": str(topic.segment_bytes)}),
    )


def _partition_problems(thing: str, wanted: WantedTopic, facts: TopicFacts, bootstrap: str) -> Iterator[Finding]:
    if not wanted.exact_partitions or facts.partitions == wanted.partitions:
        return
    message = (
        f"{counted(facts.partitions, 'partition')}, but the delay topic has {wanted.partitions}; they must be equal"
    )
    if facts.partitions < wanted.partitions:
        remedy = "delay-router init"
    else:
        remedy = (
            f"name another {wanted.role} in the configuration, or delete this one if it holds nothing:"
            f" kafka-topics.sh --bootstrap-server {bootstrap} --delete --topic {wanted.name}; then delay-router init"
        )
    yield error(thing, message, remedy)


def _setting_problems(thing: str, wanted: WantedTopic, settings: dict[str, str], bootstrap: str) -> Iterator[Finding]:
    if wanted.settings["cleanup.policy"] == SNAPSHOTS_POLICY["cleanup.policy"]:
        yield from _snapshot_policy_problems(thing, wanted.name, settings, bootstrap)
    else:
        yield from _one_policy_problems(thing, wanted, settings, bootstrap)
    differing = {
        key: value for key, value in wanted.settings.items() if key in settings and _is_worse(key, settings[key], value)
    }
    if differing:
        differences = ", ".join(f"{key}={settings[key]} instead of {value}" for key, value in differing.items())
        yield warn(thing, differences, alter_command(bootstrap, wanted.name, differing))


def _one_policy_problems(
    thing: str, wanted: WantedTopic, settings: dict[str, str], bootstrap: str
) -> Iterator[Finding]:
    policy = settings.get("cleanup.policy", "delete")
    if policy != wanted.settings["cleanup.policy"]:
        loss = "its records would be removed by age" if "delete" in policy else "records with the same key are removed"
        mend = {"cleanup.policy": wanted.settings["cleanup.policy"]}
        yield error(thing, f"cleanup.policy={policy}: {loss}", alter_command(bootstrap, wanted.name, mend))


def _snapshot_policy_problems(thing: str, name: str, settings: dict[str, str], bootstrap: str) -> Iterator[Finding]:
    policy = settings.get("cleanup.policy", "delete")
    policies = {each.strip() for each in policy.split(",") if each.strip()}
    remedy = alter_command(bootstrap, name, SNAPSHOTS_POLICY)
    removing = [
        f"{key}={settings[key]}" for key in ("retention.ms", "retention.bytes") if int(settings.get(key, -1)) >= 0
    ]
    if "delete" in policies and removing:
        yield error(
            thing,
            f"cleanup.policy={policy} with {', '.join(removing)}: segments of pending records would be removed",
            remedy,
        )
    elif policies == {"compact"}:
        yield warn(
            thing,
            "cleanup.policy=compact: such a topic refuses DeleteRecords, so only the log cleaner removes segments of"
            " released records; with delete added, and retention.ms=-1 and retention.bytes=-1, it can be trimmed",
            remedy,
        )
    elif policies != {"compact", "delete"}:
        yield warn(thing, f"cleanup.policy={policy}: tombstones of released segments are never cleaned", remedy)


def _is_worse(key: str, actual: str, wanted: str) -> bool:
    if key in _AT_MOST:
        return float(actual) > float(wanted)
    if key in _AT_LEAST:
        return float(actual) < float(wanted)
    return key in _EQUAL and actual != wanted
