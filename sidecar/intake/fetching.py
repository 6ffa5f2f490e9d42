"""Whole fetches of a delay partition, in which every record has the headers that it has in the log.

They come from its tail (:mod:`sidecar.intake.tails`). A batch that cannot be read ends a fetch, and the next one says
so and where it ends (:mod:`sidecar.intake.bad_batches`).
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.config.librdkafka_keys import MOST_UNPACKED_BYTES, most_unpacked_bytes
from sidecar.config.model import Config
from sidecar.intake.bad_batches import BadBatches
from sidecar.intake.decided import BadBatch
from sidecar.intake.tails import Fetch, NativeTail, PythonTail, RawFetch, Tail
from sidecar.kafka import clients
from sidecar.kernel.choice import PYTHON, Kernel

MOST_FETCHED_BYTES: Final = 1_048_576
"""Of a delay partition at once, as it is packed."""


class Connects(NamedTuple):
    """What makes the consumers that read a delay partition: on and on, once more, and batches that may be bad.

    A record with more than ``most_bytes`` is stepped over.
    """

    tail: Callable[[], Consumer]
    again: Callable[[], Consumer]
    probe: Callable[[], Consumer]
    most_bytes: int = MOST_UNPACKED_BYTES


def connects_of(config: Config, prefetched_bytes: int, most_batch_bytes: int) -> Connects:
    """Return what connects a consumer; the one at the tail prefetches so much, of batches as large as that at most."""
    # A fetch is unpacked as a whole. So it holds several batches only where they are together as large as one may be.
    fetched_bytes = min(prefetched_bytes // 4, MOST_FETCHED_BYTES, most_batch_bytes)
    return Connects(
        lambda: clients.tail(config, prefetched_bytes, fetched_bytes),
        lambda: clients.bulk_reader(config),
        lambda: clients.prober(config),
        most_unpacked_bytes(config.kafka),
    )


class Fetching:
    """Reads one delay partition from an offset on, by consumers of its own; used by one thread, closed by any."""

    def __init__(self, connects: Connects, at: TopicPartition, kernel: Kernel = PYTHON) -> None:
        self._connects = connects
        self._at = at
        self._kernel = kernel
        self._bad = BadBatches(connects.probe, at.topic, at.partition)
        self._stumbled: KafkaError | BadBatch | None = None
        self._next_offset = at.offset
        self._tail = self._begun()

    def read(self, wait_s: float, most_records: int) -> Fetch | RawFetch | None:
        """What has arrived, waiting for the first of it; KafkaException when it cannot be read once more."""
        if self._stumbled is not None:
            return self._step_over(self._stumbled)
        read = self._tail.read(wait_s, most_records)
        if read is None:
            return None
        self._stumbled = read.stumbled
        if read.next_offset is None:
            # With nothing in front of it: what lies there is told by the next read.
            return None
        self._next_offset = read.next_offset
        return read.fetch

    def _step_over(self, stumbled: KafkaError | BadBatch) -> Fetch:
        """Go on behind what cannot be read; KafkaException when that is not certain."""
        bad = stumbled if isinstance(stumbled, BadBatch) else self._bad.at(self._next_offset)
        if bad is None:
            assert isinstance(stumbled, KafkaError)
            raise KafkaException(stumbled)
        # A client that was told to seek may still hand over older records, and this one may have skipped the batch.
        self._tail.close()
        self._next_offset = bad.to_offset
        self._tail = self._begun()
        self._stumbled = None
        return Fetch((), (), bad)

    def _begun(self) -> Tail:
        at = TopicPartition(self._at.topic, self._at.partition, self._next_offset)
        consumer = self._connects.tail()
        return (
            NativeTail(consumer, self._kernel, at, self._connects.most_bytes)
            if self._kernel.is_native
            else PythonTail(consumer, self._connects.again, at, self._connects.most_bytes)
        )

    def log_end(self) -> int:
        """Where the log ended at the last fetch; no request is made."""
        return self._tail.log_end()

    def close(self) -> None:
        """Give the consumers back to librdkafka."""
        self._tail.close()
