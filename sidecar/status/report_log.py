"""The status topic as it is read: from the reports of the last minute on, and some more.

The last ones are read however old they are: where no router runs any more, they tell when that was.
"""

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaException, Message, TopicPartition

from sidecar.config.model import Config
from sidecar.kafka import clients
from sidecar.kafka.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.scan import NO_END, PartitionScan, range_of

FROM_MS: Final = 60_000
LAST_REPORTS: Final = 100
"""So many are read at least."""


class ReportLog:
    """Owns a consumer; for one thread. KafkaException when the topic cannot be read."""

    def __init__(self, config: Config, now_ms: Callable[[], int]) -> None:
        self._place = config.router.status_topic, 0
        self._now_ms = now_ms
        self._consumer = clients.report_reader(config)
        self._scan: PartitionScan | None = None
        self._end = 0

    @property
    def is_read(self) -> bool:
        """Whether all is read that was there at the last look.

        Known by offsets: the client tells of an end only when a fetch behind it has waited for more in vain.
        """
        return self._scan is not None and self._scan.next_offset[self._place] >= self._end

    def look(self) -> None:
        """Note the end of now; the first look begins to read."""
        there = range_of(self._consumer, self._place)
        self._end = there.stop
        if self._scan is None:
            self._scan = PartitionScan(self._consumer, {self._place: range(self._start(there), NO_END)})

    def _start(self, there: range) -> int:
        since = TopicPartition(*self._place, self._now_ms() - FROM_MS)
        (start,) = self._consumer.offsets_for_times([since], timeout=REQUEST_TIMEOUT_S)
        if start.error is not None:
            raise KafkaException(start.error)
        last_ones = max(there.stop - LAST_REPORTS, there.start)
        return last_ones if start.offset < 0 else min(start.offset, last_ones)

    def take(self, wait_s: float) -> Sequence[Message]:
        """Return the records that have come, or come within this time."""
        assert self._scan is not None, "nobody has looked"
        self._scan.fetch(wait_s)
        return [*self._scan.taken()]

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()
