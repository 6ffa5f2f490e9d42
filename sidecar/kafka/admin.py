"""Questions to the cluster, one request for many topics, with answers as plain values."""

import difflib
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
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

from index.errors import ConfigError
from sidecar.config import librdkafka_keys
from sidecar.config.model import Config
from sidecar.kafka.errors import error_of, is_leaderless
from sidecar.logs import events

REQUEST_TIMEOUT_S: Final = 10.0
"""Of one request; a broker that needs longer is as good as away."""

MISSING: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
"""Codes that say that a topic or a partition of it is not there."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What the cluster says about a topic; `settings` is None where they may not be described."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    operations: frozenset[AclOperation]
    settings: dict[str, str] | None

    def number(self, key: str, default: int) -> int:
        """A setting as a whole number; `default` where it is not known."""
        return int((self.settings or {}).get(key, default))


@dataclass(frozen=True, slots=True)
class Denied:
    """A topic the principal may not even describe."""

    name: str


Answer = TopicFacts | Denied | None
"""None: there is no such topic."""


def connect(config: Config, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """An admin client; ConfigError naming the key when librdkafka does not take the configuration.

    `on_error` gets what goes wrong with connections while the client is polled: requests themselves only time out.
    """
    callbacks: dict[str, Any] = {"error_cb": on_error} if on_error else {}
    try:
        return AdminClient(
            {**config.kafka, **callbacks, "client.id": f"{config.router.group_id}-admin"},
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


def topic_facts(admin: AdminClient, names: Iterable[str]) -> dict[str, Answer]:
    """What the cluster says about each topic, in two requests; KafkaException when it does not answer."""
    wanted = sorted(set(names))
    if not wanted:
        return {}
    futures: dict[str, Future[TopicDescription]] = admin.describe_topics(
        TopicCollection(wanted), include_authorized_operations=True, request_timeout=REQUEST_TIMEOUT_S
    )
    described = {name: _described(name, future) for name, future in futures.items()}
    present = [name for name, answer in described.items() if isinstance(answer, TopicDescription)]
    settings = topic_settings(admin, present)
    return {
        name: _facts(answer, settings[name]) if isinstance(answer, TopicDescription) else answer
        for name, answer in described.items()
    }


def is_there(admin: AdminClient, name: str) -> bool:
    """Whether a topic exists, as far as the cluster tells; KafkaException when it does not answer."""
    future = admin.describe_topics(TopicCollection([name]), request_timeout=REQUEST_TIMEOUT_S)[name]
    return _described(name, future) is not None


def topic_settings(admin: AdminClient, names: Iterable[str]) -> dict[str, dict[str, str] | None]:
    """Effective settings of existing topics; None for one whose settings may not be described."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    futures: dict[ConfigResource, Future[dict[str, ConfigEntry]]] = admin.describe_configs(
        resources, request_timeout=REQUEST_TIMEOUT_S
    )
    return {resource.name: _settings(future) for resource, future in futures.items()}


def operations_of(authorized: Iterable[object] | None) -> frozenset[AclOperation]:
    """Operations the cluster allows us on a resource; empty where it does not tell."""
    return frozenset(operation for operation in authorized or () if isinstance(operation, AclOperation))


def create_topic(admin: AdminClient, topic: NewTopic) -> KafkaError | None:
    """Create one topic; the error when that failed, and None also when it was there already."""
    try:
        admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[topic.topic].result(REQUEST_TIMEOUT_S + 1)
    except KafkaException as exception:
        failure = error_of(exception)
        return None if failure.code() == KafkaError.TOPIC_ALREADY_EXISTS else failure
    return None


def add_partitions(admin: AdminClient, topic: str, count: int) -> KafkaError | None:
    """Have a topic grow to ``count`` partitions; the error when that failed."""
    try:
        futures = admin.create_partitions([NewPartitions(topic, count)], request_timeout=REQUEST_TIMEOUT_S)
        futures[topic].result(REQUEST_TIMEOUT_S + 1)
    except KafkaException as exception:
        return error_of(exception)
    return None


def log_range(admin: AdminClient, topic: str, partition: int) -> tuple[int, int]:
    """First offset still there, and the one behind the last committed record."""
    at = TopicPartition(topic, partition)
    return _offset(admin, at, OffsetSpec.earliest()), _offset(admin, at, OffsetSpec.latest())


def uncommitted_end(admin: AdminClient, topic: str, partition: int) -> int:
    """The offset behind the last record, open transactions included."""
    at = TopicPartition(topic, partition)
    return _offset(admin, at, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)


def _offset(
    admin: AdminClient,
    at: TopicPartition,
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
) -> int:
    (future,) = admin.list_offsets({at: spec}, isolation_level=isolation, request_timeout=REQUEST_TIMEOUT_S).values()
    try:
        return int(future.result(REQUEST_TIMEOUT_S + 1).offset)
    except KafkaException as exception:
        error = error_of(exception)
        if not is_leaderless(error):
            raise
        # The client's own words name nothing.
        told = f"{at.topic}/{at.partition}: no broker leads it now, or it does not exist"
        raise KafkaException(KafkaError(error.code(), told)) from exception


def _described(name: str, future: "Future[TopicDescription]") -> TopicDescription | Denied | None:
    try:
        return future.result(REQUEST_TIMEOUT_S + 1)
    except KafkaException as exception:
        code = error_of(exception).code()
        if code in MISSING:
            return None
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return Denied(name)
        raise


def _facts(description: TopicDescription, settings: dict[str, str] | None) -> TopicFacts:
    replicas = [len(partition.replicas) for partition in description.partitions]
    operations = operations_of(description.authorized_operations)
    return TopicFacts(description.name, str(description.topic_id), len(replicas), min(replicas), operations, settings)


def _settings(future: "Future[dict[str, ConfigEntry]]") -> dict[str, str] | None:
    try:
        entries = future.result(REQUEST_TIMEOUT_S + 1)
    except KafkaException as exception:
        if error_of(exception).code() in {KafkaError.TOPIC_AUTHORIZATION_FAILED, *MISSING}:
            return None
        raise
    return {name: entry.value for name, entry in entries.items() if entry.value is not None}
