"""Checks that a router can work with this configuration and this cluster, for ``check`` and at the start of ``run``.

The checks change nothing and write nothing. They also name the facts that no request can tell: rights on a
transactional.id cannot be described, and show only when the producer starts.
"""

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation, AdminClient, ConsumerGroupDescription

from sidecar.cluster.topics import check_targets, status_topic, topics
from sidecar.cluster.topics.check_brokers import transaction_findings
from sidecar.cluster.topics.findings import Finding, Level, counted, error, ok, warn
from sidecar.cluster.topics.retention import DEFAULT_MAX_MESSAGE_BYTES
from sidecar.config import librdkafka_keys
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import (
    REQUEST_TIMEOUT_S,
    Denied,
    Described,
    TopicFacts,
    answer_of,
    operations_of,
    topic_facts,
)
from sidecar.kafka.client.commands import acl_command, alter_command, principal_of
from sidecar.kafka.client.errors import error_of, text_of

PROVENANCE_BYTES: Final = 1_024
"""Most bytes that release adds to a record: five headers, two of them with a topic name."""

COORDINATOR_TIMEOUT_S: Final = 5.0
COORDINATOR_PAUSE_S: Final = 0.25
_COORDINATOR_STARTS: Final = frozenset(
    {
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
    }
)


def findings(config: Config, admin: AdminClient) -> list[Finding]:
    """Return all findings, in reading order; raise KafkaException when the cluster does not answer."""
    found = router_findings(config, admin)
    existing = admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    return [*found, *check_targets.findings(config, existing), *_group(config, admin)]


def router_findings(config: Config, admin: AdminClient) -> list[Finding]:
    """Return the findings without targets of other routers and without the consumer group, for the start of a router.

    The router learns more about the group by joining it, and a coordinator that is just being elected would delay the
    start.
    """
    found = [*configuration_findings(config)]
    cluster = answer_of(admin.describe_cluster(request_timeout=REQUEST_TIMEOUT_S))
    if isinstance(cluster, KafkaException):
        raise cluster
    found.append(ok("brokers", f"{config.bootstrap} answers"))
    found += transaction_findings(config, admin, [node.id for node in cluster.nodes])
    return [*found, *topic_findings(config, topic_answers(config, admin))]


def topic_answers(config: Config, admin: AdminClient) -> dict[str, Described]:
    """Describe every topic that the configuration names."""
    return topic_facts(admin, _names(config))


def topic_findings(config: Config, answers: Mapping[str, Described]) -> Iterator[Finding]:
    """Yield the findings about topics."""
    for topic in config.delay_topics:
        yield from (replace(finding, topic=topic.name) for finding in _topic(config, topic, answers))
    yield from policies_findings(config, answers)
    yield from status_findings(config, answers)


def policies_findings(config: Config, answers: Mapping[str, Described]) -> Iterator[Finding]:
    """Yield the findings about the policies topic; a router works without it, but must be able to see its absence."""
    name = config.router.policies_topic
    if not name or name not in answers:
        return
    thing, answer = f"{topics.POLICIES} {name}", answers[name]
    if answer is None:
        yield ok(thing, "does not exist: no policy is set; to be able to set one: delay-router init")
    elif isinstance(answer, Denied):
        yield _denied(config, thing, name, ("Read", "Describe", "DescribeConfigs"))
    else:
        yield from topics.examine_beside(
            topics.wanted_policies(name, answer.replication_factor), answer, config.bootstrap
        )
        yield from _rights(config, thing, answer, {AclOperation.READ: "Read"})


def status_findings(config: Config, answers: Mapping[str, Described]) -> Iterator[Finding]:
    """Yield the findings about the status topic; a router works without it, but then answers only for itself."""
    name = config.router.status_topic
    if not name or name not in answers:
        return
    thing, answer = f"{status_topic.ROLE} {name}", answers[name]
    if answer is None:
        yield ok(thing, "does not exist: a router answers for its own partitions only; to mend that: delay-router init")
    elif isinstance(answer, Denied):
        yield _as_warning(_denied(config, thing, name, ("Read", "Write", "DescribeConfigs")))
    else:
        yield from status_topic.examine(answer, config.bootstrap)
        rights = {AclOperation.READ: "Read", AclOperation.WRITE: "Write"}
        yield from map(_as_warning, _rights(config, thing, answer, rights))


def _names(config: Config) -> Iterator[str]:
    yield from filter(None, (config.router.policies_topic, config.router.status_topic))
    for topic in config.delay_topics:
        yield from (name for _, _, name in topic.roles())
        yield from topic.named_targets()


def configuration_findings(config: Config) -> Iterator[Finding]:
    """Yield the findings that need no request to the cluster."""
    count = len(config.delay_topics)
    if not count:
        yield error("configuration", "no delay topic is configured", "add a [[delay_topics]] table with a name")
    else:
        yield ok("configuration", f"valid; {counted(count, 'delay topic')}")
    for key, problem in librdkafka_keys.in_the_clear(config.kafka):
        yield warn("configuration", f"{key}: {problem}", "router.allow_sasl_plaintext = true lets it pass")
    for message, remedy in librdkafka_keys.doubts(config.kafka, signs_tokens=bool(config.router.msk_region)):
        yield warn("configuration", message, remedy)
    for topic in config.delay_topics:
        if not topic.default_target and not topic.allowed_targets:
            yield warn(
                f"delay topic {topic.name}",
                "has neither default_target nor allowed_targets: every record will be rejected",
                f"set default_target for {topic.name}",
            )
        elif topic.delay_ms and not topic.default_target:
            yield warn(
                f"delay topic {topic.name}",
                "has a delay for records without headers, and no default_target: they will be rejected",
                f"set default_target for {topic.name}",
            )
        elif topic.dead_letter and not topic.default_target:
            yield warn(
                f"delay topic {topic.name}",
                "counts attempts, and has no default_target: a record that names no target will be rejected",
                f"set default_target for {topic.name}",
            )


def _topic(config: Config, topic: DelayTopicConfig, answers: Mapping[str, Described]) -> Iterator[Finding]:
    delay = answers[topic.name]
    thing = f"delay topic {topic.name}"
    if delay is None:
        yield error(thing, "does not exist", "delay-router init")
        return
    if isinstance(delay, Denied):
        yield _denied(config, thing, topic.name, ("Read", "Write", "DescribeConfigs"))
        yield from _unseen(config, topic, answers)
        return
    yield from topics.examine_delay_topic(topic, delay, config.bootstrap)
    yield from _rights(config, thing, delay, {AclOperation.READ: "Read"})
    appending = _rights(config, thing, delay, {AclOperation.WRITE: "Write"})
    # Without the right every series ends with its first occurrence, and records to be moved are rejected.
    yield from appending if topic.recurring else map(_as_warning, appending)
    if topic.trim:
        yield from _right_to_trim(config, thing, delay)
    for wanted in topics.wanted_beside(topic, delay):
        problems = _beside(config, wanted, answers[wanted.name])
        yield from map(_as_warning, problems) if wanted.role == topics.BACKFILL else problems
    for target in topic.named_targets():
        yield from _target(config, topic, delay, target, answers[target])


def _unseen(config: Config, topic: DelayTopicConfig, answers: Mapping[str, Described]) -> Iterator[Finding]:
    """Yield the other topics that may not be described either, so that all rights can be granted at once.

    Without the description of the delay topic the others cannot be compared with it.
    """
    for role, _, name in topic.roles():
        if name != topic.name and isinstance(answers[name], Denied):
            rights = ("Read", "Write", "Delete") if role == topics.SNAPSHOTS else ("Read", "Write")
            problem = _denied(config, f"{role} {name}", name, (*rights, "DescribeConfigs"))
            yield _as_warning(problem) if role == topics.BACKFILL else problem
    for target in topic.named_targets():
        if isinstance(answers[target], Denied):
            problem = _denied(config, f"target topic {target}", target, ("Write", "Read"))
            yield problem if target in (topic.default_target, topic.dead_letter) else _as_warning(problem)


def _beside(config: Config, wanted: topics.WantedTopic, answer: Described) -> Iterator[Finding]:
    thing = f"{wanted.role} {wanted.name}"
    needed = {AclOperation.WRITE: "Write"}
    if wanted.exact_partitions:
        needed[AclOperation.READ] = "Read"
    if answer is None:
        yield error(thing, "does not exist", "delay-router init")
    elif isinstance(answer, Denied):
        yield _denied(config, thing, wanted.name, (*needed.values(), "DescribeConfigs"))
    else:
        yield from topics.examine_beside(wanted, answer, config.bootstrap)
        yield from _rights(config, thing, answer, needed)
        if wanted.role == topics.SNAPSHOTS:
            yield from _right_to_trim(config, thing, answer)
        if wanted.role == topics.REJECTED:
            yield from map(_as_warning, _rights(config, thing, answer, {AclOperation.READ: "Read"}))


def _as_warning(problem: Finding) -> Finding:
    """Turn an error into a warning, for a right without which the router works.

    Without it the router cannot adopt buckets, answer for others, or repair the damage of a broker's crash.
    """
    return replace(problem, level=Level.WARN) if problem.is_error else problem


def _right_to_trim(config: Config, thing: str, facts: TopicFacts) -> Iterator[Finding]:
    """Warn when the right to trim is missing: the router works, but released records stay on the disks longer."""
    for problem in _rights(config, thing, facts, {AclOperation.DELETE: "Delete"}):
        message = f"{problem.message}: it cannot be trimmed (DeleteRecords)"
        yield replace(problem, level=Level.WARN, message=message)


def _target(
    config: Config, topic: DelayTopicConfig, delay: TopicFacts, name: str, answer: Described
) -> Iterator[Finding]:
    thing = f"target topic {name}"
    if answer is None:
        yield missing_target(config, topic, name)
    else:
        if isinstance(answer, Denied):
            problems = [_denied(config, thing, name, ("Write", "Read"))]
        else:
            needed = {AclOperation.WRITE: "Write"}
            to_look = map(_as_warning, _rights(config, thing, answer, {AclOperation.READ: "Read"}))
            problems = [*_size_problem(config, delay, answer), *_rights(config, thing, answer, needed), *to_look]
        if name not in (topic.default_target, topic.dead_letter):
            # Only records that name this target are rejected; all others are delivered.
            problems = [replace(problem, level=Level.WARN) for problem in problems]
        yield from problems or [ok(thing, "exists and may be written to")]
        if name == topic.default_target and isinstance(answer, TopicFacts):
            yield from _placed_apart(thing, delay, answer)


def _placed_apart(thing: str, delay: TopicFacts, target: TopicFacts) -> Iterator[Finding]:
    """Remark that records of one delay partition are written to several partitions of the target, by their keys."""
    if delay.partitions % target.partitions:
        yield ok(
            thing,
            f"{counted(target.partitions, 'partition')}, and {delay.name} {delay.partitions}: a transaction writes a"
            " marker into each partition of the target that it touches; with the same number and keys that is one",
        )


def missing_target(config: Config, topic: DelayTopicConfig, name: str) -> Finding:
    """Return the finding about a target that does not exist."""
    create = f"kafka-topics.sh --bootstrap-server {config.bootstrap} --create --topic {name}"
    remedy = f"delay-router init --create-targets, or {create}"
    if name == topic.default_target:
        return error(f"target topic {name}", f"does not exist; it is the default_target of {topic.name}", remedy)
    if name == topic.dead_letter:
        message = f"does not exist; records of {topic.name} without an attempt left go there"
        return error(f"target topic {name}", message, remedy)
    return warn(f"target topic {name}", f"does not exist; records for it will be rejected by {topic.name}", remedy)


def _size_problem(config: Config, delay: TopicFacts, target: TopicFacts) -> Iterator[Finding]:
    key = "max.message.bytes"
    if target.settings is None:
        return  # the router needs no right to describe settings; without the right there is nothing to compare
    takes = target.number(key, DEFAULT_MAX_MESSAGE_BYTES)
    sends = delay.number(key, DEFAULT_MAX_MESSAGE_BYTES)
    if takes < sends:
        yield warn(
            f"target topic {target.name}",
            f"takes {takes} bytes and {delay.name} {sends}: records in between are rejected (RECORD_TOO_LARGE)",
            alter_command(config.bootstrap, target.name, {key: str(sends + PROVENANCE_BYTES)}),
        )


def _rights(config: Config, thing: str, facts: TopicFacts, needed: dict[AclOperation, str]) -> Iterator[Finding]:
    # Without an authorizer brokers answer with every operation. Very old brokers answer with none, which says nothing.
    if not facts.operations or AclOperation.ALL in facts.operations:
        return
    missing = [name for operation, name in needed.items() if operation not in facts.operations]
    if missing:
        yield _denied(config, thing, facts.name, missing)


def _denied(config: Config, thing: str, name: str, operations: Iterable[str]) -> Finding:
    names = [*operations]
    return error(
        thing,
        f"the router may not {', '.join(names)}",
        acl_command(config.bootstrap, names, f"--topic {name}", principal_of(config.kafka)),
    )


def _describe_group(admin: AdminClient, group_id: str) -> ConsumerGroupDescription:
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    while True:
        (future,) = admin.describe_consumer_groups(
            [group_id], include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
        ).values()
        answer: ConsumerGroupDescription | KafkaException = answer_of(future)
        if not isinstance(answer, KafkaException):
            return answer
        # A cluster that has just started, or never had a group, creates its offsets topic now.
        if error_of(answer).code() not in _COORDINATOR_STARTS or time.monotonic() > deadline:
            raise answer
        time.sleep(COORDINATOR_PAUSE_S)


def _group(config: Config, admin: AdminClient) -> Iterator[Finding]:
    group_id = config.router.group_id
    thing = f"group {group_id}"
    principal = principal_of(config.kafka)
    command = acl_command(config.bootstrap, ["Read"], f"--group {shlex.quote(group_id)}", principal)
    try:
        description = _describe_group(admin, group_id)
    except KafkaException as exception:
        failure = error_of(exception)
        if failure.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            yield error(thing, "the router may not Read", command)
        else:
            yield warn(thing, f"cannot be described: {text_of(failure)}", "try again")
        return
    operations = operations_of(description.authorized_operations)
    if operations and not operations & {AclOperation.READ, AclOperation.ALL}:
        yield error(thing, "the router may not Read", command)
    else:
        yield ok(thing, counted(len(description.members), "member"))
    yield ok(
        "transactional ids",
        f"{group_id}.*: Kafka cannot be asked for rights on them; where ACLs are on, see delay-router check --acls",
    )
