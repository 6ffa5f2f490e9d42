"""Requests of the driver to the cluster, and the few records that it reads itself, from state and staging topics."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_INVALID,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from index.errors import ConfigError
from spark_backfill.errors import JobError

REQUEST_TIMEOUT_S: Final = 20.0
ASK_AGAIN_WITHIN_S: Final = 10.0
ASK_AGAIN_AFTER_S: Final = 0.2
"""Time to find the new leader of a partition or coordinator of a group, and the pause between two requests."""

SETTLE_POLL_S: Final = 0.1
"""Pause between two looks for the end of open transactions."""

_MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})

_STALE_LOOK: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
"""Errors of a request to a broker that no longer leads, or does not know yet that it leads or where its log ends."""

_COORDINATOR_MOVES: Final = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors of a request about a group while its coordinator changes, as after the loss of a broker."""

T = TypeVar("T")


class Connection(Protocol):
    """The way to reach the cluster: the settings, or a job made from them."""

    @property
    def kafka(self) -> Mapping[str, str]:
        """Keys of librdkafka."""

    @property
    def group_id(self) -> str:
        """The router's group, which names our clients."""


class Topic(NamedTuple):
    """A topic of the cluster; the id changes when it is deleted and created again."""

    name: str
    topic_id: str
    partitions: int


class LogRange(NamedTuple):
    """The first offset that a partition still holds, and the one behind its last committed record."""

    start: int
    end: int


def connect(settings: Connection) -> AdminClient:
    """Return an admin client; raise ConfigError when librdkafka refuses the configuration."""
    try:
        return AdminClient({**settings.kafka, "client.id": f"{settings.group_id}-spark"})
    except KafkaException as exception:
        raise ConfigError(f"kafka: {exception.args[0].str()}") from None


def topics(admin: AdminClient, names: Iterable[str]) -> dict[str, Topic]:
    """Return the metadata of these topics, without the topics that do not exist."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = {}
    futures = admin.describe_topics(TopicCollection(wanted), request_timeout=REQUEST_TIMEOUT_S)
    for name, future in futures.items():
        try:
            answer = future.result(REQUEST_TIMEOUT_S + 1)
        except KafkaException as exception:
            if exception.args[0].code() not in _MISSING:
                raise
        else:
            found[name] = Topic(name, str(answer.topic_id), len(answer.partitions))
    return found


def topic(admin: AdminClient, name: str) -> Topic:
    """Return one topic; raise JobError when it does not exist."""
    found = topics(admin, [name]).get(name)
    if found is None:
        raise JobError(f"topic {name} does not exist; 'delay-router check' lists the missing topics")
    return found


def topic_settings(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the effective settings of topics, by name."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
    if not resources:
        return {}
    futures = admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    return {
        resource.name: {key: str(entry.value) for key, entry in future.result(REQUEST_TIMEOUT_S + 1).items()}
        for resource, future in futures.items()
    }


def all_topics(admin: AdminClient) -> list[str]:
    """Return the names of all visible topics."""
    return sorted(admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics)


def log_ranges(admin: AdminClient, name: str, partitions: Iterable[int]) -> dict[int, LogRange]:
    """Return the range of committed offsets that each partition holds now."""
    places = [TopicPartition(name, partition) for partition in partitions]
    starts = _offsets(admin, places, OffsetSpec.earliest())
    ends = _offsets(admin, places, OffsetSpec.latest())
    return {partition: LogRange(start, ends[partition]) for partition, start in starts.items()}


def appended_ends(admin: AdminClient, name: str, partitions: Iterable[int]) -> dict[int, int]:
    """Return the offset after the last record of each partition, open transactions included."""
    places = [TopicPartition(name, partition) for partition in partitions]
    return _offsets(admin, places, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def committed_ends(
    admin: AdminClient, topics: Mapping[str, int], settle_s: float, say: Callable[[str], None]
) -> dict[tuple[str, int], int]:
    """Pin the ends of the topics once all transactions that are open now have ended.

    ``topics`` maps names to numbers of partitions. A JobError names a partition whose transaction stays open for longer
    than ``settle_s``.
    """
    wanted = {
        (name, partition): end
        for name, count in topics.items()
        for partition, end in appended_ends(admin, name, range(count)).items()
    }
    deadline = time.monotonic() + settle_s
    was_said = False
    while True:
        ends = {
            (name, partition): log.end
            for name, count in topics.items()
            for partition, log in log_ranges(admin, name, range(count)).items()
        }
        held_back = sorted(place for place, end in wanted.items() if ends[place] < end)
        if not held_back:
            return ends
        if time.monotonic() > deadline:
            name, partition = held_back[0]
            raise JobError(
                f"{name}/{partition}: a transaction is open since {settle_s:.0f} s or more, and the records behind it"
                " cannot be seen; find its producer with 'kafka-transactions.sh find-hanging', or wait longer with"
                " --settle"
            )
        if not was_said:
            say(f"waiting for open transactions in {len(held_back)} partitions, the first is {held_back[0]}")
            was_said = True
        time.sleep(SETTLE_POLL_S)


def offsets_at(admin: AdminClient, name: str, partitions: Iterable[int], time_ms: int) -> dict[int, int]:
    """Return the first offset of each partition with a timestamp at or after a moment; -1 where there is none."""
    places = [TopicPartition(name, partition) for partition in partitions]
    return _offsets(admin, places, OffsetSpec.for_timestamp(time_ms))


def _offsets(
    admin: AdminClient,
    places: Sequence[TopicPartition],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> dict[int, int]:
    """Return an offset of each partition; ask again for a while where the leader has changed."""
    if not places:
        return {}
    return _patiently(admin, lambda: _answered(admin, places, spec, isolation), _STALE_LOOK)


def _patiently(admin: AdminClient, ask: Callable[[], T], passing: frozenset[int]) -> T:
    """Return the answer; ask again for a while after an error that passes."""
    until_s = time.monotonic() + ASK_AGAIN_WITHIN_S
    while True:
        try:
            return ask()
        except KafkaException as exception:
            if exception.args[0].code() not in passing or time.monotonic() >= until_s:
                raise
        time.sleep(ASK_AGAIN_AFTER_S)
        admin.list_topics(timeout=REQUEST_TIMEOUT_S)


def _answered(
    admin: AdminClient, places: Sequence[TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[int, int]:
    asked = dict.fromkeys(places, spec)
    futures = admin.list_offsets(asked, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S)
    found = {place.partition: int(future.result(REQUEST_TIMEOUT_S + 1).offset) for place, future in futures.items()}
    # The client turns a request whose connection was lost into a result without an error and without an offset.
    if OFFSET_INVALID in found.values():
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, f"{places[0].topic}: no broker has told its offsets"))
    return found


def group_members(admin: AdminClient, group_id: str) -> list[str]:
    """Return client ids and hosts of the members of a consumer group; none when there is no such group."""
    try:
        return _patiently(admin, lambda: _members(admin, group_id), _COORDINATOR_MOVES)
    except KafkaException as exception:
        if exception.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND:
            return []
        raise


def _members(admin: AdminClient, group_id: str) -> list[str]:
    (future,) = admin.describe_consumer_groups([group_id], request_timeout=REQUEST_TIMEOUT_S).values()
    return [f"{member.client_id} on {member.host}" for member in future.result(REQUEST_TIMEOUT_S + 1).members]


def groups(admin: AdminClient) -> list[str]:
    """Return the consumer groups that the brokers show; raise JobError when one of them does not answer."""
    found = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S + 1)
    if found.errors:
        raise JobError(f"the brokers do not list all consumer groups: {found.errors[0]}; run the job again")
    return [each.group_id for each in found.valid]


def records_of(
    settings: Connection, name: str, partition: int, end: int
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield keys and values of a partition from its beginning to ``end``, which its log has reached; read_committed."""
    if end <= 0:
        return
    consumer = Consumer(reading(settings.kafka, settings.group_id))
    try:
        # A client that does not know the leader yet waits half a second before it looks for the beginning.
        consumer.list_topics(name, REQUEST_TIMEOUT_S)
        consumer.assign([TopicPartition(name, partition, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(REQUEST_TIMEOUT_S)
            if message is None:
                raise JobError(f"{name}/{partition} was not read to offset {end} in {REQUEST_TIMEOUT_S:.0f} s")
            error = message.error()
            if error is None:
                if (message.offset() or 0) >= end:
                    return
                yield message.key(), message.value()
            elif error.code() == KafkaError._PARTITION_EOF:
                return
            else:
                raise KafkaException(error)
    finally:
        consumer.close()


def reading(kafka: Mapping[str, str], group_id: str) -> dict[str, Any]:
    """Return the settings of an assign-only consumer that reads committed records and commits no offsets."""
    return {
        **kafka,
        "client.id": f"{group_id}-spark",
        # The client requires it even where partitions are assigned by hand.
        "group.id": group_id,
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "allow.auto.create.topics": False,
    }
