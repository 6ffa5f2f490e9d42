"""Reads the committed records of a rejected topic by position."""

import math
import time
from collections.abc import Iterator, Mapping
from typing import Final, Self

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from sidecar.config.model import Config
from sidecar.kafka.client import clients
from sidecar.kafka.client.admin import REQUEST_TIMEOUT_S, log_range, uncommitted_end
from sidecar.kafka.reading.scan import SILENT_FOR_S, PartitionScan, ScanError, Why

_LOOK_AGAIN_S: Final = 0.1


class OutOfTimeError(DelayRouterError):
    """Reading took longer than the time allowed."""


class RejectedLog:
    """Reads the partitions of one rejected topic; a context manager that closes its consumer at the end.

    Waiting and reading raise OutOfTimeError at ``until_s`` of the monotonic clock.
    """

    def __init__(self, config: Config, admin: AdminClient, topic: str, until_s: float = math.inf) -> None:
        self.topic = topic
        self._until_s = until_s
        self._config = config
        self._admin = admin
        self._consumer: Consumer = clients.bulk_reader(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def partitions_of(self, topic: str) -> int:
        """Return the partition count of a topic; raise KafkaException when the topic does not exist."""
        found = self._consumer.list_topics(topic, REQUEST_TIMEOUT_S).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return len(found.partitions)

    def committed(self) -> dict[int, range]:
        """Return the offsets of each partition, from the first to the first one that an open transaction hides."""
        return {
            number: range(*log_range(self._admin, self.topic, number))
            for number in range(self.partitions_of(self.topic))
        }

    def whole(self) -> dict[int, range]:
        """Return the offsets of each partition up to its present end, once no open transaction hides any of them.

        Raise DelayRouterError when a transaction stays open for longer than those of routers may.
        """
        ends = {
            number: uncommitted_end(self._admin, self.topic, number) for number in range(self.partitions_of(self.topic))
        }
        # Brokers look for transactions that have timed out every 10 s.
        until_s = time.monotonic() + self._config.router.transaction_timeout_ms / 1_000 + 15
        while True:
            found = self.committed()
            hidden = [number for number, end in ends.items() if found[number].stop < end]
            if not hidden:
                return {
                    number: range(found[number].start, max(end, found[number].start)) for number, end in ends.items()
                }
            if time.monotonic() > until_s:
                number = hidden[0]
                raise DelayRouterError(
                    f"{self.topic}/{number}: an open transaction hides the records behind offset {found[number].stop},"
                    " and so which records were driven again already; find it: kafka-transactions.sh find-hanging"
                )
            self._refuse_overtime("waiting for the end of an open transaction")
            time.sleep(_LOOK_AGAIN_S)

    def scan(self, offsets: Mapping[int, range]) -> Iterator[Message]:
        """Yield every record at these offsets, in order within a partition."""
        try:
            yield from PartitionScan(
                self._consumer, {(self.topic, number): each for number, each in offsets.items()}
            ).records(self._until_s)
        except ScanError as error:
            if error.why is Why.SILENT:
                raise DelayRouterError(
                    f"{self.topic}: the brokers have handed over nothing for {SILENT_FOR_S:.0f} s"
                ) from error
            if error.why is Why.OUT_OF_TIME:
                self._refuse_overtime("reading it")
            raise

    def _refuse_overtime(self, doing: str) -> None:
        if time.monotonic() > self._until_s:
            raise OutOfTimeError(f"{self.topic}: {doing} takes longer than there is time for")
