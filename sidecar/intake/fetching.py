"""Whole fetches of a delay partition, in which every record has the headers that it has in the log.

A batch that cannot be read ends a fetch, and the next one says so and where it ends
(:mod:`sidecar.intake.bad_batches`). What the client may have altered is read once more
(:mod:`sidecar.intake.raw_headers`): single records, and all that have no headers, since it hands over more than 100,000
as none.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.headers import Headers
from index.unreadable import examined
from sidecar.config.model import Config
from sidecar.intake.bad_batches import BadBatch, BadBatches
from sidecar.intake.handed_over import handed_over
from sidecar.intake.raw_headers import RawHeaders
from sidecar.kafka import clients
from sidecar.kafka.errors import is_unreadable
from sidecar.kafka.librdkafka import serialized_sizes

STEP_RECORDS = 16
"""Messages taken from the client at once. It unpacks their headers then, at 72 bytes each and up to 100,000 a message,
whether they are asked for or not; so many at once take 115 MB at most."""

MOST_HEADER_BYTES = 1 << 20
"""Headers of a fetch in the log, after which it is large enough: in memory each takes 120 bytes, and 3 there."""


class Fetch(NamedTuple):
    """Messages and the headers of each, errors among them; or a batch that cannot be read."""

    messages: Sequence[Message]
    headers: Sequence[Headers]
    bad: BadBatch | None = None


class Connects(NamedTuple):
    """What makes the consumers that read a delay partition: on and on, once more, and batches that may be bad."""

    tail: Callable[[], Consumer]
    again: Callable[[], Consumer]
    probe: Callable[[], Consumer]


def connects_of(config: Config) -> Connects:
    """What connects a consumer with these settings."""
    return Connects(lambda: clients.tail(config), lambda: clients.bulk_reader(config), lambda: clients.prober(config))


class Fetching:
    """Reads one delay partition from an offset on, by consumers of its own; used by one thread, closed by any."""

    def __init__(self, connects: Connects, at: TopicPartition) -> None:
        self._connects = connects
        self._at = at
        self._raw = RawHeaders(connects.again)
        self._bad = BadBatches(connects.probe, at.topic, at.partition)
        self._stumbled: KafkaError | None = None
        self._next_offset = at.offset
        self._begin()

    def read(self, wait_s: float, most_records: int) -> Fetch | None:
        """What has arrived, waiting for the first of it; KafkaException when it cannot be read once more."""
        if self._stumbled is not None:
            return self._step_over(self._stumbled)
        messages, sizes = self._messages(wait_s, most_records)
        if not messages:
            return None
        found = handed_over(messages, sizes)
        if found.doubtful:
            self._examine(messages, found.headers, found.doubtful)
        # The event of the end has the offset of the next record.
        self._next_offset = (messages[-1].offset() or 0) + (messages[-1].error() is None)
        return Fetch(messages, cast("Sequence[Headers]", found.headers))

    def _messages(self, wait_s: float, most_records: int) -> tuple[list[Message], list[int]]:
        """Messages up to what cannot be read, and the sizes of their headers in the log."""
        first = self._consumer.poll(wait_s)
        if first is None:
            return [], []
        messages, sizes = [first], serialized_sizes([first])
        header_bytes = sizes[0]
        while len(messages) < most_records and header_bytes < MOST_HEADER_BYTES:
            # consume(n, t) returns early only when it has n, so it must not wait here.
            more = self._consumer.consume(min(STEP_RECORDS, most_records - len(messages)), 0)
            if not more:
                break
            more_sizes = serialized_sizes(more)
            messages += more
            sizes += more_sizes
            header_bytes += sum(more_sizes)
        # Errors have no headers, so that they are looked for among few.
        bad = next((at for at, size in enumerate(sizes) if not size and _is_bad(messages[at])), None)
        if bad is not None:
            self._stumbled = messages[bad].error()
        return messages[:bad], sizes[:bad]

    def _step_over(self, error: KafkaError) -> Fetch:
        """Go on behind what cannot be read; KafkaException when that is not certain."""
        bad = self._bad.at(self._next_offset)
        if bad is None:
            raise KafkaException(error)
        # A client that was told to seek may still hand over older records, and this one may have skipped the batch.
        self._consumer.close()
        self._next_offset = bad.to_offset
        self._begin()
        self._stumbled = None
        return Fetch((), (), bad)

    def _begin(self) -> None:
        self._consumer = self._connects.tail()
        self._consumer.assign([TopicPartition(self._at.topic, self._at.partition, self._next_offset)])

    def log_end(self) -> int:
        """Where the log ended at the last fetch; no request is made."""
        _, end = self._consumer.get_watermark_offsets(self._at, cached=True)
        return end

    def close(self) -> None:
        """Give the consumers back to librdkafka."""
        self._consumer.close()
        self._raw.close()

    def _examine(self, messages: Sequence[Message], headers: list[Headers | None], doubtful: Sequence[int]) -> None:
        """Put in place what the log holds of the doubtful ones, errors left out."""
        offsets = {at: messages[at].offset() or 0 for at in doubtful if messages[at].error() is None}
        if not offsets:
            return
        found = self._raw.read(self._at.topic, self._at.partition, list(offsets.values()))
        for at, offset in offsets.items():
            headers[at] = examined(found[offset], headers[at] or None)


def _is_bad(message: Message) -> bool:
    error = message.error()
    return error is not None and is_unreadable(error)
