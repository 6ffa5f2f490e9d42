"""Membership of the consumer group: it says which delay partitions are ours, and nothing else.

Partitions are assigned paused, and no record is ever read here; each worker has a tail of its own. Offsets are
committed now and then so that lag tools have something to show. They are never read as truth, only as an alarm: a group
with offsets but no state has lost its state (:mod:`sidecar.takeover`).
"""

import threading
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from sidecar.kafka_errors import Verdict, classify, error_of

POLL_S = 0.5
COMMIT_EVERY_S = 5.0
LOOK_AGAIN_EVERY_S = 15.0
"""How soon a delay topic that could not be served is taken up after its fault was mended."""

REQUEST_TIMEOUT_S = 10.0

Partition = tuple[str, int]


class Owner(Protocol):
    """Who is told about partitions."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These are ours now."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """These go to another member when this returns: finish with them first."""

    def cursors(self) -> Iterable[tuple[Partition, int]]:
        """The committed cursor of every active partition."""

    def turned(self) -> None:
        """The member's loop is alive."""

    def topics_again(self) -> list[str] | None:
        """Delay topics to serve from now on, when that may have changed."""


class MembershipError(DelayRouterError):
    """The group cannot be joined, and waiting will not help."""


class GroupMember:
    """Runs in the thread that calls ``run``; ``still_ours`` may be asked from any thread."""

    def __init__(self, consumer: Consumer, admin: AdminClient, group_id: str, owner: Owner) -> None:
        self._consumer = consumer
        self._admin = admin
        self._group_id = group_id
        self._owner = owner
        self._member_id = ""
        self._log = structlog.get_logger()

    def run(self, topics: list[str], stopping: threading.Event) -> None:
        """Stay a member until told to stop, then give every partition back and leave."""
        self._subscribe(topics)
        commit_s = look_s = time.monotonic()
        while not stopping.is_set():
            message = self._consumer.poll(POLL_S)
            self._owner.turned()
            if message is not None and (error := message.error()) is not None:
                self._report(error)
            now_s = time.monotonic()
            if now_s - commit_s >= COMMIT_EVERY_S:
                self._commit_cursors()
                commit_s = now_s
            if now_s - look_s >= LOOK_AGAIN_EVERY_S:
                again = self._owner.topics_again()
                look_s = time.monotonic()
                if again and again != topics:
                    topics = again
                    self._subscribe(topics)
        self._consumer.close()

    def _subscribe(self, topics: list[str]) -> None:
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost)

    def still_ours(self, topic: str, partition: int) -> bool:
        """Ask the coordinator whether this member has the partition; KafkaException when it does not answer."""
        (future,) = self._admin.describe_consumer_groups([self._group_id], request_timeout=REQUEST_TIMEOUT_S).values()
        members = future.result(REQUEST_TIMEOUT_S + 1).members
        return any(
            member.member_id == self._member_id
            and any((at.topic, at.partition) == (topic, partition) for at in member.assignment.topic_partitions)
            for member in members
        )

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            # Anywhere will do, since nothing is read; without it the client would ask for a committed offset.
            each.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        if partitions:
            consumer.pause(partitions)
        self._member_id = consumer.memberid()
        self._owner.assigned(_names(partitions))

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._owner.revoked(_names(partitions))
        consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # Others may own them already; their fencing has settled what was open, so there is nothing to finish.
        self._owner.revoked(_names(partitions))
        consumer.incremental_unassign(partitions)

    def _commit_cursors(self) -> None:
        offsets = [TopicPartition(topic, number, cursor) for (topic, number), cursor in self._owner.cursors()]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=True)
        except KafkaException as exception:
            # For lag tools only: the next one will do.
            self._log.debug("group_commit_failed", error=error_of(exception).str())

    def _report(self, error: KafkaError) -> None:
        if error.fatal() or classify(error) is Verdict.DENIED:
            raise MembershipError(f"consumer group {self._group_id}: {error.str()} ({error.name()})")
        self._log.warning("group_error", error=error.str(), code=error.name())


def _names(partitions: Iterable[TopicPartition]) -> list[Partition]:
    return [(each.topic, each.partition) for each in partitions]
