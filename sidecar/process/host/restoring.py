"""Reads the backfill topic to its end."""

from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.buckets.retention import Kept
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.engine.ownership.restored import kept_by_backfills
from sidecar.engine.ports import Records, Stored
from sidecar.kafka.client.admin import is_there
from sidecar.kafka.client.commands import acl_command, principal_of
from sidecar.kafka.client.errors import cluster_error, error_of
from sidecar.kafka.reading.scan import read_compacted


def read_backfills(config: Config, topic: DelayTopicConfig, partition: int, admin: AdminClient) -> list[Stored]:
    """Read a backfill partition; return an empty list when the topic does not exist.

    Raises the errors of ``read_compacted``.
    """
    # The check comes first: the client gives the same answer about a missing partition as about one without a leader.
    return read_compacted(config, topic.backfill, partition, admin) if is_there(admin, topic.backfill) else []


def look_at_backfills(
    config: Config,
    topic: DelayTopicConfig,
    partition: int,
    admin: AdminClient,
    now_ms: Callable[[], int],
    _: Records,
) -> Kept:
    """Return the offsets that jobs need now; runs in a thread of the pool.

    Raise ClusterError when the topic cannot be read; other errors are those of ``kept_by_backfills``.
    """
    try:
        records = read_backfills(config, topic, partition, admin)
    except KafkaException as exception:
        error = error_of(exception)
        denied = error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        read = acl_command(config.bootstrap, ["Read"], f"--topic {topic.backfill}", principal_of(config.kafka))
        raise cluster_error(error, f"READ is missing: {read}" if denied else "") from exception
    return kept_by_backfills(records, now_ms())
