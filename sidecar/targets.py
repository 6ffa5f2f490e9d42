"""Which target topics exist and may be written to, as the cluster says, remembered for a short while.

A missing target inside a transaction stalls it for seconds and then aborts it (notes on Kafka, 2.10), so targets are
looked up before one begins. Topics are described, never asked for by a producer's metadata request: that could create
them on a broker with auto-creation.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AclOperation, AdminClient, TopicDescription

from index.schedule import Reason, Rejection

KNOWN_FOR_S = 10.0
"""How long a good target is trusted. One deleted meanwhile holds up its partition until librdkafka gives up
(``message.timeout.ms``); asking costs one release 2 ms."""

REFUSED_FOR_S = 2.0
"""How long a bad one is; short, so that a topic created a moment too late is found by the next record."""

DESCRIBE_TIMEOUT_S = 10.0
MAX_REMEMBERED = 10_000


class Target(NamedTuple):
    """What is known of one target topic."""

    partitions: int
    refusal: Rejection | None
    expires_s: float


class TargetDirectory:
    """Answers for all partitions of a process; ``now_s`` is a monotonic clock."""

    def __init__(self, admin: AdminClient, now_s: Callable[[], float]) -> None:
        self._admin = admin
        self._now_s = now_s
        self._known: dict[str, Target] = {}
        self._lock = threading.Lock()

    def resolve(self, names: Iterable[str]) -> dict[str, Target]:
        """Look up several targets with at most one request; KafkaException when the cluster does not answer."""
        now_s = self._now_s()
        with self._lock:
            found = {name: target for name in names if (target := self._fresh(name, now_s)) is not None}
        missing = [name for name in names if name not in found]
        if missing:
            described = self._describe(missing, now_s)
            with self._lock:
                if len(self._known) + len(described) > MAX_REMEMBERED:
                    self._known.clear()
                self._known.update(described)
            found.update(described)
        return found

    def forget(self) -> None:
        """Ask again next time: the broker has contradicted what is remembered."""
        with self._lock:
            self._known.clear()

    def _fresh(self, name: str, now_s: float) -> Target | None:
        target = self._known.get(name)
        return target if target is not None and target.expires_s > now_s else None

    def _describe(self, names: list[str], now_s: float) -> dict[str, Target]:
        futures: dict[str, Future[TopicDescription]] = self._admin.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=DESCRIBE_TIMEOUT_S
        )
        return {name: _target(name, future, now_s) for name, future in futures.items()}


def _target(name: str, future: "Future[TopicDescription]", now_s: float) -> Target:
    try:
        description = future.result(DESCRIBE_TIMEOUT_S + 1)
    except KafkaException as exception:
        code = exception.args[0].code()
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError.TOPIC_EXCEPTION):
            refusal = Rejection(Reason.TARGET_UNKNOWN, f"Target topic {name} does not exist; create it first")
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            refusal = Rejection(Reason.TARGET_DENIED, f"The router may not describe target topic {name}")
        else:
            raise
        return Target(0, refusal, now_s + REFUSED_FOR_S)
    operations = description.authorized_operations
    if operations and not {AclOperation.WRITE, AclOperation.ALL} & set(operations):
        refusal = Rejection(Reason.TARGET_DENIED, f"The router may not write to target topic {name}")
        return Target(len(description.partitions), refusal, now_s + REFUSED_FOR_S)
    return Target(len(description.partitions), None, now_s + KNOWN_FOR_S)
