"""The status topic as it is read: from the reports of the last minute on, and some more.

The last ones are read however old they are: where no router runs any more, they tell when that was.
"""

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S

FROM_MS: Final = 60_000
LAST_REPORTS: Final = 100
"""So many are read at least."""

_AT_ONCE: Final = 500


class ReportLog:
    """Owns a consumer; for one thread. KafkaException when the topic cannot be read."""

    def __init__(self, config: Config, now_ms: Callable[[], int]) -> None:
        self._place = TopicPartition(config.router.status_topic, 0)
        self._now_ms = now_ms
        self._consumer = clients.report_reader(config)
        self._next = self._end = 0

    @property
    def is_read(self) -> bool:
        """Whether all is read that was there at ``begin``, or when it was looked at again.

        Known by offsets: the client tells of an end only when a fetch behind it has waited for more in vain.
        """
        return self._next >= self._end

    def begin(self) -> None:
        """Assign from where it is to be read on."""
        since = TopicPartition(self._place.topic, 0, self._now_ms() - FROM_MS)
        (start,) = self._consumer.offsets_for_times([since], timeout=REQUEST_TIMEOUT_S)
        if start.error is not None:
            raise KafkaException(start.error)
        first, self._end = self._consumer.get_watermark_offsets(start, timeout=REQUEST_TIMEOUT_S)
        last_ones = max(self._end - LAST_REPORTS, first)
        start.offset = last_ones if start.offset < 0 else min(start.offset, last_ones)
        self._next = start.offset
        self._consumer.assign([start])

    def look_again(self) -> None:
        """What has been written meanwhile is to be read, too."""
        _, self._end = self._consumer.get_watermark_offsets(self._place, timeout=REQUEST_TIMEOUT_S)

    def take(self, wait_s: float) -> Sequence[Message]:
        """What has come, or comes within this time."""
        first = self._consumer.poll(wait_s)
        taken = [] if first is None else [first, *self._consumer.consume(_AT_ONCE, 0)]
        return [message for message in taken if self._is_record(message)]

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()

    def _is_record(self, message: Message) -> bool:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        # The end may lie behind the last record, where that was removed by its age.
        self._next = max(self._next, (message.offset() or 0) + (error is None))
        return error is None
