"""Offsets of topics as a DataFrame, by Spark's own Kafka connector: pinned, read_committed, with headers.

The connector is a Java client, and the configuration holds librdkafka's keys. Keys that both know are translated; for
the others the user is asked (``--kafka-option``), so that a job never reads with less security than the router.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from index.errors import ConfigError

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_TRANSLATED: Final = frozenset(
    {
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.endpoint.identification.algorithm",
    }
)


class OffsetRange(NamedTuple):
    """Offsets [from_offset, to_offset) of one partition."""

    partition: int
    from_offset: int
    to_offset: int

    @property
    def span(self) -> int:
        """Number of offsets in the range; records are fewer where transactions ended."""
        return self.to_offset - self.from_offset


def read_ranges(
    spark: SparkSession, options: Mapping[str, str], topic: str, ranges: Iterable[OffsetRange], split_records: int
) -> DataFrame:
    """Read the ranges, at least one, as columns key, value, headers, topic, partition, offset and timestamp.

    ``options`` come from ``connector_options``; a task reads about ``split_records`` offsets. A range that retention
    has cut into fails the query: nothing is skipped.
    """
    given = list(ranges)
    wanted = [each for each in given if each.span] or given[:1]
    records = sum(each.span for each in wanted)
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("assign", json.dumps({topic: [each.partition for each in wanted]}))
        .option("startingOffsets", json.dumps({topic: {str(each.partition): each.from_offset for each in wanted}}))
        .option("endingOffsets", json.dumps({topic: {str(each.partition): each.to_offset for each in wanted}}))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("kafka.isolation.level", "read_committed")
        .option("minPartitions", str(max(1, -(-records // split_records))))
        .load()
    )


def connector_options(kafka: Mapping[str, str], overrides: Sequence[str] = ()) -> dict[str, str]:
    """Translate librdkafka's keys to options of the connector; ``overrides`` are KEY=VALUE of the command line and win.

    Raises ConfigError for security settings that have no counterpart and are not overridden.
    """
    given = key_values("--kafka-option", overrides, "kafka.ssl.truststore.location=FILE")
    options = {
        "kafka.bootstrap.servers": kafka.get("bootstrap.servers") or kafka["metadata.broker.list"],
        # A fetch of the default 1 MiB a partition has a third of the throughput (librdkafka fetches as much).
        "kafka.max.partition.fetch.bytes": "8388608",
    }
    if protocol := kafka.get("security.protocol"):
        options["kafka.security.protocol"] = protocol.upper()
    for prefix, translate in (("sasl.", _sasl), ("ssl.", _ssl)):
        unknown = sorted(key for key in kafka if key.startswith(prefix) and key not in _TRANSLATED)
        if unknown and not any(key.startswith(f"kafka.{prefix}") for key in given):
            raise ConfigError(
                f'kafka."{unknown[0]}" has no counterpart in the Java client that Spark reads with; set the keys'
                f" of that client: --kafka-option kafka.{prefix}...=..."
            )
        options |= {f"kafka.{key}": value for key, value in translate(kafka).items()}
    return options | given


def key_values(option: str, given: Sequence[str], example: str) -> dict[str, str]:
    """Read the values of a repeatable option KEY=VALUE; raise ConfigError, with the example, for anything else."""
    pairs = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise ConfigError(f"{option} {each!r}: written KEY=VALUE, as in {example}")
        pairs[key] = value
    return pairs


def _sasl(kafka: Mapping[str, str]) -> dict[str, str]:
    mechanism = kafka.get("sasl.mechanism") or kafka.get("sasl.mechanisms")
    if not mechanism:
        return {}
    java = {"sasl.mechanism": mechanism}
    if module := _LOGIN_MODULES.get(mechanism):
        user, password = (_quoted(kafka.get(f"sasl.{each}", "")) for each in ("username", "password"))
        java["sasl.jaas.config"] = f"{module} required username={user} password={password};"
    return java


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ssl(kafka: Mapping[str, str]) -> dict[str, str]:
    java: dict[str, str] = {}
    if trusted := _pem(kafka, "ssl.ca"):
        java |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": trusted}
    chain, key = _pem(kafka, "ssl.certificate"), _pem(kafka, "ssl.key")
    if chain and key:
        java |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    elif store := kafka.get("ssl.keystore.location"):
        java |= {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": store}
        java["ssl.keystore.password"] = kafka.get("ssl.keystore.password", "")
    if password := kafka.get("ssl.key.password"):
        java["ssl.key.password"] = password
    if (verified := kafka.get("ssl.endpoint.identification.algorithm")) is not None:
        java["ssl.endpoint.identification.algorithm"] = "" if verified == "none" else verified
    return java


def _pem(kafka: Mapping[str, str], name: str) -> str:
    """Return the text itself, not its place, because executors may lack the file."""
    if text := kafka.get(f"{name}.pem"):
        return text
    place = kafka.get(f"{name}.location")
    if not place:
        return ""
    try:
        return Path(place).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f'kafka."{name}.location": {place} cannot be read as PEM: {error}') from None
