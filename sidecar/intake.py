"""Reading a delay partition in offset order and indexing what it holds.

Reading and deciding go on in a thread of their own, some records ahead, so that they overlap with the waits of the
worker for its transactions. What is decided is handed over in order, and indexed by the worker between two of them.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from index.partition import PartitionIndex
from index.pending import Entry
from index.record import Record
from index.rules import Rules
from index.schedule import Rejection
from sidecar.budget import PayloadBudget
from sidecar.records import Payload, Refused, packed, record_of, resident_bytes, scheduled, size_of
from snapshots.rows import RowPacker
from snapshots.state import RuleEpoch

PartitionLedger = PartitionIndex[Payload, Refused]
"""What the router keeps of a delay partition."""

FETCH_RECORDS = 2_500
"""Most records decided at once: deciding them takes some 10 ms."""

INDEX_RECORDS = 10_000
"""Most records indexed between two transactions, give or take one fetch: bounds what is owed at once, and for how long
releasing waits."""

FETCHES_AHEAD = 2
"""Decided and not indexed yet; more would only be memory."""

WAIT_S = 0.25
"""How soon the thread notices that it is to end."""

NEVER = 1 << 63
"""An offset that no log reaches."""

FULL_WAIT_S = 0.005
"""How soon the thread looks again whether there is memory."""

PACKED_BYTES = 65_536
"""A larger record is kept as it came, since it may be too large for a segment."""


class Rejected(NamedTuple):
    """A record on its way to the rejected topic."""

    offset: int
    refused: Refused


Step: TypeAlias = list[Entry[Payload]] | Rejected | int
"""What to do to the ledger: add a run, reject a record, or step over what yields no record, up to an offset."""


@dataclass(slots=True)
class Decided:
    """What was read at once; ``failed`` ends it."""

    steps: list[Step] = field(default_factory=list)
    records: int = 0
    both_times: int = 0
    resident_bytes: int = 0
    failed: Exception | None = None


@dataclass(slots=True)
class Indexed:
    """What one round of intake did."""

    accepted: int = 0
    both_times: int = 0
    resident_bytes: int = 0


class Intake:
    """Owns the tail consumer of one delay partition; used by its worker only.

    A record that is due more than ``soon_ms`` after ``now_ms()`` is packed: it will be sealed before it is released.
    Nothing is indexed at or beyond ``until_offset``.
    """

    def __init__(
        self,
        consumer: Consumer,
        at: TopicPartition,
        ledger: PartitionLedger,
        epochs: Sequence[RuleEpoch],
        budget: PayloadBudget,
        *,
        now_ms: Callable[[], int],
        soon_ms: int,
        until_offset: int = NEVER,
    ) -> None:
        self._consumer = consumer
        self._ledger = ledger
        self._epochs = list(epochs)
        self._budget = budget
        self._rules: Rules = self._epochs[0].rules
        self._rules_end = 0
        self._at = at
        self._now_ms = now_ms
        self._soon_ms = soon_ms
        self._until_offset = until_offset
        self._ended = False
        self._packer = RowPacker()
        self._log_end = 0
        # Counted as soon as it is decided, since several fetches may be ahead. Each is written by one thread only.
        self._taken_bytes = 0
        self._settled_bytes = 0
        self._stopping = threading.Event()
        self._decided: queue.Queue[Decided] = queue.Queue(FETCHES_AHEAD)
        self._thread = threading.Thread(target=self._run, name=f"intake {at.topic}/{at.partition}", daemon=True)
        consumer.assign([at])
        self._thread.start()

    def fill(self, wait_s: float) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record; KafkaException on any error."""
        done = Indexed()
        records = 0
        with suppress(queue.Empty):
            while records < INDEX_RECORDS:
                decided = self._decided.get(block=not records and wait_s > 0, timeout=wait_s)
                records += max(decided.records, 1)
                self._index(decided, done)
        return done

    def lag(self) -> int:
        """Offsets not indexed yet, as far as the last fetch tells; no request is made."""
        return max(0, self._log_end - self._ledger.indexed_to)

    def close(self) -> None:
        """End the thread, give the consumer back to librdkafka, and the memory of what nobody has indexed."""
        self._stopping.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):
                # It may be waiting for room to hand over.
                self._decided.get_nowait()
            self._thread.join(0.01)
        self._consumer.close()
        self._budget.give_back(self._taken_bytes - self._settled_bytes)

    def _index(self, decided: Decided, done: Indexed) -> None:
        if decided.failed is not None:
            raise decided.failed
        done.both_times += decided.both_times
        added_bytes = 0
        for step in decided.steps:
            if isinstance(step, list):
                added = self._ledger.add(step)
                done.accepted += len(added)
                added_bytes += resident_bytes(added)
            elif isinstance(step, Rejected):
                self._ledger.reject(step.offset, step.refused)
            else:
                # The end event also steps over control records and removed ones, which yield no message.
                self._ledger.advance(max(step, self._ledger.indexed_to))
        # A replay shows that some have left already.
        self._budget.give_back(decided.resident_bytes - added_bytes)
        self._settled_bytes += decided.resident_bytes
        done.resident_bytes += added_bytes

    def _run(self) -> None:
        while not self._stopping.is_set() and not self._ended:
            try:
                decided = self._read()
            except Exception as error:  # noqa: BLE001 - it is raised where the worker looks at it
                decided = Decided(failed=error)
            if decided.steps or decided.failed:
                self._hand_over(decided)
            if decided.failed:
                return

    def _hand_over(self, decided: Decided) -> None:
        while not self._stopping.is_set():
            try:
                self._decided.put(decided, timeout=WAIT_S)
            except queue.Full:
                continue
            return

    def _read(self) -> Decided:
        decided = Decided()
        if self._budget.room_bytes <= 0 and not self._ledger.replaying:
            # Only what comes in pauses; what is due goes on, and makes room.
            self._stopping.wait(FULL_WAIT_S)
            return decided
        first = self._consumer.poll(WAIT_S)
        if first is not None:
            # consume(n, t) returns early only when it has n, so it must not wait here.
            self._decide([first, *self._consumer.consume(FETCH_RECORDS - 1, 0)], decided)
            self._budget.take(decided.resident_bytes)
            self._taken_bytes += decided.resident_bytes
        _, self._log_end = self._consumer.get_watermark_offsets(self._at, cached=True)
        return decided

    def _decide(self, messages: Sequence[Message], decided: Decided) -> None:
        run: list[Entry[Payload]] = []
        steps = decided.steps
        room_bytes, far_ms = self._budget.room_bytes, self._now_ms() + self._soon_ms
        for message in messages:
            offset = message.offset() or 0
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                steps += run, offset
                run = []
                continue
            if offset >= self._until_offset:
                self._ended = True
                steps += run, self._until_offset
                run = []
                break
            if offset >= self._rules_end:
                self._enter_epoch_of(offset)
            record = record_of(message)
            decision = self._rules.decide(record[2], record[3])
            if isinstance(decision, Rejection):
                steps += run, Rejected(offset, Refused(decision, record))
                run = []
                continue
            due_ms = decision[0]
            if decision[5]:
                decided.both_times += 1
            payload = self._packed(record, decision[1]) if due_ms > far_ms else None
            if payload is None:
                payload = scheduled(decision, size_of(record), record)
            taken_bytes = decided.resident_bytes + payload[1]
            if taken_bytes < room_bytes:
                decided.resident_bytes = taken_bytes
            else:
                # What does not fit stays in the delay topic, and is read again when it is due.
                payload = scheduled(decision, payload[1], None)
            run.append((due_ms, offset, payload))
        steps.append(run)
        decided.records = len(messages)

    def _packed(self, record: Record, targets: tuple[str, ...]) -> Payload | None:
        key, value, headers, timestamp_ms = record
        packer = self._packer
        row = packer.pack(key, value, headers)
        if row is None or len(row) > PACKED_BYTES or timestamp_ms < 0:
            return None
        return packed(timestamp_ms, row, packer, targets[0] if len(targets) == 1 else targets)

    def _enter_epoch_of(self, offset: int) -> None:
        while len(self._epochs) > 1 and self._epochs[1].from_offset <= offset:
            self._epochs.pop(0)
        self._rules = self._epochs[0].rules
        self._rules_end = self._epochs[1].from_offset if len(self._epochs) > 1 else NEVER
