"""Asks a cluster for its brokers, which tells whether it is up."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient


def answers(bootstrap: str, timeout_s: float) -> frozenset[int]:
    """Return the ids of the brokers in the metadata of the cluster; empty if no broker answers."""
    # log_level 0: refused connections are expected while a broker starts, and not worth a line.
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "client.id": "local-kafka-probe"})
    try:
        return frozenset(admin.list_topics(timeout=timeout_s).brokers)
    except KafkaException:
        return frozenset()
