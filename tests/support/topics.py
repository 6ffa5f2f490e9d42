"""Topics in a cluster: created, and waited for until they can be used."""

import time

from confluent_kafka.admin import AdminClient, NewTopic

_TIMEOUT_S = 30.0


def create_topic(
    admin: AdminClient,
    name: str,
    *,
    partitions: int = 1,
    replication: int = -1,
    config: dict[str, str] | None = None,
) -> None:
    """Create a topic and wait for its leaders; ``replication`` -1 is the broker's default."""
    topic = NewTopic(name, partitions, replication, config=config or {})
    admin.create_topics([topic])[name].result(_TIMEOUT_S)
    deadline = time.monotonic() + _TIMEOUT_S
    # The controller has answered; the brokers learn of the topic a moment later.
    while _led(admin, name) < partitions:
        if time.monotonic() > deadline:
            raise TimeoutError(f"topic {name} has no leader for each of its {partitions} partitions")
        time.sleep(0.02)


def _led(admin: AdminClient, name: str) -> int:
    """Return how many partitions of a topic have a leader."""
    found = admin.list_topics(name, timeout=_TIMEOUT_S).topics[name]
    return sum(partition.leader >= 0 for partition in found.partitions.values())
