"""Transactions that end another one, or write again what it hid: the writing half of :mod:`sidecar.healing.healing`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from index.headers import DELAY_SOURCE
from index.orphans import NOTHING_WRITTEN
from index.record import Record
from sidecar.kafka.admin import Place
from sidecar.kafka.transactions import abort, commit, produce

TOUCH_KEY: Final = b"delay-router: ends a transaction"
"""Not null, which a compacted topic would refuse."""

SECOND_TOUCH_KEY: Final = TOUCH_KEY + b" (second)"
"""Of the producer that only heals; nothing else tells the records of the two producers apart."""


Writes = Iterable[tuple[Place, Record]]


class ShortTransactions:
    """Of one producer; ``source`` is the ``topic/partition/`` it works for, ``timeout_s`` that of its transactions.

    ``touch_key`` is the key of what it writes only to have a transaction open somewhere.
    Every method raises KafkaException when the brokers do not let it, or do not answer.
    """

    def __init__(self, producer: Producer, source: str, timeout_s: float, touch_key: bytes = TOUCH_KEY) -> None:
        self._producer = producer
        self._timeout_s = timeout_s
        self._touch = Record(touch_key, None, [(DELAY_SOURCE, f"{source}{NOTHING_WRITTEN}".encode())], 0)

    def end_as_aborted(self, places: Iterable[Place]) -> None:
        """End what this producer has open on these partitions; where there is nothing, it does nothing to be seen."""
        with self.standing_in(places):
            pass

    @contextmanager
    def standing_in(self, places: Iterable[Place]) -> Iterator[None]:
        """Have a transaction open on these partitions, on all their replicas in sync, and abort it at the end."""
        self._producer.begin_transaction()
        try:
            self._write((place, self._touch) for place in places)
            yield
        finally:
            abort(self._producer)

    def write(self, records: Writes, then: Callable[[Sequence[int]], Writes] | None = None) -> None:
        """Commit a transaction with these records, and with what follows from the offsets that they have got."""
        self._producer.begin_transaction()
        offsets = self._write(records)
        if then is not None:
            self._write(then(offsets))
        commit(self._producer)

    def _write(self, records: Writes) -> list[int]:
        failures: list[KafkaError] = []
        offsets: dict[int, int] = {}

        def delivered(number: int, error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failures.append(error)
            offsets[number] = message.offset() or 0

        for number, ((topic, partition), (key, value, headers, timestamp_ms)) in enumerate(records):
            told = partial(delivered, number)
            produce(self._producer, topic, value, key, partition, headers, max(timestamp_ms, 0), told)
        if self._producer.flush(self._timeout_s):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the brokers did not take what ends a transaction"))
        if failures:
            raise KafkaException(failures[0])
        return [offsets[number] for number in sorted(offsets)]
