"""Ask a cluster who is in it: the one question that tells whether it is up."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


def answers(bootstrap: str, timeout_s: float) -> frozenset[int]:
    """Return the ids of the brokers in the cluster's metadata, empty if nothing answers."""
    # log_level 0: a refused connection is what is being waited out here, not something to print.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "client.id": "local-kafka-probe"})
    try:
        return frozenset(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return frozenset()
