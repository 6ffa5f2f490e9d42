"""Batches of a log that the client cannot read: where they end, which it does not say, and that it is no accident.

A batch that unpacks to more than the client allows, or is damaged, gives an error instead of records, again and again,
and what lies behind it is never reached. A fetch from any offset within it gives the same error, word for word, since
the error names the place and the size of the batch; the first offset from which another answer comes is its end.

A batch that C has passed so and that is read again before S has passed it is looked at anew. Should it be readable by
then, by another client or with another ``receive.message.max.bytes``, nothing of it is accepted: progress speaks of it
(:mod:`index.skipped`), since the rejected topic says that it was not delivered.
"""

from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, TopicPartition

from sidecar.config.librdkafka_keys import MOST_UNPACKED
from sidecar.intake.decided import BadBatch
from sidecar.kafka.errors import error_of
from sidecar.kafka.scan import NO_END, PartitionScan, ScanError, Why

TRIES: Final = 3
"""So often the same error must come, each time of a fetch of its own, before a batch is taken for bad."""

TIMEOUT_S: Final = 10.0


def too_large(offset: int, size_bytes: int, most_bytes: int) -> BadBatch:
    """Return what is said of a record that the client has unpacked, and that is too large for anything else.

    The client refuses such a batch of zstd by itself; those of other codecs it unpacks, whatever comes of it. No
    object is made of the record: that would take its memory a second time.
    """
    why = f"a record of {size_bytes} bytes, more than {MOST_UNPACKED}={most_bytes}"
    return BadBatch(offset, offset + 1, why)


class BadBatches:
    """Looks at what a consumer of one partition has stumbled over; used by one thread."""

    def __init__(self, connect: Callable[[], Consumer], topic: str, partition: int) -> None:
        self._connect = connect
        self._place = topic, partition

    def at(self, offset: int) -> BadBatch | None:
        """The batch at an offset whose fetch has failed; None when it can be read by now. KafkaException as usual."""
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
        """The first offset behind ``offset`` where something else is; its batch begins there, or the log ends."""
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
        """Return the complaint of the client about a fetch from there; None when there is a record, or nothing."""
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
