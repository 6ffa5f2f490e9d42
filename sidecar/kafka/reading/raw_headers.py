"""Headers of single records as the log holds them, read once more where the client's copy is doubtful."""

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.kafka.client.errors import error_of
from sidecar.kafka.client.librdkafka import Partition

READ_TIMEOUT_S = 10.0

SCAN_GAP_RECORDS = 300
"""Largest gap that is scanned; behind a larger one the read begins anew."""


class RawHeaders:
    """Owns an assign-only consumer, made when first needed; not to be shared between threads."""

    def __init__(self, connect: Callable[[], Consumer]) -> None:
        self._connect = connect
        self._consumer: Consumer | None = None

    def read(self, topic: str, partition: int, offsets: Sequence[int]) -> dict[int, bytes]:
        """Return the encoded headers of the records at ascending ``offsets``; raise KafkaException when one is not
        available.
        """
        found: dict[int, bytes] = {}
        while len(found) < len(offsets):
            self._consumer = self._consumer or self._connect()
            left = offsets[len(found) :]
            with Partition(self._consumer, TopicPartition(topic, partition, left[0])) as log:
                self._scan(log, left, found)
        return found

    def first_timestamp_ms(self, topic: str, partition: int, from_offset: int) -> int | None:
        """Return the timestamp of the first record from an offset on, and make no object of its content.

        Return None where there is no record, or the offset is gone; raise KafkaException on any other error.
        """
        self._consumer = self._consumer or self._connect()
        with Partition(self._consumer, TopicPartition(topic, partition, from_offset)) as log:
            try:
                record = log.next(READ_TIMEOUT_S)
            except KafkaException as exception:
                if error_of(exception).code() != KafkaError._AUTO_OFFSET_RESET:
                    raise
                record = None
        if record is None:
            # A consumer that is used again after such an error may not answer at all.
            self.close()
        return None if record is None else record.timestamp_ms

    def _scan(self, log: Partition, offsets: Sequence[int], found: dict[int, bytes]) -> None:
        """Read on to each of ``offsets`` that lies near enough."""
        at = offsets[0]
        for offset in offsets:
            if offset - at > SCAN_GAP_RECORDS:
                return
            while (record := log.next(READ_TIMEOUT_S)) is not None and record.offset < offset:
                pass
            if record is None or record.offset > offset:
                raise KafkaException(KafkaError(KafkaError.OFFSET_NOT_AVAILABLE, f"offset {offset} is gone"))
            found[offset] = record.headers
            at = offset

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
