"""The topics that a delay partition cannot do without, as the cluster tells of them at a take-over.

Asked before anything is read of them: about a partition that is not there the client says the same as about one whose
leader is away, and in words that name neither.
"""

from confluent_kafka.admin import AdminClient

from index.errors import RefusedError
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.kafka.admin import TopicFacts, topic_facts
from sidecar.topics.topics import BACKFILL, DELAY, SNAPSHOTS, STATE


def own_topics(admin: AdminClient, topic: DelayTopicConfig, partition: int) -> dict[str, TopicFacts]:
    """What is known of them, by name; RefusedError naming the first one that is not there, and the way out.

    KafkaException when the cluster does not answer. The backfill topic may be missing as a whole.
    """
    roles = {topic.name: DELAY, topic.state: STATE, topic.snapshots: SNAPSHOTS, topic.backfill: BACKFILL}
    answers = topic_facts(admin, roles)
    found: dict[str, TopicFacts] = {}
    for name, role in roles.items():
        facts = answers[name]
        if isinstance(facts, TopicFacts):
            if facts.partitions <= partition:
                raise RefusedError(
                    f"{role} {name} has no partition {partition}, and {topic.name} has; to add it: delay-router init"
                )
            found[name] = facts
        elif role != BACKFILL:
            raise RefusedError(
                f"{role} {name} does not exist; to create it: delay-router init"
                if facts is None
                else f"the router may not describe {role} {name}; what to grant: delay-router check --acls"
            )
    return found
