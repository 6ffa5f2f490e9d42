"""Reads records of one delay partition again by offset: those whose payload did not fit into memory."""

from collections.abc import Callable, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.records import Record, record_of

SCAN_GAP_RECORDS = 300
"""Scan through smaller gaps, seek over larger ones: a seek costs 0.6 ms, a scanned record 2 us (measured)."""

READ_TIMEOUT_S = 10.0

_NOWHERE = -SCAN_GAP_RECORDS - 1
"""Position of a consumer that must seek before any offset can be read."""


class OffsetReader:
    """Owns one assign-only consumer, made when first needed; not to be shared between threads."""

    def __init__(self, connect: Callable[[], Consumer], topic: str, partition: int) -> None:
        self._connect = connect
        self._consumer: Consumer | None = None
        self._topic = topic
        self._partition = partition
        self._next_offset = _NOWHERE
        self._log_start = 0

    def read(self, offsets: Sequence[int]) -> dict[int, Record | None]:
        """Records at ascending ``offsets``; None for one that the delay topic no longer holds.

        KafkaException on timeout or any other error: then nothing may be concluded.
        """
        found: dict[int, Record | None] = {}
        for offset in offsets:
            found[offset] = self._read_one(offset)
        return found

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _read_one(self, offset: int) -> Record | None:
        if offset < self._log_start:
            return None
        consumer = self._at(offset)
        while True:
            message = consumer.poll(READ_TIMEOUT_S)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"offset {offset} was not read in time"))
            at = message.offset()
            assert at is not None
            error = message.error()
            if error is None:
                self._next_offset = at + 1
                if at == offset:
                    return record_of(message)
                if at < offset:
                    continue
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                self._learn_log_start(consumer, offset, error)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif at <= offset:
                # Of an earlier read, queued when the log ended there: our record was appended since.
                continue
            # Past it without having met it: removed by retention, or never a record.
            self._next_offset = _NOWHERE
            return None

    def _learn_log_start(self, consumer: Consumer, offset: int, error: KafkaError) -> None:
        """The log begins behind ``offset``: nothing below its start needs to be asked for."""
        edges = consumer.get_watermark_offsets(TopicPartition(self._topic, self._partition), READ_TIMEOUT_S)
        if offset >= edges[0]:
            raise KafkaException(error)
        self._log_start = edges[0]
        # Asked again after such an error, this consumer may not answer at all (observed).
        self.close()

    def _at(self, offset: int) -> Consumer:
        if self._consumer is None:
            self._consumer = self._connect()
        if not self._next_offset <= offset <= self._next_offset + SCAN_GAP_RECORDS:
            self._consumer.assign([TopicPartition(self._topic, self._partition, offset)])
            self._next_offset = offset
        return self._consumer
