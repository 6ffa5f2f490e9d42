"""Where the last owner stood, once no transaction of the partition is open any more."""

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.healing.healing import Healing
from sidecar.partition.context import Shared
from sidecar.partition.takeover import Origin, read_origin
from sidecar.policies.table import TopicSettings


def settled_origin(
    shared: Shared,
    topic: DelayTopicConfig,
    partition: int,
    admin: AdminClient,
    producer: Producer,
    settings: TopicSettings,
) -> Origin:
    """As ``read_origin``, after healing; ``producer`` is fenced. NotYetError while something is open and undecided."""
    healing = Healing(shared, topic, partition, admin, producer)
    healing.heal_own()
    while True:
        origin = read_origin(
            shared.config,
            topic,
            partition,
            admin,
            settings.rules,
            stored_rules_hold=settings.is_doubtful,
            pay=healing.pay,
        )
        if not healing.heal_targets(origin):
            return origin
