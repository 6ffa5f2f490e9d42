"""Reads the offsets that a group has committed."""

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

from tests.integration.scenario import Stage


def group_offset(stage: Stage, delay: str) -> int:
    """Return the offset that the routers' group has committed for partition 0 of a topic, or a negative number."""
    request = [ConsumerGroupTopicPartitions(stage.group_id, [TopicPartition(delay, 0)])]
    (future,) = stage.admin.list_consumer_group_offsets(request).values()
    (found,) = future.result(10).topic_partitions
    return int(found.offset)
