"""Writes of one delay partition, inside the transactions of its producer."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, Message, Producer

from index.named.receipts import Receipt, receipt_record
from index.named.transit import InTransit
from index.pending.pending import Entry
from index.protocol.headers import StrippedNames
from index.protocol.released_headers import (
    ReleasedHeaders,
    attempt_headers,
    receipt_headers,
    rejected_headers,
    series_headers,
    spread_header,
)
from index.protocol.schedule import KEEP_KEY
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.payload.records import Appended, Refused, Scheduled
from sidecar.engine.release.transaction import Transaction
from sidecar.kafka.writing import transactions
from sidecar.kafka.writing.transactions import OnDelivery
from sidecar.kernel.choice import PYTHON, Kernel

POLL_EVERY = 1_000
"""The number of records between two calls that serve delivery reports; other records are on their way then."""

_MODES: Final = {"release": 0, "due": 1, "source": 2}
"""The modes of timestamps, in the numbers of the kernel."""

NO_OFFSET: Final = -1
"""In place of the offset of a record that was delivered without one: the broker had it already, from a repetition."""

TIMESTAMP_NOW = 0
"""The value that makes librdkafka set the time of the call to produce."""


class PartitionWriter:
    """Produces to targets, to the router's own topics and to the delay topic; callers decide about time and content.

    ``stripped`` are the headers that released records lose. They come from the configuration alone, which no policy
    changes, so they hold for as long as the partition is owned.
    """

    def __init__(
        self,
        producer: Producer,
        topic: DelayTopicConfig,
        partition: int,
        stripped: StrippedNames,
        delay_topic_id: str,
        kernel: Kernel = PYTHON,
    ) -> None:
        self.producer = producer
        self.rejected_topic = topic.rejected
        self.delay_topic = topic.name
        self.receipts_topic = topic.receipts
        self._topic = topic
        self._partition = partition
        self._delay_topic_id = delay_topic_id
        self._source = f"{topic.name}/{partition}/"
        self._released = ReleasedHeaders(stripped, self._source)
        self._native = kernel.writer(producer, stripped, self._source.encode())

    def release_all(self, transaction: Transaction) -> None:
        """Produce all records that a transaction releases; a kernel does it if no record is an occurrence."""
        if self._native is None or transaction.occurrences:
            self.release(transaction, transaction.released)
            return
        mode, own_modes = transaction.timestamps
        modes = {None: _MODES[mode]} | {target: _MODES[own] for target, own in own_modes.items()}
        listed, place, polled, left = list(transaction.released), 0, 0, 1
        while place < len(listed):
            # Python repeats the record at which the kernel failed: it waits if the queue is full, or raises the error.
            after, _ = self._native.release(listed, place, POLL_EVERY, modes)
            if after < min(place + POLL_EVERY, len(listed)):
                # A record of another form is often followed by more of that form: the kernel is tried ever more rarely.
                left = min(2 * left, POLL_EVERY) if after == place else 1
                self.release(transaction, listed[after : after + left])
                after += left
            place = after
            if place - polled >= POLL_EVERY:
                self.producer.poll(0)
                polled = place

    def release(
        self, transaction: Transaction, entries: Iterable[Entry[Scheduled]], on_delivery: OnDelivery | None = None
    ) -> None:
        """Produce these records of a transaction, each to all of its targets; the hottest loop without a kernel."""
        produce, headers_of = self.producer.produce, self._released.of
        mode, own_modes = transaction.timestamps
        occurrences = transaction.occurrences
        timestamp, left, stamped = TIMESTAMP_NOW, POLL_EVERY, mode != "release"
        for due_ms, offset, (schedule, _, record) in entries:
            assert record is not None, f"offset {offset} was not re-read"
            key, value, headers, timestamp_ms = record
            _, targets, partition, own_key, deliver_id, _, _, shift_ms, attempt = schedule
            due_ms -= shift_ms  # noqa: PLW2901 -- the requested time
            if own_key is not KEEP_KEY:
                key = own_key
            released: Any = headers_of(headers, due_ms, offset, timestamp_ms, deliver_id)
            if shift_ms:
                released.append(spread_header(shift_ms))
            if occurrences and offset in occurrences:
                released += series_headers(occurrences[offset], self._source)
            if stamped:
                timestamp = _timestamp(mode, due_ms, timestamp_ms)
            for target in targets:
                own = target in own_modes
                at_ms = _timestamp(own_modes[target], due_ms, timestamp_ms) if own else timestamp
                copied: Any = released if attempt is None else attempt_headers(released, attempt, target)
                try:
                    produce(target, value, key, partition, on_delivery, None, at_ms, copied)
                except BufferError:
                    self._produce(target, value, key, partition, copied, at_ms, on_delivery)
            left -= 1
            if not left:
                self.producer.poll(0)
                left = POLL_EVERY

    def reject(
        self, transaction: Transaction, offset: int, refused: Refused, on_delivery: OnDelivery | None = None
    ) -> None:
        """Produce one record of a transaction to the rejected topic, unchanged but for headers with the reason."""
        rejection, (key, value, headers, _), partition = refused
        if offset in transaction.occurrences:
            headers = [*headers, *series_headers(transaction.occurrences[offset], self._source)]
        marked = rejected_headers(headers, rejection, f"{self._source}{offset}")
        self._produce(self._topic.rejected, value, key, partition, marked, TIMESTAMP_NOW, on_delivery)

    def append(self, appended: Appended, placed: dict[int, int], on_delivery: OnDelivery | None = None) -> None:
        """Produce one record to the delay partition itself; after its delivery ``placed`` has its offset.

        The key in ``placed`` is the offset that the record follows.
        """
        key, value, headers, timestamp_ms = appended.record
        on_delivery = partial(_note_place, placed, appended.offset, on_delivery)
        self._produce(self._topic.name, value, key, self._partition, [*headers], timestamp_ms, on_delivery)

    def answer(self, receipt: Receipt, on_delivery: OnDelivery | None = None) -> None:
        """Produce the receipt of one control, to the partition that the control lies in."""
        key, value, own, _ = receipt_record(receipt)
        headers = receipt_headers(own, f"{self._source}{receipt.offset}")
        self._produce(self.receipts_topic, value, key, self._partition, headers, TIMESTAMP_NOW, on_delivery)

    def write_records(self, transaction: Transaction, placed: dict[int, int]) -> None:
        """Produce the records that are released, rejected and appended, and receipts; ``placed`` as of ``append``."""
        self.release_all(transaction)
        for offset, refused in transaction.rejected:
            self.reject(transaction, offset, refused)
        for appended in transaction.appended:
            self.append(appended, placed)
        for receipt in transaction.receipts:
            self.answer(receipt)

    def write_requests(self, transaction: Transaction, notes: Sequence[InTransit]) -> list[dict[int, int]]:
        """Produce the requests and the records for the state topic, progress last.

        Return the offsets of the segments of each request by segment number; they are complete after the commit.
        """
        offsets: list[dict[int, int]] = []
        for request in transaction.requests:
            offsets.append({})
            for number, (key, value) in enumerate(request.segments):
                self._produce_snapshot(key, value, partial(_note_offset, offsets[-1], number))
            for key in request.reclaimed:
                self._produce_snapshot(key, None, None)
            for key in request.withdrawn:
                self._produce(self._topic.backfill, None, key, self._partition, [], TIMESTAMP_NOW, None)
        for state_key, content in transaction.state_records(self._delay_topic_id, notes):
            self._produce(self._topic.state, content, state_key, self._partition, [], TIMESTAMP_NOW, None)
        return offsets

    def _produce_snapshot(self, key: bytes, value: bytes | None, on_delivery: OnDelivery | None) -> None:
        self._produce(self._topic.snapshots, value, key, self._partition, [], TIMESTAMP_NOW, on_delivery)

    def _produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        headers: list[tuple[str, bytes | None]],
        timestamp: int,
        on_delivery: OnDelivery | None,
    ) -> None:
        transactions.produce(self.producer, topic, value, key, partition, headers, timestamp, on_delivery)


def _timestamp(mode: str, due_ms: int, source_ms: int) -> int:
    if mode == "release":
        return TIMESTAMP_NOW
    if mode == "due" and due_ms:
        return due_ms
    return max(source_ms, TIMESTAMP_NOW)


def _note_place(
    placed: dict[int, int], follows: int, then: OnDelivery | None, error: KafkaError | None, message: Message
) -> None:
    _note_offset(placed, follows, error, message)
    if error is None:
        placed.setdefault(follows, NO_OFFSET)
    if then is not None:
        then(error, message)


def _note_offset(record_offsets: dict[int, int], number: int, error: KafkaError | None, message: Message) -> None:
    offset = message.offset()
    if error is None and offset is not None:
        record_offsets[number] = offset
