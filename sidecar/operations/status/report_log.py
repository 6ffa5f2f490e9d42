"""Reads the status topic, from the reports of the last minute on and at least the last ``LAST_REPORTS`` records.

The last records are read however old they are: where no router runs any more, they tell since when.
"""

from collections.abc import Callable, Sequence
from typing import Final

from confluent_kafka import KafkaException, Message, TopicPartition

from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S
from sidecar.kafka.reading.scan import NO_END, PartitionScan, range_of

FROM_MS: Final = 60_000
LAST_REPORTS: Final = 100
"""Least number of records that are read."""


class ReportLog:
    """Owns a consumer and is for one thread; its methods raise KafkaException when the topic cannot be read."""

    def __init__(self, config: Config, now_ms: Callable[[], int]) -> None:
        self._place = config.router.status_topic, 0
        self._now_ms = now_ms
        self._consumer = clients.report_reader(config)
        self._scan: PartitionScan | None = None
        self._end = 0

    @property
    def is_read(self) -> bool:
        """True when every record that was there at the last look has been read.

        Offsets tell it sooner than the client, which reports an end only after a fetch at the end has found nothing.
        """
        return self._scan is not None and self._scan.next_offset[self._place] >= self._end

    def look(self) -> None:
        """Note where the topic ends now; the first look begins to read."""
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
        """Return the records that have arrived or arrive within ``wait_s``."""
        assert self._scan is not None, "nobody has looked"
        self._scan.fetch(wait_s)
        return [*self._scan.taken()]

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()
