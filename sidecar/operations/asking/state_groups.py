"""Finds the delay topics whose state another router group has claimed; ``check`` warns of them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from confluent_kafka import KafkaException

from index.errors import RefusedError
from sidecar.cluster.topics.findings import Finding, counted, warn
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.config.model import Config
from sidecar.kafka.client.admin import Described, TopicFacts
from sidecar.kafka.client.errors import error_of, text_of
from sidecar.operations.finding.store import Readers
from snapshots.state.state import writers_in


def findings(config: Config, answers: Mapping[str, Described]) -> Iterator[Finding]:
    """Read the state of each delay topic, and yield a warning where it names other groups; ``answers`` describe topics.

    A topic whose state does not exist or may not be described gets no finding.
    """
    for topic in config.delay_topics:
        facts = answers.get(topic.state)
        if isinstance(facts, TopicFacts):
            yield from (replace(finding, topic=topic.name) for finding in _of_topic(config, topic, facts.partitions))


def told(own: str, topic: DelayTopicConfig, groups: Collection[frozenset[str]]) -> Iterator[Finding]:
    """Yield a warning for each other group; ``groups`` are the groups that the state of each partition names."""
    for other in sorted(frozenset[str]().union(*groups) - {own}):
        count = sum(other in each for each in groups)
        yield warn(
            f"delay topic {topic.name}",
            f"the state of {count} of {counted(len(groups), 'partition')} belongs to routers of group {other}, and"
            f" router.group_id is {own}: a router with this configuration shuts them out, and both groups interrupt"
            " each other for as long as both run",
            f'set router.group_id = "{other}"; or, to change the name, drain {topic.name} and stop every router of'
            f' {other} first: OPERATIONS, "Changing group_id"',
        )


def _of_topic(config: Config, topic: DelayTopicConfig, partitions: int) -> Iterator[Finding]:
    readers = Readers(config)
    try:
        read = [readers.state_since((topic.state, number), 0)[0] for number in range(partitions)]
    except RefusedError as problem:
        yield _unknown(topic, str(problem))
    except KafkaException as exception:
        yield _unknown(topic, text_of(error_of(exception)))
    else:
        groups = [writers_in((record.key, record.value) for record in records).groups for records in read]
        yield from told(config.router.group_id, topic, groups)
    finally:
        readers.close()


def _unknown(topic: DelayTopicConfig, why: str) -> Finding:
    return warn(f"delay topic {topic.name}", f"the groups that its state names are not known: {why}", "try again")
