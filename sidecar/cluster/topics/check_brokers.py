"""Compares the limits of the brokers with the demands of the configuration."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, ResourceType

from sidecar.cluster.topics.findings import Finding, error, ok
from sidecar.config.model import Config
from sidecar.config.units import format_duration
from sidecar.durations import spoken_duration
from sidecar.kafka.client.admin import answer_of

LONGEST_TRANSACTION: Final = "transaction.max.timeout.ms"
ANSWER_S: Final = 3.0
"""Timeout of a broker's answer; a killed broker stays listed for a while, and the others must not wait for it."""

_THING: Final = "router.transaction_timeout"


def transaction_findings(config: Config, admin: AdminClient, broker_ids: Iterable[int]) -> Iterator[Finding]:
    """Yield whether every broker accepts transactions as long as ours may be: each broker may coordinate them."""
    wanted_ms = config.router.transaction_timeout_ms
    # One request for each broker: librdkafka accepts a single broker at a time.
    asked = {
        broker: admin.describe_configs([ConfigResource(ResourceType.BROKER, str(broker))], request_timeout=ANSWER_S)
        for broker in broker_ids
    }
    allowed_ms = {broker: _longest_transaction_ms(*futures.values()) for broker, futures in asked.items()}
    short = {broker: most_ms for broker, most_ms in allowed_ms.items() if most_ms is not None and most_ms < wanted_ms}
    if short:
        broker, most_ms = min(short.items(), key=lambda item: item[1])
        yield error(
            _THING,
            f"is {spoken_duration(wanted_ms)}, but broker {broker} allows {spoken_duration(most_ms)}"
            f" ({LONGEST_TRANSACTION}={most_ms}): no partition can be taken over",
            too_long_remedy(most_ms),
        )
    elif None in allowed_ms.values():
        yield ok(
            _THING,
            f"{spoken_duration(wanted_ms)}; not every broker tells whether it allows that ({LONGEST_TRANSACTION}):"
            " it takes DescribeConfigs on the cluster to ask",
        )
    else:
        yield ok(_THING, f"{spoken_duration(wanted_ms)}, which the brokers allow")


def too_long_remedy(most_ms: int | None = None) -> str:
    """Return the remedy for a broker that refuses transactions as long as ours."""
    least = f' to "{format_duration(most_ms)}" or less' if most_ms else ""
    return f"lower {_THING}{least}, or raise {LONGEST_TRANSACTION} of the brokers"


def _longest_transaction_ms(future: "Future[dict[str, ConfigEntry]]") -> int | None:
    """Return the limit of a broker, or None if it may not be described or does not answer.

    A missing answer must not hold up a start.
    """
    answer = answer_of(future, ANSWER_S)
    if isinstance(answer, KafkaException):
        return None
    entry = answer.get(LONGEST_TRANSACTION)
    return None if entry is None or entry.value is None else int(entry.value)
