"""Whole fetches of a delay partition, in which every record has the headers that the log holds.

They come from the tail of the partition (:mod:`sidecar.kafka.reading.tails`). A batch that cannot be read ends a fetch,
and the next fetch reports the batch and its end (:mod:`sidecar.kafka.reading.bad_batches`).
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.config.librdkafka_keys import MOST_UNPACKED_BYTES, most_unpacked_bytes
from sidecar.config.model import Config
from sidecar.engine.intake.decided import BadBatch
from sidecar.kafka.client import clients
from sidecar.kafka.reading.bad_batches import BadBatches
from sidecar.kafka.reading.tail_clients import Limits, TailClients
from sidecar.kafka.reading.tails import Fetch, NativeTail, PythonTail, RawFetch, Tail
from sidecar.kernel.choice import PYTHON, Kernel

MOST_FETCHED_BYTES: Final = 1_048_576
"""Most bytes that one fetch of a delay partition takes, in packed form."""


class Connects(NamedTuple):
    """Makes or lends the consumers of a delay partition: for the tail, and for batches that may be bad.

    ``limits`` are those of a consumer at the tail. A record with more than ``most_bytes`` is stepped over.
    """

    tails: TailClients
    probe: Callable[[], Consumer]
    limits: Limits = (MOST_FETCHED_BYTES, MOST_FETCHED_BYTES)
    most_bytes: int = MOST_UNPACKED_BYTES


def connects_of(config: Config, tails: TailClients, prefetched_bytes: int, most_batch_bytes: int) -> Connects:
    """Return the sources of the consumers that read a delay partition.

    The consumer at the tail prefetches up to ``prefetched_bytes``; a batch has at most ``most_batch_bytes``.
    """
    # A fetch is unpacked as a whole. So a fetch holds several batches only where they are together no larger than the
    # largest allowed batch.
    fetched_bytes = min(prefetched_bytes // 4, MOST_FETCHED_BYTES, most_batch_bytes)
    limits = prefetched_bytes, fetched_bytes
    return Connects(tails, lambda: clients.prober(config), limits, most_unpacked_bytes(config.kafka))


class Fetching:
    """Reads one delay partition from an offset on; used by one thread, closed by any."""

    def __init__(self, connects: Connects, at: TopicPartition, kernel: Kernel = PYTHON) -> None:
        self._connects = connects
        self._at = at
        self._kernel = kernel
        self._bad = BadBatches(connects.probe, at.topic, at.partition)
        self._stumbled: KafkaError | BadBatch | None = None
        self._next_offset = at.offset
        # Empty once the tail is closed, so that a tail is closed once even if the next one cannot begin.
        self._closing = ExitStack()
        self._tail = self._begun()

    def read(self, wait_s: float, most_records: int) -> Fetch | RawFetch | None:
        """Return the messages that have arrived, and wait for the first.

        Raise KafkaException on an error of the client itself.
        """
        if self._stumbled is not None:
            return self._step_over(self._stumbled)
        read = self._tail.read(wait_s, most_records)
        if read is None:
            return None
        self._stumbled = read.stumbled
        if read.next_offset is None:
            # Nothing lies in front of the unreadable batch; the next read reports the batch.
            return None
        self._next_offset = read.next_offset
        return read.fetch

    def _step_over(self, stumbled: KafkaError | BadBatch) -> Fetch:
        """Continue behind an unreadable batch; raise KafkaException when its end is not certain."""
        bad = stumbled if isinstance(stumbled, BadBatch) else self._bad.at(self._next_offset)
        if bad is None:
            assert isinstance(stumbled, KafkaError)
            raise KafkaException(stumbled)
        # After a seek the client may still hand over older records, and it may have skipped the batch; another one does
        # not.
        self.close()
        self._next_offset = bad.to_offset
        self._tail = self._begun()
        self._stumbled = None
        return Fetch((), (), bad)

    def _begun(self) -> Tail:
        at = TopicPartition(self._at.topic, self._at.partition, self._next_offset)
        tails, _, limits, most_bytes = self._connects
        tail: Tail
        if self._kernel.is_native:
            tail = NativeTail(tails.lend(limits, at), self._kernel, at, most_bytes)
        else:
            tail = PythonTail(tails.make(limits), at, most_bytes)
        self._closing.callback(tail.close)
        return tail

    def log_end(self) -> int:
        """Return the end of the log at the last fetch; no request is made."""
        return self._tail.log_end()

    def close(self) -> None:
        """Give the consumers back to librdkafka; a second call changes nothing."""
        self._closing.close()
