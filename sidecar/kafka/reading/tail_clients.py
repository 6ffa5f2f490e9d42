"""The consumers of the tails of a process: a few consumers read the delay partitions, each by a queue of its own.

librdkafka runs a thread for each broker in each client, and each client asks each broker for records. So a process with
a consumer for each partition would have threads, connections and requests by the product of partitions and brokers::

    partition 0 ◄── queue ──┐
    partition 1 ◄── queue ──┼── consumer ──── one fetch at a time ──── broker 1
       ...                  │            └──── one fetch at a time ──── broker 2
    partition 99 ◄─ queue ──┘

A partition never comes back to a consumer that has read it before. After a seek, or when a partition is assigned again,
a consumer may still hand over older records; another consumer cannot. A partition that is taken over again, or that
steps over a bad batch, gets another consumer, which all such partitions share. A consumer is closed when its last
partition leaves it.

Only tails of the kernel share consumers: confluent-kafka has no queue of a partition.
"""

import time
from collections.abc import Callable
from threading import Lock
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from sidecar.kafka.reading.scan import learn_leaders
from sidecar.kernel.librdkafka import PartitionQueue

SERVE_EVERY_S: Final = 0.05
"""The interval in which callbacks of a consumer run, however many partitions read by it."""

Limits = tuple[int, int]
"""Most bytes that a consumer prefetches for each partition, and most bytes that it fetches of one at once."""


class TailClient:
    """A consumer that reads some partitions; any thread may use it."""

    def __init__(self, consumer: Consumer, on_idle: Callable[["TailClient"], None] = lambda _: None) -> None:
        """Take over a consumer; ``on_idle`` is called when its last partition has left it."""
        self._consumer = consumer
        self._on_idle = on_idle
        self._lock = Lock()
        self._had: set[tuple[str, int]] = set()
        self._reads = 0
        self._topics: set[str] = set()
        self._serve_s = 0.0
        self._error: KafkaError | None = None

    def admits(self, at: TopicPartition) -> bool:
        """Say whether the consumer may read a partition, and count the partition as one of its own if so."""
        place = at.topic, at.partition
        with self._lock:
            if self._error is not None or place in self._had or (self._had and not self._reads):
                return False
            self._had.add(place)
            self._reads += 1
            return True

    def begin(self, at: TopicPartition) -> PartitionQueue:
        """Begin to read an admitted partition at its offset, and return its queue.

        The partition has left the consumer after an error.
        """
        try:
            if at.topic not in self._topics:
                learn_leaders(self._consumer, at.topic)
                self._topics.add(at.topic)
            # The queue is taken before it holds any message.
            queue = PartitionQueue(self._consumer, at)
            self._consumer.incremental_assign([at])
        except BaseException:
            self.leave()
            raise
        return queue

    def serve(self) -> None:
        """Run the callbacks of the consumer if it is time, and raise an error of the consumer itself.

        The main queue has only events that concern no partition. After such an error the consumer reads no partition
        any more.
        """
        now_s = time.monotonic()
        event = None
        if now_s >= self._serve_s:
            self._serve_s = now_s + SERVE_EVERY_S
            event = self._consumer.poll(0)
        if event is not None:
            self._error = event.error()
            assert self._error is not None, "a record came by the main queue, though its partition has its own queue"
        if self._error is not None:
            raise KafkaException(self._error)

    def log_end(self, at: TopicPartition) -> int:
        """Return the end of the log of a partition at the last fetch; no request is made."""
        _, end = self._consumer.get_watermark_offsets(at, cached=True)
        return end

    def stop(self, at: TopicPartition) -> None:
        """Stop reading a partition; its queue may still have messages."""
        self._consumer.incremental_unassign([at])

    def leave(self) -> None:
        """Forget a partition whose queue is closed, and close the consumer after its last one."""
        with self._lock:
            self._reads -= 1
            if self._reads:
                return
        self._on_idle(self)
        self._consumer.close()


class TailClients:
    """Lends the consumers of a process; ``make`` makes one by its limits."""

    def __init__(self, make: Callable[[Limits], Consumer]) -> None:
        self.make = make
        self._lock = Lock()
        self._clients: list[tuple[Limits, TailClient]] = []

    def lend(self, limits: Limits, at: TopicPartition) -> TailClient:
        """Return a consumer with these limits that has never read the partition."""
        with self._lock:
            for own, client in self._clients:
                if own == limits and client.admits(at):
                    return client
            client = TailClient(self.make(limits), self._forget)
            admitted = client.admits(at)
            assert admitted
            self._clients.append((limits, client))
            return client

    def _forget(self, client: TailClient) -> None:
        with self._lock:
            self._clients = [each for each in self._clients if each[1] is not client]
