"""Reading a delay partition in offset order and indexing what it holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.partition import PartitionIndex
from index.pending import Entry
from index.rules import Rules
from index.schedule import Rejection
from sidecar.budget import PayloadBudget
from sidecar.records import Refused, Scheduled, record_of, resident_bytes, scheduled, size_of
from snapshots.state import RuleEpoch

PartitionLedger = PartitionIndex[Scheduled, Refused]
"""What the router keeps of a delay partition."""

FETCH_RECORDS = 10_000
"""Most records indexed between two transactions: bounds what is owed at once, and for how long releasing waits."""


@dataclass(slots=True)
class Indexed:
    """What one round of intake did."""

    accepted: int = 0
    both_times: int = 0
    resident_bytes: int = 0


class Intake:
    """Owns the tail consumer of one delay partition; used by its worker only."""

    def __init__(
        self,
        consumer: Consumer,
        at: TopicPartition,
        ledger: PartitionLedger,
        epochs: Sequence[RuleEpoch],
        budget: PayloadBudget,
    ) -> None:
        self._consumer = consumer
        self._ledger = ledger
        self._epochs = list(epochs)
        self._budget = budget
        self._rules: Rules = self._epochs[0].rules
        self._rules_end = 0
        self._at = at
        consumer.assign([at])

    def fill(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record; KafkaException on any error."""
        done = Indexed()
        first = self._consumer.poll(wait_s)
        if first is None:
            return done
        # consume(n, t) returns early only when it has n, so it must not wait here.
        self._index([first, *self._consumer.consume(FETCH_RECORDS - 1, 0)], done)
        self._budget.take(done.resident_bytes)
        return done

    def lag(self) -> int:
        """Offsets not indexed yet, as far as the last fetch tells; no request is made."""
        _, end = self._consumer.get_watermark_offsets(self._at, cached=True)
        return max(0, end - self._ledger.indexed_to)

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()

    def _index(self, messages: Sequence[Message], done: Indexed) -> None:
        run: list[Entry[Scheduled]] = []
        room_bytes = self._budget.room_bytes
        for message in messages:
            offset = message.offset() or 0
            error = message.error()
            if error is not None:
                self._add(run, done)
                run = []
                self._at_end(error, offset)
                continue
            if offset >= self._rules_end:
                self._enter_epoch_of(offset)
            record = record_of(message)
            decision = self._rules.decide(record.headers, record.timestamp_ms)
            if isinstance(decision, Rejection):
                self._add(run, done)
                run = []
                self._ledger.reject(offset, Refused(decision, record))
                continue
            size = size_of(record)
            room_bytes -= size
            done.both_times += decision.both_times
            # What does not fit stays in the delay topic, and is read again when it is due.
            run.append((decision.due_ms, offset, scheduled(decision, size, record if room_bytes > 0 else None)))
        self._add(run, done)

    def _add(self, run: Sequence[Entry[Scheduled]], done: Indexed) -> None:
        added = self._ledger.add(run)
        done.accepted += len(added)
        done.resident_bytes += resident_bytes(added)

    def _at_end(self, error: KafkaError, end: int) -> None:
        if error.code() != KafkaError._PARTITION_EOF:
            raise KafkaException(error)
        # The end event also steps over control records and removed ones, which yield no message.
        self._ledger.advance(max(end, self._ledger.indexed_to))

    def _enter_epoch_of(self, offset: int) -> None:
        while len(self._epochs) > 1 and self._epochs[1].from_offset <= offset:
            self._epochs.pop(0)
        self._rules = self._epochs[0].rules
        self._rules_end = self._epochs[1].from_offset if len(self._epochs) > 1 else 1 << 63
