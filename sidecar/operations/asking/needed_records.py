"""Compares the records that a delay topic must still keep with its retention, for ``check``.

The state topic tells the lowest offset that is needed, whether a router runs or not. Brokers remove records only now
and then, in whole log segments, so a record that is older than the retention may stay for hours.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import KafkaException

from index.buckets.bucket import Bucket
from index.buckets.retention import delay_topic_needed_from
from index.errors import FormatError, RefusedError
from sidecar.cluster.topics.findings import Finding, counted, error, ok, warn
from sidecar.cluster.topics.retention import retention_of, wanted_retention_ms
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.config.retention import FOREVER_MS
from sidecar.durations import spoken_duration
from sidecar.kafka.client.admin import Described, TopicFacts
from sidecar.kafka.client.commands import alter_command
from sidecar.kafka.client.errors import error_of, text_of
from sidecar.operations.finding.store import Readers
from snapshots.state.state import StoredState, fold_state

MS_PER_S: Final = 1_000
SHOWN: Final = 3
"""Most partitions that a finding names."""


class NeededRecord(NamedTuple):
    """The first record of a partition that is still needed."""

    partition: int
    offset: int
    timestamp_ms: int


def findings(config: Config, answers: Mapping[str, Described], now_ms: int) -> Iterator[Finding]:
    """Compare the oldest needed record of each delay topic with the retention of the topic; ``answers`` describe them.

    A topic that keeps records for ever, does not exist or may not be described gets no finding.
    """
    for topic in config.delay_topics:
        facts = answers.get(topic.name)
        if not isinstance(facts, TopicFacts) or not isinstance(answers.get(topic.state), TopicFacts):
            continue
        keeps_ms = retention_of(facts.settings).keeps_ms
        if keeps_ms is not None and keeps_ms >= 0:
            yield _finding(config, topic, facts, keeps_ms, now_ms)


def needed_from(state: StoredState) -> int:
    """Return the lowest offset of the delay topic that a stored state still needs."""
    return delay_topic_needed_from(state.progress, [_bucket(state, number) for number in range(len(state.buckets))])


def compared(
    topic: DelayTopicConfig, bootstrap: str, needed: Sequence[NeededRecord], keeps_ms: int, now_ms: int
) -> Finding:
    """Compare the age of the first needed record of each partition with the retention of the topic."""
    thing = f"delay topic {topic.name}"
    old = sorted((each for each in needed if now_ms - each.timestamp_ms > keeps_ms), key=lambda each: each.timestamp_ms)
    if not old:
        return ok(thing, f"keeps every record that is still needed (retention.ms={keeps_ms})")
    named = ", ".join(
        f"{topic.name}/{each.partition} offset {each.offset} ({_age(each, now_ms)} old)" for each in old[:SHOWN]
    )
    more = f" and {counted(len(old) - SHOWN, 'partition')} more" if len(old) > SHOWN else ""
    oldest_ms = now_ms - old[0].timestamp_ms
    wanted_ms = wanted_retention_ms(topic)
    # A record may be older than every delay that is allowed now, since the limit may have been lowered.
    longer_ms = FOREVER_MS if wanted_ms < 0 or wanted_ms <= oldest_ms else wanted_ms
    return error(
        thing,
        f"retention.ms={keeps_ms} keeps {spoken_duration(keeps_ms)}, but older records are still needed: {named}{more};"
        " brokers may remove them at any time, and then they are lost",
        alter_command(bootstrap, topic.name, {"retention.ms": str(longer_ms)}),
    )


def _finding(config: Config, topic: DelayTopicConfig, facts: TopicFacts, keeps_ms: int, now_ms: int) -> Finding:
    readers = Readers(config)
    try:
        needed = [each for number in range(facts.partitions) if (each := _needed(readers, topic, facts, number))]
    except (FormatError, RefusedError) as problem:
        return _unknown(topic, str(problem))
    except KafkaException as exception:
        return _unknown(topic, text_of(error_of(exception)))
    finally:
        readers.close()
    return compared(topic, config.bootstrap, needed, keeps_ms, now_ms)


def _needed(readers: Readers, topic: DelayTopicConfig, facts: TopicFacts, partition: int) -> NeededRecord | None:
    """Return the first needed record of a partition; None where no record is needed or no valid state is stored."""
    records, _ = readers.state_since((topic.state, partition), 0)
    state = fold_state((record.key, record.value) for record in records)
    if state is None or state.delay_topic_id != facts.topic_id:
        return None
    start, end = readers.log_range((topic.name, partition))
    offset = max(start, needed_from(state))
    timestamp_ms = readers.records.first_timestamp_ms(topic.name, partition, offset) if offset < end else None
    return None if timestamp_ms is None else NeededRecord(partition, offset, timestamp_ms)


def _age(needed: NeededRecord, now_ms: int) -> str:
    return spoken_duration((now_ms - needed.timestamp_ms) // MS_PER_S * MS_PER_S)


def _unknown(topic: DelayTopicConfig, why: str) -> Finding:
    return warn(f"delay topic {topic.name}", f"the records that it must still keep are not known: {why}", "try again")


def _bucket(state: StoredState, number: int) -> Bucket:
    manifest = state.buckets[number]
    watermark = state.progress.watermark_of(manifest.bucket_id)
    bucket = Bucket(manifest, watermark)
    if manifest.bucket_id in dict(state.progress.catching_up):
        bucket.behind = watermark
    return bucket
