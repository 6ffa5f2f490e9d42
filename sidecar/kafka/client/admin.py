"""Asks the cluster about topics and offsets: one request covers many topics, and the answers are plain values."""

import difflib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicDescription,
)

from index.errors import ConfigError, RefusedError
from sidecar.config import librdkafka_keys
from sidecar.config.model import Config
from sidecar.engine.ports import Place
from sidecar.kafka.client.errors import error_of, is_leaderless, is_unanswered, tells_of_stale_look
from sidecar.kafka.client.tokens import connection
from sidecar.logs import events

K = TypeVar("K")
T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 10.0
"""Timeout of one request. A broker that needs longer counts as away."""

TRIES_S: Final = (2.0, 2.0, 6.0)
"""Timeouts of the tries of a request that goes to the controller: together REQUEST_TIMEOUT_S."""

LATE_S: Final = 1.0
"""Time behind the timeout of a request until its client must have told that timeout."""

LIST_TIMEOUT_S: Final = 2.0
"""Timeout of the question who the brokers are, between two tries."""

ASK_AGAIN_WITHIN_S: Final = 2.0
"""Time during which the client repeats a request for offsets because it has lost sight of brokers that are there."""

ASK_AGAIN_AFTER_S: Final = 0.05
"""Pause after the second answer; each later pause is twice as long."""

REFRESH_MS: Final = 2_000
"""Interval at which an admin client asks which brokers there are. The client sends its requests to the broker that it
takes for the controller. With the default of 5 minutes every request fails until then once that broker has died
(measured: more than 100 s), and no target can be looked up."""

MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION})
"""Error codes that say that a topic or one of its partitions does not exist."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """Description of a topic by the cluster; `settings` is None where the principal may not describe them."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    operations: frozenset[AclOperation]
    settings: dict[str, str] | None

    def number(self, key: str, default: int) -> int:
        """Return a setting as a whole number, or `default` where the setting is not known."""
        return int((self.settings or {}).get(key, default))


@dataclass(frozen=True, slots=True)
class Denied:
    """A topic that the principal may not describe at all."""

    name: str


Described = TopicFacts | Denied | None
"""The answer about one topic; None says that the topic does not exist."""


class LogOffset(NamedTuple):
    """An offset of a partition and its leader epoch; the offset is -1 where no record is as late as the time asked."""

    offset: int
    leader_epoch: int | None


def connect(config: Config, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """Return an admin client; raise ConfigError, which names the key, when librdkafka rejects the configuration.

    While the client is polled it calls `on_error` with each error of a connection: requests themselves only time out.
    """
    callbacks: dict[str, Any] = {"error_cb": on_error} if on_error else {}
    try:
        return AdminClient(
            {
                "topic.metadata.refresh.interval.ms": REFRESH_MS,
                **connection(config),
                **callbacks,
                "client.id": f"{config.router.group_id}-admin",
            },
            logger=events.librdkafka_logger(),
        )
    except KafkaException as exception:
        text = error_of(exception).str()
        raise ConfigError(f"kafka: {text}{_likely_key(text, config)}") from None
    except (TypeError, ValueError) as error:
        raise ConfigError(f"kafka: {error}") from None


def _likely_key(text: str, config: Config) -> str:
    unknown = next((key for key in config.kafka if f'"{key}"' in text), "")
    close = difflib.get_close_matches(unknown, sorted(librdkafka_keys.KNOWN), n=1) if unknown else []
    return f'; did you mean "{close[0]}"?' if close and close[0] != unknown else ""


def parse_place(text: str, command: str, example: str) -> Place:
    """Parse ``TOPIC/PARTITION``; raise ConfigError, which shows the correct form, for any other text."""
    name, slash, number = text.rpartition("/")
    if not slash or not (number.isascii() and number.isdecimal()):
        raise ConfigError(f"{command} {text}: write TOPIC/PARTITION, as in {example}")
    return name, int(number)


def topic_facts(admin: AdminClient, names: Iterable[str]) -> dict[str, Described]:
    """Describe each topic, in two requests; raise KafkaException when the cluster does not answer."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    found = described(admin, wanted, include_authorized_operations=True)
    present = [name for name, answer in found.items() if isinstance(answer, TopicDescription)]
    settings = topic_settings(admin, present)
    return {
        name: _facts(answer, settings[name]) if isinstance(answer, TopicDescription) else answer
        for name, answer in found.items()
    }


def is_there(admin: AdminClient, name: str) -> bool:
    """Say whether a topic exists, as far as the cluster tells; raise KafkaException when it does not answer."""
    return described(admin, [name])[name] is not None


def topic_id(admin: AdminClient, topic: str) -> str:
    """Return the id of a delay topic, which changes when the topic is deleted and created again.

    Raise RefusedError when the topic does not exist.
    """
    found = described(admin, [topic])[topic]
    if not isinstance(found, TopicDescription):
        raise RefusedError(f"delay topic {topic} does not exist; create it: delay-router init")
    return str(found.topic_id)


def topic_ids(admin: AdminClient, names: Iterable[str]) -> dict[str, str | None]:
    """Return the ids of topics, in one request: None for a topic that does not exist.

    Raise RefusedError when the principal may not describe one of them.
    """
    found = described(admin, names)
    for name, each in found.items():
        if isinstance(each, Denied):
            raise RefusedError(f"{name} may not be described; to see the missing rights: delay-router check")
    return {name: str(each.topic_id) if isinstance(each, TopicDescription) else None for name, each in found.items()}


def topic_settings(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str] | None]:
    """Return the effective settings of existing topics: None for a topic whose settings may not be described."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}

    def ask(timeout_s: float) -> "Mapping[ConfigResource, Future[dict[str, ConfigEntry]]]":
        return admin.describe_configs(resources, request_timeout=timeout_s)

    return {resource.name: _settings(answer) for resource, answer in _answers(admin, ask).items()}


def visible_settings(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the effective settings of topics; leave out topics that may not be described, all if no broker answers."""
    try:
        told = topic_settings(admin, names)
    except KafkaException:
        return {}
    return {name: settings for name, settings in told.items() if settings is not None}


def operations_of(authorized: Iterable[object] | None) -> frozenset[AclOperation]:
    """Return the operations that the cluster allows us on a resource; the set is empty where it does not tell."""
    return frozenset(operation for operation in authorized or () if isinstance(operation, AclOperation))


def create_topic(admin: AdminClient, topic: NewTopic) -> KafkaError | None:
    """Create one topic and return the error if that failed; a topic that exists already is no error."""
    answer = answer_of(admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[topic.topic])
    if not isinstance(answer, KafkaException) or error_of(answer).code() == KafkaError.TOPIC_ALREADY_EXISTS:
        return None
    return error_of(answer)


def add_partitions(admin: AdminClient, topic: str, count: int) -> KafkaError | None:
    """Increase the partitions of a topic to ``count`` and return the error if that failed."""
    futures = admin.create_partitions([NewPartitions(topic, count)], request_timeout=REQUEST_TIMEOUT_S)
    answer = answer_of(futures[topic])
    return error_of(answer) if isinstance(answer, KafkaException) else None


def log_range(admin: AdminClient, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset that still exists, and the offset behind the last committed record."""
    at = topic, partition
    return _offset(admin, at, OffsetSpec.earliest()), _offset(admin, at, OffsetSpec.latest())


def uncommitted_end(admin: AdminClient, topic: str, partition: int) -> int:
    """Return the offset behind the last record, including records of open transactions."""
    return _offset(admin, (topic, partition), OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def _offset(
    admin: AdminClient, at: Place, spec: OffsetSpec, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED
) -> int:
    told = offsets(admin, {at: spec}, isolation)[at]
    if isinstance(told, LogOffset):
        return told.offset
    if not is_leaderless(told):
        raise KafkaException(told)
    # The error text of the client names neither topic nor partition.
    raise KafkaException(KafkaError(told.code(), f"{at[0]}/{at[1]}: no broker leads it now, or it does not exist"))


def offsets(
    admin: AdminClient,
    wanted: Mapping[Place, OffsetSpec],
    isolation: IsolationLevel,
    timeout_s: float = REQUEST_TIMEOUT_S,
) -> dict[Place, LogOffset | KafkaError]:
    """Return the offset of each partition, or the error for it; the client sends one request to each broker.

    The client gives all answers together, so a broker that does not answer holds up the others for ``timeout_s``.

    A client that has lost its connections forgets the brokers and begins with the bootstrap servers. Until it knows the
    brokers again, which may take seconds, it answers at once that no broker leads the partition. A request for the
    metadata of the whole cluster mends that, and tells whether the partitions have leaders; only if they do, this
    function asks again.
    """
    told = _offsets(admin, wanted, isolation, timeout_s)
    until_s, pause_s = time.monotonic() + ASK_AGAIN_WITHIN_S, 0.0
    while (left := _without_answer(told)) and (left_s := until_s - time.monotonic()) > 0:
        time.sleep(pause_s)
        if not _are_led(admin, left, left_s):
            break
        told |= _offsets(admin, {place: wanted[place] for place in left}, isolation, timeout_s)
        pause_s = max(2 * pause_s, ASK_AGAIN_AFTER_S)
    return told


def _without_answer(told: Mapping[Place, LogOffset | KafkaError]) -> list[Place]:
    return [place for place, what in told.items() if not isinstance(what, LogOffset) and tells_of_stale_look(what)]


def _are_led(admin: AdminClient, places: Iterable[Place], within_s: float) -> bool:
    """Say whether each partition has a leader, by fresh metadata.

    The request covers all topics, because a request that names a topic may create it.
    """
    try:
        topics = admin.list_topics(timeout=within_s).topics
    except KafkaException:
        return False
    return all(
        topic in topics and partition in topics[topic].partitions and topics[topic].partitions[partition].leader >= 0
        for topic, partition in places
    )


def _offsets(
    admin: AdminClient, wanted: Mapping[Place, OffsetSpec], isolation: IsolationLevel, timeout_s: float
) -> dict[Place, LogOffset | KafkaError]:
    futures = admin.list_offsets(
        {TopicPartition(*place): spec for place, spec in wanted.items()},
        isolation_level=isolation,
        request_timeout=timeout_s,
    )
    told: dict[Place, LogOffset | KafkaError] = {}
    for asked, future in futures.items():
        place = asked.topic, asked.partition
        result = answer_of(future, timeout_s)
        if isinstance(result, KafkaException):
            told[place] = error_of(result)
            continue
        told[place] = LogOffset(int(result.offset), result.leader_epoch)
        if result.offset == OFFSET_INVALID:
            # The client turns a request whose connection was lost into a result without an error and without an offset.
            told[place] = KafkaError(KafkaError._TRANSPORT, f"{place[0]}/{place[1]}: no broker has told its offsets")
    return told


def described(admin: AdminClient, names: Iterable[str], **options: bool) -> dict[str, TopicDescription | Denied | None]:
    """Describe topics in one request; the answer is None for a topic that does not exist.

    Raise KafkaException when the cluster does not answer.
    """
    topics = TopicCollection(list(names))

    def ask(timeout_s: float) -> "Mapping[str, Future[TopicDescription]]":
        return admin.describe_topics(topics, request_timeout=timeout_s, **options)

    return {name: _description(name, answer) for name, answer in _answers(admin, ask).items()}


def _description(name: str, answer: TopicDescription | KafkaException) -> TopicDescription | Denied | None:
    if not isinstance(answer, KafkaException):
        return answer
    code = error_of(answer).code()
    if code in MISSING:
        return None
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return Denied(name)
    raise answer


def _answers(admin: AdminClient, ask: "Callable[[float], Mapping[K, Future[T]]]") -> dict[K, T | KafkaException]:
    """Send a request to the broker that the client takes for the controller, and return its answers or their errors.

    Brokers name any one of themselves as the controller (KIP-590), for seconds also one that has died. The client waits
    for that one, so an unanswered request is sent again, after the client has asked who the brokers are. Measured with
    3 brokers: 8.8 and 10 s without it, 2.1 s with it.
    """
    told: dict[K, T | KafkaException] = {}
    for number, timeout_s in enumerate(TRIES_S):
        if number:
            with suppress(KafkaException):
                admin.list_topics(timeout=LIST_TIMEOUT_S)
        for key, future in ask(timeout_s).items():
            answer = answer_of(future, timeout_s)
            told[key] = answer
        if not any(isinstance(each, KafkaException) and is_unanswered(error_of(each)) for each in told.values()):
            break
    return told


def answer_of(future: "Future[T]", timeout_s: float = REQUEST_TIMEOUT_S) -> T | KafkaException:
    """Wait for the answer of a request with this timeout, and return it or its error.

    A raised error would keep the frames that it passes, and they keep the future, which keeps the error. So the client
    of an ownership would live until the next garbage collection.
    """
    try:
        error = future.exception(timeout_s + LATE_S)
    except TimeoutError:
        # A process that has stood still finds the time over before its client can take the answer.
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, "the client has not told the answer in time"))
    if error is None:
        return future.result()
    if isinstance(error, KafkaException):
        return error
    raise error


def _facts(description: TopicDescription, settings: dict[str, str] | None) -> TopicFacts:
    replicas = [len(partition.replicas) for partition in description.partitions]
    operations = operations_of(description.authorized_operations)
    return TopicFacts(description.name, str(description.topic_id), len(replicas), min(replicas), operations, settings)


def _settings(answer: dict[str, ConfigEntry] | KafkaException) -> dict[str, str] | None:
    if isinstance(answer, KafkaException):
        if error_of(answer).code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *MISSING}:
            return None
        raise answer
    return {name: entry.value for name, entry in answer.items() if entry.value is not None}
