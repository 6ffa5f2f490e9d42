"""What has left a delay topic, by the provenance that released and rejected records carry.

A record that has been released is known by its ``delay-source`` in a target topic, one that was rejected by that in the
rejected topic. So those topics must still hold everything: where retention or compaction has taken something away, the
caller has to say until when all that was due has left.
"""

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Final

from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from pyspark.sql import DataFrame, SparkSession

from spark_backfill import cluster
from spark_backfill.cluster import LogRange
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic
from spark_backfill.source import OffsetRange, read_ranges

SOURCE_HEADER: Final = "delay-source"

Logs = Mapping[str, Mapping[int, LogRange]]


def topics_of(admin: AdminClient, topic: DelayTopic, more: Iterable[str]) -> list[str]:
    """Every existing topic that records of the delay topic may be in, and those named; JobError for a missing one."""
    existing = set(cluster.all_topics(admin))
    missing = sorted(set(more) - existing)
    if missing:
        raise JobError(f"target topic {missing[0]} does not exist; leave it out of --target")
    return sorted({topic.rejected, *more, *filter(topic.rules.allowed, existing)} & existing)


def logs_of(admin: AdminClient, topics: Iterable[str]) -> Logs:
    """What each partition of these topics holds."""
    found = cluster.topics(admin, topics)
    return {name: cluster.log_ranges(admin, name, range(told.partitions)) for name, told in found.items()}


def incomplete(admin: AdminClient, logs: Logs) -> list[str]:
    """What no longer holds everything that was ever written to it, in words."""
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in logs]
    futures = admin.describe_configs(resources, request_timeout=cluster.REQUEST_TIMEOUT_S) if resources else {}
    policies = {
        resource.name: future.result(cluster.REQUEST_TIMEOUT_S + 1)["cleanup.policy"].value or ""
        for resource, future in futures.items()
    }
    compacted = [f"{name} is compacted" for name, policy in policies.items() if "compact" in policy]
    return compacted + [
        f"{name}/{partition} begins at offset {log.start}"
        for name, partitions in logs.items()
        for partition, log in partitions.items()
        if log.start > 0
    ]


def left(
    spark: SparkSession, options: Mapping[str, str], delay_topic: str, logs: Logs, split_records: int
) -> DataFrame | None:
    """Partition and offset of every record of the delay topic that has left; None when nothing was ever written."""
    ranges = {
        name: [OffsetRange(partition, *log) for partition, log in partitions.items() if log.start < log.end]
        for name, partitions in logs.items()
    }
    read = [read_ranges(spark, options, name, some, split_records) for name, some in ranges.items() if some]
    if not read:
        return None
    # The last one: a rejected record keeps its own headers, and ours is added behind them.
    named = f"filter(headers, header -> header.key = '{SOURCE_HEADER}')"
    sources = [
        frame.where(f"exists(headers, header -> header.key = '{SOURCE_HEADER}')").selectExpr(
            f"split(cast(element_at({named}, -1).value as string), '/') place"
        )
        for frame in read
    ]
    places = reduce(DataFrame.unionAll, sources).where(f"size(place) = 3 and place[0] = '{delay_topic}'")
    return places.selectExpr("try_cast(place[1] as int) partition", "try_cast(place[2] as bigint) offset").distinct()
