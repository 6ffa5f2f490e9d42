"""Writes the first progress into an empty state partition, for ``delay-router init``: it says where to begin.

So an empty state beside a delay partition that has held records means that the state was lost. No router starts from
it, because the records that it would release may have been delivered before.

===============================================  ====================================================================
delay partition without a state                  action of ``init``
===============================================  ====================================================================
it has never held a record                       writes the first progress
it has held records                              asks the operator; with ``--deliver-existing`` writes as above
the group has an offset for it                   reports that the state was lost, also with ``--deliver-existing``
``init`` has just added it to a state that is    writes as with ``--deliver-existing``: it never had a state
there for all others, which the group has read
===============================================  ====================================================================

Each partition takes one transaction, under its own transactional.id. The transaction fences the owner of the partition,
so that the state which it reads then is complete. Without that the first progress could replace the progress of a
router that has begun meanwhile.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.cluster.topics.findings import Finding, error, warn
from sidecar.cluster.topics.start_over import done_unless_fenced, fenced_producer, state_keys, write_fresh
from sidecar.config.delay_topic import HOW_TO_DELIVER, DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S, TopicFacts, uncommitted_end
from sidecar.kafka.client.errors import Verdict, classify, error_of
from sidecar.kafka.client.membership import COMMIT_EVERY_S

COMMITTED_WITHIN_S: Final = 2 * COMMIT_EVERY_S
"""Longest wait for an offset of the group: until a router has committed the first one, or a coordinator is there."""

PAUSE_S: Final = 0.5

_COORDINATOR_MOVES: Final = frozenset(
    {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
)


def begin(
    config: Config,
    admin: AdminClient,
    topic: DelayTopicConfig,
    facts: Mapping[str, TopicFacts],
    *,
    deliver_existing: bool,
    partitions_before: int | None = None,
) -> Iterator[Finding]:
    """Write the first progress where it is missing and may be written; yield a finding about each other partition.

    ``facts`` describe the delay topic and its state topic; ``partitions_before`` is the number of partitions that the
    state topic had before ``init`` added some. Raise KafkaException when the cluster does not answer.
    """
    count = min(facts[topic.name].partitions, facts[topic.state].partitions)
    empty = {partition for partition in range(count) if _is_empty(config, admin, topic, partition)}
    used = {partition for partition in empty if uncommitted_end(admin, topic.name, partition)}
    known = _known_to_group(config, topic, used) if used else {}
    yield from (_lost(config, topic, partition, offset) for partition, offset in known.items())
    asked = set() if deliver_existing else used - set(known)
    former = range(partitions_before or 0)
    if asked and former and empty.isdisjoint(former) and _is_served(config, admin, topic, former):
        asked.intersection_update(former)
    if asked:
        yield _to_be_asked(topic, sorted(asked))
    for partition in sorted(empty - set(known) - asked):
        try:
            if not done_unless_fenced(partial(_write, config, admin, topic, partition)):
                yield _taken_back(topic, partition)
        except KafkaException as exception:
            yield warn(
                f"state topic {topic.state}",
                f"where partition {partition} begins could not be written: {error_of(exception).str()}; only a router"
                " that is started before the first record does without",
                "grant Write on the router's transactional ids, Read and Write on the state topic; run init again",
            )
            return


def _is_empty(config: Config, admin: AdminClient, topic: DelayTopicConfig, partition: int) -> bool:
    if not uncommitted_end(admin, topic.state, partition):
        return True
    try:
        return not state_keys(config, topic, partition, admin)
    except KafkaException as exception:
        if classify(error_of(exception)) is not Verdict.REFUSED:
            raise
        # The principal that creates topics may lack the right to read them. The partition does hold something.
        return False


def _write(config: Config, admin: AdminClient, topic: DelayTopicConfig, partition: int) -> None:
    producer = fenced_producer(config, admin, topic, partition)
    if not state_keys(config, topic, partition, admin):
        write_fresh(config, admin, topic, partition, producer, ())


def _known_to_group(config: Config, topic: DelayTopicConfig, partitions: set[int]) -> dict[int, int]:
    """Return the partitions for which the group has committed an offset, with that offset."""
    asked = [TopicPartition(topic.name, each) for each in sorted(partitions)]
    consumer = clients.state_reader(config)
    try:
        found = _committed(consumer, asked)
    finally:
        consumer.close()
    for each in found:
        if each.error is not None:
            raise KafkaException(each.error)
    return {each.partition: each.offset for each in found if each.offset > 0}


def _committed(consumer: Consumer, asked: list[TopicPartition]) -> list[TopicPartition]:
    """Ask for the offsets of the group, again while its coordinator is not there yet, as on a new cluster."""
    until_s = time.monotonic() + COMMITTED_WITHIN_S
    while True:
        try:
            return consumer.committed(asked, REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            if error_of(exception).code() not in _COORDINATOR_MOVES or time.monotonic() > until_s:
                raise
        time.sleep(PAUSE_S)


def _is_served(config: Config, admin: AdminClient, topic: DelayTopicConfig, partitions: Iterable[int]) -> bool:
    """Return whether some of the partitions have held records, and the group has an offset for each of these.

    A state topic that was deleted, and created again by brokers with fewer partitions, has a state of some partitions,
    too. Only the offsets tell that the others are new and not lost.
    """
    used = {each for each in partitions if uncommitted_end(admin, topic.name, each)}
    until_s = time.monotonic() + COMMITTED_WITHIN_S
    while (unknown := used - set(_known_to_group(config, topic, used))) and time.monotonic() < until_s:
        time.sleep(PAUSE_S)
    return bool(used) and not unknown


def _taken_back(topic: DelayTopicConfig, partition: int) -> Finding:
    return error(
        f"state topic {topic.state}",
        f"where partition {partition} begins could not be written: a running router takes the partition back",
        "stop the routers, and run init again",
    )


def _lost(config: Config, topic: DelayTopicConfig, partition: int, offset: int) -> Finding:
    place = f"{topic.name}/{partition}"
    return error(
        f"state topic {topic.state}",
        f"partition {partition} is empty, but group {config.router.group_id} has offset {offset} for {place}: the state"
        " was lost",
        f"python -m spark_backfill rebuild; or release its records again: delay-router start-over {place}",
    )


def _to_be_asked(topic: DelayTopicConfig, partitions: list[int]) -> Finding:
    numbers = ", ".join(map(str, partitions))
    return error(
        f"delay topic {topic.name}",
        f"holds, or has held, records in partitions {numbers}, of which {topic.state} has no state: no router starts on"
        " them, since their records may have been delivered before",
        f"where no router has ever delivered them, deliver them: {HOW_TO_DELIVER}; where one has, the state was lost:"
        " python -m spark_backfill rebuild",
    )
