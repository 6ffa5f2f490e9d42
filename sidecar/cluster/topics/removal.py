"""Removes the front of the topics of one partition (``DeleteRecords``), and names the remedy after a failure."""

from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, DeletedRecords

from sidecar.cluster.topics.topics import SNAPSHOTS_POLICY
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.client.commands import acl_command, alter_command
from sidecar.kafka.client.errors import cluster_error, error_of


class Removal:
    """Sends DeleteRecords to the brokers; ``bootstrap`` goes into the commands that a remedy shows to a person."""

    def __init__(self, admin: AdminClient, bootstrap: str, partition: int) -> None:
        self._admin = admin
        self._bootstrap = bootstrap
        self._partition = partition

    def below(self, topic: str, offset: int) -> Future[None]:
        """Remove all records of a topic below an offset; the future holds a ClusterError when the brokers refuse."""
        futures: dict[Any, Future[DeletedRecords]] = self._admin.delete_records(
            [TopicPartition(topic, self._partition, offset)],
            request_timeout=REQUEST_TIMEOUT_S,
            operation_timeout=REQUEST_TIMEOUT_S,
        )
        removed: Future[None] = Future()

        def tell(answer: Future[DeletedRecords]) -> None:
            exception = answer.exception()
            if isinstance(exception, KafkaException):
                error = error_of(exception)
                exception = cluster_error(error, self._remedy(topic, error))
            if exception is None:
                removed.set_result(None)
            else:
                removed.set_exception(exception)

        (asked,) = futures.values()
        asked.add_done_callback(tell)
        return removed

    def _remedy(self, topic: str, error: KafkaError) -> str:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return "DELETE is missing: " + acl_command(self._bootstrap, ["Delete"], f"--topic {topic}")
        if error.code() == KafkaError.POLICY_VIOLATION:
            mend = alter_command(self._bootstrap, topic, SNAPSHOTS_POLICY)
            return f"a topic that is only compacted refuses DeleteRecords: {mend}"
        return ""
