"""Writes single records to delay topics for callers without a Kafka client of their own; any thread may call it."""

import threading
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.protocol.headers import Headers
from sidecar.config.model import Config
from sidecar.kafka.client.clients import MAX_MESSAGE_BYTES
from sidecar.kafka.client.tokens import connection
from sidecar.logs import events

TIMEOUT_MS: Final = 10_000
"""Time after which a record counts as not written; a caller waits for it."""

POLL_S: Final = 0.1
FLUSH_S: Final = 5.0


class OutcomeUnknownError(Exception):
    """No broker has confirmed or refused the record in time."""


class WrittenRecord(NamedTuple):
    """The place of a record and its timestamp there, which the broker may have set."""

    partition: int
    offset: int
    timestamp_ms: int


class RecordWriter:
    """Writes records with a producer that is made for the first record, and made anew after an error."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def write(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> WrittenRecord:
        """Write one record and wait for the broker's answer.

        Raise KafkaException when the record was not written, OutcomeUnknownError when that is unknown.
        """
        producer = self._ready()
        told: list[tuple[KafkaError | None, Message]] = []
        producer.produce(
            topic, value, key, headers=[*headers], on_delivery=lambda error, message: told.append((error, message))
        )
        until_s = time.monotonic() + TIMEOUT_MS / 1_000 + FLUSH_S
        while not told and time.monotonic() < until_s:
            producer.poll(POLL_S)
        if not told:
            self._renew(producer)
            raise OutcomeUnknownError
        error, message = told[0]
        if error is not None:
            self._renew(producer)
            raise OutcomeUnknownError if error.name() == "_MSG_TIMED_OUT" else KafkaException(error)
        return WrittenRecord(message.partition() or 0, message.offset() or 0, message.timestamp()[1])

    def close(self) -> None:
        """Wait up to FLUSH_S for records under way."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.flush(FLUSH_S)

    def _ready(self) -> Producer:
        with self._lock:
            if self._producer is None:
                more = {"linger.ms": 0, "message.max.bytes": MAX_MESSAGE_BYTES}
                self._producer = record_producer(self._config, "record-writer", TIMEOUT_MS, more)
            return self._producer

    def _renew(self, producer: Producer) -> None:
        with self._lock:
            if self._producer is producer:
                self._producer = None


def record_producer(config: Config, role: str, timeout_ms: int, more: Mapping[str, object] | None = None) -> Producer:
    """Make an idempotent producer of records for delay topics, for a caller that waits for each.

    Raise KafkaException on a wrong setting.
    """
    return Producer(
        {
            **connection(config),
            "client.id": f"{config.router.group_id}-{role}",
            # A record that the client sends again by itself is in the log once.
            "enable.idempotence": True,
            # The partitioner of Java producers, so that a key has the same partition for every sender.
            "partitioner": "murmur2_random",
            "allow.auto.create.topics": False,
            "message.timeout.ms": timeout_ms,
            "topic.metadata.propagation.max.ms": 5_000,
            **(more or {}),
        },
        logger=events.librdkafka_logger(),
    )
