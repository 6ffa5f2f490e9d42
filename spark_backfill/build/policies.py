"""The targets that policies have named. ``rebuild`` goes by the configuration, and a policy may name further targets.

A record that left to a topic that the job does not read would leave again.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from index.rules.targets import matches
from spark_backfill import cluster
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic, Settings

_DENIED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})


def require_targets_read(settings: Settings, topic: DelayTopic, admin: AdminClient, more: Sequence[str]) -> None:
    """Raise JobError with the targets of policies that the job does not read; ``more`` are the ones it reads besides.

    A policy that compaction has removed is not seen.
    """
    try:
        named = unread_targets(_values(settings, admin, topic), topic, more)
    except KafkaException as exception:
        if exception.args[0].code() not in _DENIED:
            raise
        raise JobError(
            f"the job may not read {settings.policies_topic}, where a policy may name further targets of {topic.name};"
            " grant it Read and Describe there"
        ) from None
    existing = cluster.all_topics(admin)
    if unread := [name for name in named if "*" in name or name in existing]:
        raise JobError(
            f"a policy of {topic.name} names targets that the job does not read: {', '.join(unread)}. Records that left"
            " to them would leave again. Name each topic by --target, and put each pattern into allowed_targets of the"
            " configuration"
        )


def unread_targets(values: Iterable[bytes], topic: DelayTopic, more: Sequence[str]) -> list[str]:
    """Return the topics and patterns that policies of a delay topic name, without those of its configuration."""
    named = {name for value in values for name in _targets_in(value)}
    return sorted(name for name in named if name not in more and not _is_read(name, topic))


def _is_read(name: str, topic: DelayTopic) -> bool:
    # A pattern of the configuration covers a narrower pattern as it covers a name.
    return topic.rules.allowed(name) or any(matches(each, name) for each in topic.rules.allowed_targets)


def _targets_in(value: bytes) -> Iterator[str]:
    """Yield the targets that one policy names; a value that is no policy was never in force."""
    try:
        policy = json.loads(value)
    except ValueError:
        return
    if not isinstance(policy, dict):
        return
    retry, allowed = policy.get("retry"), policy.get("allowed_targets")
    found = [policy.get("default_target"), retry.get("dead_letter") if isinstance(retry, dict) else None]
    found += allowed if isinstance(allowed, list) else []
    yield from (name for name in found if isinstance(name, str) and name)


def _values(settings: Settings, admin: AdminClient, topic: DelayTopic) -> Iterator[bytes]:
    """Yield every value in the policies topic that was about the delay topic, former ones too."""
    key = f"topic/{topic.name}".encode()
    for name, found in cluster.topics(admin, filter(None, [settings.policies_topic])).items():
        for partition, log in cluster.log_ranges(admin, name, range(found.partitions)).items():
            records = cluster.records_of(settings, name, partition, log.end)
            yield from (value for of, value in records if of == key and value is not None)
