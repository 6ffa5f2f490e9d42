"""Reading a delay partition in offset order and indexing what it holds."""

from collections.abc import Sequence
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.partition import PartitionIndex
from index.rules import Rules
from index.schedule import Schedule
from sidecar.budget import PayloadBudget
from sidecar.records import Record, Refused, Scheduled, record_of, size_of
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
    reached_end: bool = False


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
        self.end_offset = 0
        consumer.assign([at])

    def fill(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record; KafkaException on any error."""
        done = Indexed()
        first = self._consumer.poll(wait_s)
        if first is None:
            return done
        # consume(n, t) returns early only when it has n, so it must not wait here.
        messages = [first, *self._consumer.consume(FETCH_RECORDS - 1, 0)]
        for message in messages:
            error = message.error()
            if error is None:
                self._index(message, done)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end(message, done)
            else:
                raise KafkaException(error)
        self._budget.take(done.resident_bytes)
        return done

    def lag(self) -> int:
        """Offsets not indexed yet, as far as the last fetch tells; no request is made."""
        return max(0, self.end_offset - self._ledger.indexed_to)

    def close(self) -> None:
        """Give the consumer back to librdkafka."""
        self._consumer.close()

    def _index(self, message: Message, done: Indexed) -> None:
        offset = message.offset()
        assert offset is not None
        if offset >= self._rules_end:
            self._enter_epoch_of(offset)
        record = record_of(message)
        decision = self._rules.decide(record.headers, record.timestamp_ms)
        if not isinstance(decision, Schedule):
            self._ledger.reject(offset, Refused(decision, record))
            return
        size = size_of(record)
        kept = self._kept(record, done)
        if self._ledger.add(offset, decision.due_ms, Scheduled(decision, size, kept)):
            done.accepted += 1
            done.both_times += decision.both_times
            if kept is not None:
                done.resident_bytes += size

    def _kept(self, record: Record, done: Indexed) -> Record | None:
        return None if self._budget.exhausted_by(done.resident_bytes) else record

    def _at_end(self, message: Message, done: Indexed) -> None:
        end = message.offset()
        assert end is not None
        done.reached_end = True
        self.end_offset = end
        # The end event also steps over control records and removed ones, which yield no message.
        self._ledger.advance(max(end, self._ledger.indexed_to))

    def _enter_epoch_of(self, offset: int) -> None:
        while len(self._epochs) > 1 and self._epochs[1].from_offset <= offset:
            self._epochs.pop(0)
        self._rules = self._epochs[0].rules
        self._rules_end = self._epochs[1].from_offset if len(self._epochs) > 1 else 1 << 63
