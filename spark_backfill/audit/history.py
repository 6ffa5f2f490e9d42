"""Start offsets for reading target and rejected topics, and the age up to which their evidence is complete."""

from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_backfill import cluster
from spark_backfill.audit.scope import Judged, Place
from spark_backfill.errors import JobError
from spark_backfill.settings import Settings

CLOCK_SKEW_MS: Final = 600_000
"""Largest difference between the clocks of two brokers that is allowed for, where a topic is not read from its
beginning."""

FOR_EVER: Final = 2**63 - 1

_APPEND_TIME: Final = "LogAppendTime"


def horizons(
    settings: Settings,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    settings_of: Mapping[str, Mapping[str, str]],
    began_ms: int,
) -> dict[str, int]:
    """Return, by topic, the moment before which records may have been removed, in epoch ms; 0 when none were.

    A record that is missing from before that moment may be lost or removed: this cannot be known. A compacted topic can
    never tell.
    """
    cut = {place: start for place, start in starts.items() if start > 0}
    oldest = first_timestamps(settings, cut, ends)
    found = dict.fromkeys((name for name, _ in starts), 0)
    for place in cut:
        found[place[0]] = max(found[place[0]], oldest.get(place, began_ms))
    compacted = {name for name in found if "compact" in settings_of[name].get("cleanup.policy", "")}
    return found | dict.fromkeys(compacted, FOR_EVER)


def read_from(
    admin: AdminClient,
    settings: Settings,
    judged: Iterable[Judged],
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    settings_of: Mapping[str, Mapping[str, str]],
) -> dict[Place, int]:
    """Return the offset from which to read each partition of the outgoing topics.

    A copy is appended after its record. So where brokers write both timestamps, records older than the oldest judged
    record, less CLOCK_SKEW_MS, are skipped.
    """
    delays = list(judged)
    first = {(each.topic.name, partition): start for each in delays for partition, start in each.starts.items()}
    behind = {(each.topic.name, partition): end for each in delays for partition, end in each.ends.items()}
    append_times = all(settings_of[each.topic.name].get("message.timestamp.type") == _APPEND_TIME for each in delays)
    seen = first_timestamps(settings, first, behind) if append_times and any(first.values()) else {}
    if not seen:
        return dict(starts)
    since_ms = min(seen.values()) - CLOCK_SKEW_MS
    chosen = dict(starts)
    for name in sorted({name for name, _ in starts}):
        if settings_of[name].get("message.timestamp.type") == _APPEND_TIME:
            partitions = [partition for topic, partition in starts if topic == name]
            for partition, offset in cluster.offsets_at(admin, name, partitions, since_ms).items():
                place = name, partition
                chosen[place] = ends[place] if offset < 0 else max(starts[place], min(offset, ends[place]))
    return chosen


def first_timestamps(settings: Settings, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
    """Return the timestamp of the first committed record at or behind each start, for the partitions that have one."""
    wanted = {place: start for place, start in starts.items() if start < ends[place]}
    found: dict[Place, int] = {}
    if not wanted:
        return found
    consumer = Consumer(cluster.reading(settings.kafka, settings.group_id))
    try:
        consumer.assign([TopicPartition(*place, start) for place, start in wanted.items()])
        while wanted:
            message = consumer.poll(cluster.REQUEST_TIMEOUT_S)
            if message is None:
                raise JobError(f"no record of {sorted(wanted)} could be read in {cluster.REQUEST_TIMEOUT_S:.0f} s")
            error, place = message.error(), (message.topic() or "", message.partition() or 0)
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if wanted.pop(place, None) is not None:
                consumer.incremental_unassign([TopicPartition(*place)])
                if error is None:
                    found[place] = message.timestamp()[1]
    finally:
        consumer.close()
    return found
