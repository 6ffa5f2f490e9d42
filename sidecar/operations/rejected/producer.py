"""Makes the producer that drives rejected records again."""

from sidecar.config.model import Config
from sidecar.kafka.client.clients import MAX_MESSAGE_BYTES
from sidecar.kafka.client.connections import RenewableProducer
from sidecar.kafka.client.tokens import connection
from sidecar.logs import events


def redriver(config: Config, rejected: str) -> RenewableProducer:
    """Return the transactional producer for a rejected topic; a newer one fences the older, so one at a time works."""
    return RenewableProducer(
        {
            **connection(config),
            "client.id": f"{config.router.group_id}-redrive",
            # Within the prefix that routers have a right on; the id of a delay partition ends with its number instead.
            "transactional.id": f"{config.router.group_id}.{rejected}.redrive",
            # A run that is killed in a transaction holds up readers of the delay topic for so long, and 10 s at most
            # beyond it.
            "transaction.timeout.ms": 10_000,
            "message.timeout.ms": 5_000,
            "linger.ms": 5,
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "topic.metadata.propagation.max.ms": 5_000,
            "allow.auto.create.topics": False,
        },
        events.librdkafka_logger(),
    )
