"""Taking over a delay partition: fence the old owner, read the state, and refuse what must not start.

1. ``init_transactions`` fences the old owner and settles its open transaction.
2. The state partition is read to its end: progress, and the rules that decided [S, C).
3. The delay topic is checked to be the one the state speaks of, and to still hold what is needed.
4. The first transaction writes the state where it is new or the rules have changed.

Replaying [S, C) and releasing are the worker's; nothing is released before the replay has reached C.
"""

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from index.bucket import Manifest
from index.errors import FormatError, NotYetError, RefusedError
from index.progress import Progress, start_of
from index.rules import Rules
from sidecar import clients
from sidecar.admin import MISSING, REQUEST_TIMEOUT_S, log_range, uncommitted_end
from sidecar.config import Config
from sidecar.config_topic import DelayTopicConfig
from sidecar.kafka_errors import Verdict, classify, error_of
from snapshots.state import PartitionState as StoredState
from snapshots.state import RuleEpoch, fold_state, next_epochs

STATE_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an owner begins: progress, which rules decide from where, and the delay topic all that is about.

    ``lost`` counts the offsets at or beyond S that retention has already removed: not each of them was pending, but the
    first one was. ``is_stored`` tells whether the state topic says all this already.
    """

    progress: Progress
    epochs: tuple[RuleEpoch, ...]
    delay_topic_id: str
    lost: int
    is_stored: bool
    buckets: tuple[Manifest, ...] = ()


def fence(producer: Producer, stopping: Callable[[], bool]) -> None:
    """Become the only writer of the partition; KafkaException when the cluster refuses, or when stopping."""
    while True:
        try:
            producer.init_transactions(REQUEST_TIMEOUT_S)
        except KafkaException as exception:
            # A timed-out call is resumed by calling again; a shorter timeout only lets us look at `stopping`.
            if classify(error_of(exception)) is not Verdict.RETRY or stopping():
                raise
        else:
            return


def read_origin(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient, rules: Rules) -> Origin:
    """Steps 2 and 3; RefusedError when the partition must not start, with the way out."""
    delay_topic_id = topic_id(admin, topic.name)
    log_start, log_end = log_range(admin, topic.name, partition)
    stored = _read_state(config, topic, partition, admin)
    if stored is None:
        _refuse_if_state_was_lost(config, topic, partition)
        progress = start_of(log_start)
        return Origin(progress, next_epochs((), progress, rules), delay_topic_id, lost=0, is_stored=False)
    _refuse_if_other_log(config, topic, partition, stored, delay_topic_id, log_end)
    progress = _within_log(stored.progress, log_start)
    epochs = next_epochs(stored.epochs, progress, rules, stored.buckets)
    return Origin(
        progress,
        epochs,
        delay_topic_id,
        lost=max(0, log_start - stored.progress.sealed_to),
        is_stored=(progress, epochs) == (stored.progress, stored.epochs),
        buckets=stored.buckets,
    )


def _within_log(progress: Progress, log_start: int) -> Progress:
    """Progress that speaks of nothing below the start of the log."""
    return progress._replace(cursor=max(progress.cursor, log_start), sealed_to=max(progress.sealed_to, log_start))


def topic_id(admin: AdminClient, topic: str) -> str:
    """Id of a delay topic, which changes when it is deleted and created again; RefusedError when it is missing."""
    future = admin.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)[topic]
    try:
        return str(future.result(REQUEST_TIMEOUT_S + 1).topic_id)
    except KafkaException as exception:
        if error_of(exception).code() in MISSING:
            raise RefusedError(f"delay topic {topic} does not exist; create it: delay-router init") from exception
        raise


def _read_state(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> StoredState | None:
    at = TopicPartition(topic.state, partition, OFFSET_BEGINNING)
    try:
        _, settled = log_range(admin, topic.state, partition)
    except KafkaException as exception:
        if error_of(exception).code() not in MISSING:
            raise
        raise RefusedError(
            f"state topic {topic.state} has no partition {partition}, and {topic.name} has; to see how to mend it:"
            " delay-router init"
        ) from exception
    if settled != uncommitted_end(admin, topic.state, partition):
        # We have fenced everybody else, so an open transaction here is a stranger's: wait for it to end.
        raise NotYetError(f"an open transaction of another producer hides the end of {topic.state}/{partition}")
    consumer = clients.state_reader(config)
    try:
        consumer.assign([at])
        return fold_state(_records_to_end(consumer, settled))
    except FormatError as error:
        raise RefusedError(
            f"state topic {topic.state}/{partition} cannot be trusted: {error}. Nothing is released until it is"
            f" restored, or given up: delay-router init --start-over {topic.name}/{partition}"
        ) from error
    finally:
        consumer.close()


def _records_to_end(consumer: Consumer, end: int) -> list[tuple[bytes | None, bytes | None]]:
    records: list[tuple[bytes | None, bytes | None]] = []
    while end > 0:
        first = consumer.poll(STATE_POLL_S)
        # consume(n, t) returns early only when it has n, so it must not wait here.
        for message in [first, *consumer.consume(10_000, 0)] if first is not None else ():
            error = message.error()
            if error is None:
                records.append((message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                # The event, not the last record: compaction and markers leave gaps before the end.
                return records
            else:
                raise KafkaException(error)
    return records


def _refuse_if_state_was_lost(config: Config, topic: DelayTopicConfig, partition: int) -> None:
    consumer = clients.state_reader(config)
    try:
        # Not by the admin client: see GroupMember._ask_group.
        (found,) = consumer.committed([TopicPartition(topic.name, partition)], REQUEST_TIMEOUT_S)
    finally:
        consumer.close()
    if found.error is not None:
        raise KafkaException(found.error)
    # 0 is the cursor of a partition in which nothing has been indexed yet.
    if found.offset > 0:
        raise RefusedError(
            f"state topic {topic.state}/{partition} is empty, but group {config.router.group_id} has offset"
            f" {found.offset} for {topic.name}/{partition}: the state was lost, and starting over would release"
            " again what has been released. Restore the state topic, or accept that:"
            f" delay-router init --start-over {topic.name}/{partition}"
        )


def _refuse_if_other_log(
    config: Config, topic: DelayTopicConfig, partition: int, stored: StoredState, delay_topic_id: str, log_end: int
) -> None:
    way_on = (
        f"To forget the old topic and index this one from its start:"
        f" delay-router init --start-over {topic.name}/{partition}"
    )
    if stored.delay_topic_id != delay_topic_id:
        raise RefusedError(
            f"delay topic {topic.name} was deleted and created again (id {delay_topic_id}, the state of group"
            f" {config.router.group_id} is about {stored.delay_topic_id}). {way_on}"
        )
    if log_end < stored.progress.cursor:
        raise RefusedError(
            f"delay topic {topic.name}/{partition} ends at offset {log_end}, before the cursor"
            f" {stored.progress.cursor}: its log was truncated. {way_on}"
        )
