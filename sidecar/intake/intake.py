"""Reading a delay partition in offset order and indexing what it holds.

Reading and deciding go on in a thread of their own, some records ahead, so that they overlap with the waits of the
worker for its transactions. What is decided is handed over in order, and indexed by the worker between two of them.
"""

import queue
import threading
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate

from confluent_kafka import KafkaError, KafkaException

from index.errors import RefusedError
from index.partition import PartitionIndex
from index.pending import Entry
from index.record import Record
from index.rule_history import RuleHistory
from index.schedule import AT_ONCE, Rejection
from index.unreadable import UnreadableHeaders, decide
from sidecar.intake.bad_batches import BadBatch
from sidecar.intake.decided import Decided, Indexed, Rejected, Step, stub_of
from sidecar.intake.fetching import Fetch, Fetching
from sidecar.payload.budget import PayloadBudget
from sidecar.payload.records import Payload, Refused, packed, resident_bytes, scheduled, scheduled_size, size_of
from snapshots.rows import RowPacker

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

_new = tuple.__new__  # A NamedTuple's own constructor is a Python function and costs three times as much.


class Intake:
    """Reads and decides one delay partition, whose ``fetching`` it owns; used by its worker only.

    A record that is due more than ``soon_ms`` after ``now_ms()`` is packed: it will be sealed before it is released.
    Nothing is indexed at or beyond ``until_offset``. A batch that cannot be read is rejected; with ``stops_at_bad`` it
    stops the partition, unless C has passed it before.
    """

    def __init__(
        self,
        fetching: Fetching,
        place: tuple[str, int],
        ledger: PartitionLedger,
        history: RuleHistory,
        budget: PayloadBudget,
        *,
        now_ms: Callable[[], int],
        soon_ms: int,
        until_offset: int = NEVER,
        stops_at_bad: bool = False,
    ) -> None:
        self._fetching = fetching
        self._ledger = ledger
        self._history = history
        self._budget = budget
        self._rules = history.at(ledger.indexed_to)
        self._rules_end = 0
        self._now_ms = now_ms
        self._soon_ms = soon_ms
        self._until_offset = until_offset
        self._stops_at_bad = stops_at_bad
        self._ended = False
        self._packer = RowPacker()
        self._log_end = 0
        # Counted as soon as it is decided, since several fetches may be ahead. Each is written by one thread only.
        self._taken_bytes = 0
        self._settled_bytes = 0
        self._stopping = threading.Event()
        self._decided: queue.Queue[Decided] = queue.Queue(FETCHES_AHEAD)
        self._under_way: Decided | None = None
        self._thread = threading.Thread(target=self._run, name=f"intake {place[0]}/{place[1]}", daemon=True)
        self._thread.start()

    def fill(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record; KafkaException on any error.

        All that is indexed may have to leave in one transaction, so it ends with the record that fills ``max_bytes``.
        """
        done = Indexed()
        records = 0
        with suppress(queue.Empty):
            while records < INDEX_RECORDS and done.size_bytes < max_bytes:
                decided = self._under_way
                if decided is None:
                    decided = self._decided.get(block=not records and wait_s > 0, timeout=wait_s)
                    records += max(decided.records, 1)
                    done.both_times += decided.both_times
                    done.without_time += decided.without_time
                if decided.failed is not None:
                    raise decided.failed
                self._under_way = decided
                self._index(decided, done, max_bytes)
                if decided.at == len(decided.steps):
                    self._under_way = None
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
        self._fetching.close()
        self._budget.give_back(self._taken_bytes - self._settled_bytes)

    def _index(self, decided: Decided, done: Indexed, max_bytes: int) -> None:
        steps = decided.steps
        while decided.at < len(steps) and done.size_bytes < max_bytes:
            step = steps[decided.at]
            if isinstance(step, list):
                sums = list(accumulate(map(scheduled_size, [payload for _, _, payload in step]), initial=0))
                fitting = bisect_left(sums, max_bytes - done.size_bytes)
                done.size_bytes += sums[min(fitting, len(step))]
                if fitting < len(step):
                    steps[decided.at] = step[fitting:]
                    self._add(step[:fitting], done)
                    return
                self._add(step, done)
            elif isinstance(step, Rejected):
                self._ledger.reject(step.offset, step.refused)
                done.size_bytes += size_of(step.refused.record)
            elif isinstance(step, BadBatch):
                self._ledger.skip(step.from_offset, step.to_offset, stub_of(step))
                done.bad.append(step)
            else:
                # The end event also steps over control records and removed ones, which yield no message.
                self._ledger.advance(max(step, self._ledger.indexed_to))
            decided.at += 1

    def _add(self, run: list[Entry[Payload]], done: Indexed) -> None:
        added = self._ledger.add(run)
        run_bytes = added_bytes = resident_bytes(run)
        if len(added) < len(run):
            # A replay shows that some have left already.
            added_bytes = resident_bytes(added)
            self._budget.give_back(run_bytes - added_bytes)
        self._settled_bytes += run_bytes
        done.accepted += len(added)
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
        fetch = self._fetching.read(WAIT_S, FETCH_RECORDS)
        if fetch is not None and fetch.bad is not None:
            decided.steps.append(self._passed(fetch.bad))
        elif fetch is not None:
            self._decide(fetch, decided)
            self._budget.take(decided.resident_bytes)
            self._taken_bytes += decided.resident_bytes
        self._log_end = self._fetching.log_end()
        return decided

    def _decide(self, fetch: Fetch, decided: Decided) -> None:
        run: list[Entry[Payload]] = []
        steps = decided.steps
        room_bytes, far_ms = self._budget.room_bytes, self._now_ms() + self._soon_ms
        for message, headers in zip(fetch.messages, fetch.headers, strict=True):
            offset = message.offset() or 0
            error = message.error()
            if error is not None:
                steps += run, _end_at(offset, error)
                run = []
                continue
            if offset >= self._until_offset:
                self._ended = True
                steps += run, self._until_offset
                run = []
                break
            if offset >= self._rules_end:
                self._look_up_rules(offset)
            timestamp_ms = message.timestamp()[1]
            record = _new(Record, (message.key(), message.value(), headers, timestamp_ms))
            if isinstance(headers, UnreadableHeaders):
                decision, record = decide(self._rules, record)
            else:
                decision = self._rules.decide(headers, timestamp_ms)
            if isinstance(decision, Rejection):
                steps += run, Rejected(offset, Refused(decision, record))
                run = []
                continue
            due_ms = decision[0]
            if decision[5] or due_ms == AT_ONCE:
                decided.both_times += decision[5]
                decided.without_time += due_ms == AT_ONCE and not self._rules.names_time(record[2])
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
        decided.records = len(fetch.messages)

    def _passed(self, bad: BadBatch) -> Step:
        if bad.from_offset >= self._until_offset:
            self._ended = True
            return self._until_offset
        if self._stops_at_bad and bad.from_offset >= self._ledger.committed.cursor:
            raise RefusedError(
                f"offsets {bad.from_offset} to {bad.to_offset - 1} are a batch that the client cannot read: {bad.why}."
                ' Give the client more room (receive.message.max.bytes), or step over it: on_unreadable = "reject"'
            )
        return bad

    def _packed(self, record: Record, targets: tuple[str, ...]) -> Payload | None:
        key, value, headers, timestamp_ms = record
        packer = self._packer
        row = packer.pack(key, value, headers)
        if row is None or len(row) > PACKED_BYTES or timestamp_ms < 0:
            return None
        return packed(timestamp_ms, row, packer, targets[0] if len(targets) == 1 else targets)

    def _look_up_rules(self, offset: int) -> None:
        # Once an epoch, and not once a record.
        ends_at = self._history.ends_at(offset)
        self._rules, self._rules_end = self._history.at(offset), NEVER if ends_at is None else ends_at


def _end_at(offset: int, error: KafkaError) -> int:
    """The offset at which the event of the end came; KafkaException when it is another."""
    if error.code() != KafkaError._PARTITION_EOF:
        raise KafkaException(error)
    return offset
