"""Batches of a log that the client cannot read: finds their end, and makes sure that the error is no accident.

A batch that unpacks to more than the client allows, or that is damaged, gives an error instead of records, again and
again, and the client never reaches the records behind it. A fetch from any offset within the batch gives the same
error, word for word, since the error names the place and the size of the batch. The first offset with another answer is
the end of the batch.

A batch that C has passed in this way, and that is read again before S has passed it, is examined anew. Even if it is
readable by then, by another client or with another ``receive.message.max.bytes``, none of its records is accepted:
progress names it (:mod:`index.pending.skipped`), since the rejected topic says that it was not delivered.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from sidecar.config.librdkafka_keys import MOST_UNPACKED
from sidecar.engine.intake.decided import BadBatch
from sidecar.kafka.client.errors import error_of
from sidecar.kafka.reading.scan import NO_END, PartitionScan, ScanError, Why

TRIES: Final = 3
"""Number of times that the same error must come, each time from a new fetch, before a batch counts as bad."""

TIMEOUT_S: Final = 10.0


def too_large(offset: int, size_bytes: int, most_bytes: int) -> BadBatch:
    """Describe a record that the client has unpacked and that is larger than allowed, as a batch that cannot be read.

    The client refuses such a batch of zstd by itself, and unpacks batches of other codecs without a limit. No object is
    made of the record: that would take its memory a second time.
    """
    why = f"a record of {size_bytes} bytes, more than {MOST_UNPACKED}={most_bytes}"
    return BadBatch(offset, offset + 1, why)


class BadBatches:
    """Examines the batches that a consumer of one partition cannot read; used by one thread."""

    def __init__(self, connect: Callable[[], Consumer], topic: str, partition: int) -> None:
        self._connect = connect
        self._place = topic, partition

    def at(self, offset: int) -> BadBatch | None:
        """Return the batch at an offset whose fetch has failed; None when it can be read by now.

        Raise KafkaException when the cluster does not answer.
        """
        consumer = self._connect()
        try:
            said = {self._error_at(consumer, offset) for _ in range(TRIES)}
            if len(said) > 1 or None in said:
                return None
            [why] = said
            return BadBatch(offset, self._end(consumer, offset, why or ""), why or "")
        finally:
            consumer.close()

    def _end(self, consumer: Consumer, offset: int, why: str) -> int:
        """Return the first offset behind ``offset`` with another answer; the batch ends there, or the log does."""
        _, log_end = consumer.get_watermark_offsets(TopicPartition(*self._place), TIMEOUT_S)
        within, beyond, step = offset, log_end, 1
        while within + step < beyond:
            if self._error_at(consumer, within + step) == why:
                within, step = within + step, step * 2
            else:
                beyond = within + step
        while beyond - within > 1:
            middle = (within + beyond) // 2
            if self._error_at(consumer, middle) == why:
                within = middle
            else:
                beyond = middle
        return beyond

    def _error_at(self, consumer: Consumer, offset: int) -> str | None:
        """Return the complaint of the client about a fetch from there; None when it gives a record or the end."""
        try:
            scan = PartitionScan(consumer, {self._place: range(offset, NO_END)}, at_once=1)
            if not scan.fetch(TIMEOUT_S):
                raise scan.stopped(Why.SILENT)
            next(scan.taken(), None)
        except ScanError as error:
            if error.why is not Why.UNREADABLE:
                raise
            return error_of(error).str()
        else:
            return None
        finally:
            consumer.unassign()
