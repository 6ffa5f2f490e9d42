"""The producer of whoever drives rejected records again."""

from confluent_kafka import Producer

from sidecar.config.model import Config
from sidecar.kafka.clients import MAX_MESSAGE_BYTES
from sidecar.kafka.tokens import connection
from sidecar.logs import events


def redriver(config: Config, rejected: str) -> Producer:
    """A transactional producer, of which there is one at a time for each rejected topic: the newer fences the older."""
    return Producer(
        {
            **connection(config),
            "client.id": f"{config.router.group_id}-redrive",
            # Within the prefix that routers have a right on; no delay partition's id ends so.
            "transactional.id": f"{config.router.group_id}.{rejected}.redrive",
            # Killed in the middle, it holds up readers of the delay topic for so long, and up to 10 s more.
            "transaction.timeout.ms": 10_000,
            "message.timeout.ms": 5_000,
            "linger.ms": 5,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "topic.metadata.propagation.max.ms": 5_000,
            "allow.auto.create.topics": False,
        },
        logger=events.librdkafka_logger(),
    )
