"""The error of a machine without a way to a Kafka broker."""

from index.errors import DelayRouterError

HOW_TO_GET_ONE = (
    "set KAFKA_BOOTSTRAP_SERVERS=host:port to use a running cluster, or install Java 17 or newer and Maven "
    "(Debian, Ubuntu: apt-get install openjdk-17-jre-headless maven), or start a Docker engine and install the extra "
    "local (in a clone: uv tool install --force '.[local]')"
)


class KafkaUnavailable(DelayRouterError):
    """No broker can be started or reached; the message is one line with the reason, and mostly with a remedy."""


def nothing_to_run(reasons: list[str]) -> KafkaUnavailable:
    """Return the one-line error for a machine without any of the three ways to a broker."""
    return KafkaUnavailable(f"no Kafka to run against: {HOW_TO_GET_ONE} [{'; '.join(reasons)}]")
