"""Indexing a delay partition in offset order, from what was read and decided ahead (:mod:`sidecar.intake.read_ahead`).

What is decided is handed over in order, and indexed by the worker between two transactions.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

from index.pending import Entry
from index.progress import Position
from sidecar.clock import Clock
from sidecar.intake.decided import BadBatch, Controlling, Decided, Indexed, Rejected, stub_of
from sidecar.intake.deciding import NEVER
from sidecar.payload.ledger import PartitionLedger
from sidecar.payload.records import Payload, resident_bytes, scheduled_size, size_of, transaction_bytes
from sidecar.ports import Budget

INDEX_RECORDS = 20_000
"""Most records indexed between two transactions, give or take one fetch: bounds what is owed at once, and for how long
releasing waits. A transaction takes some 15 ms beside its records, which is 1 us for each of so many."""


MOVED_BYTES = 262_144
"""What a schedule that is moved counts for in a transaction: its record is only read when that begins."""

CONTROLS_FOR_S = 0.05
"""How long controls are evaluated between two transactions, since releasing waits. One takes some 30 us, and as much
again for each pending schedule of its id that it looks at, of which there may be any number."""


class Ahead(Protocol):
    """The port through which a delay partition is read: decided fetches, in offset order."""

    @property
    def taken_bytes(self) -> int:
        """Payload for which memory was taken so far."""

    @property
    def log_end(self) -> int:
        """Where the log ended at the last fetch."""

    def next(self, wait_s: float) -> Decided | None:
        """What was decided next, waiting at most ``wait_s`` for it; ClusterError or RefusedError on any error."""

    def close(self) -> None:
        """End reading."""


class Places(Protocol):
    """The port through which it is known where records of an id wait, wherever that is."""

    def are_known(self, deliver_id: bytes, following: Iterable[bytes]) -> bool:
        """Whether the ledger knows which records of this id are in buckets; while that is read it does not: ask again.

        ``following`` are ids that will be asked for next.
        """

    def held(self, deliver_id: bytes) -> Mapping[Position, int]:
        """Where records of this id are due that are held for their targets, and how long after they were asked for."""


class Intake:
    """Indexes what ``ahead`` gives, which it owns; used by the worker of its partition only."""

    def __init__(self, ahead: Ahead, ledger: PartitionLedger, budget: Budget, places: Places, clock: Clock) -> None:
        self._ahead = ahead
        self._clock = clock
        self._places = places
        self._ledger = ledger
        self._budget = budget
        self._settled_bytes = 0
        self._under_way: Decided | None = None
        self._until_s = math.inf

    def fill(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index what has arrived, waiting at most ``wait_s`` for the first record; errors as of ``Ahead``.

        All that is indexed may have to leave in one transaction, so it ends with the record that fills ``max_bytes``;
        and with the control that is evaluated ``CONTROLS_FOR_S`` after the first one.
        """
        done = Indexed()
        records = 0
        self._until_s = math.inf
        if self._under_way is not None:
            wait_s = 0
        while records < INDEX_RECORDS and done.size_bytes < max_bytes:
            decided = self._under_way
            if decided is None:
                decided = self._ahead.next(0 if records else wait_s)
                if decided is None:
                    break
                records += max(decided.records, 1)
                done.both_times += decided.both_times
                done.without_time += decided.without_time
            self._under_way = decided
            if not self._index(decided, done, max_bytes):
                break
            if decided.at == len(decided.steps):
                self._under_way = None
        return done

    def lag(self) -> int:
        """Offsets not indexed yet, as far as the last fetch tells; no request is made."""
        return max(0, self._ahead.log_end - self._ledger.indexed_to)

    def close(self) -> None:
        """End reading, and give back the memory of what nobody has indexed."""
        self._ahead.close()
        self._budget.give_back(self._ahead.taken_bytes - self._settled_bytes)

    def _index(self, decided: Decided, done: Indexed, max_bytes: int) -> bool:
        """Index what fits; False when a control has to wait for what it needs to know, or for the next transaction."""
        steps = decided.steps
        while decided.at < len(steps) and done.size_bytes < max_bytes:
            step = steps[decided.at]
            if isinstance(step, list):
                fitting, fitting_bytes = _fitting(step, max_bytes - done.size_bytes)
                done.size_bytes += fitting_bytes
                if fitting < len(step):
                    steps[decided.at] = step[fitting:]
                    self._add(step[:fitting], decided, done)
                    return True
                self._add(step, decided, done)
            elif isinstance(step, Rejected):
                self._ledger.reject(step.offset, step.refused)
                done.size_bytes += size_of(step.refused.record)
            elif isinstance(step, Controlling):
                if not self._has_time() or not self._control(step, _ids_behind(decided), done):
                    return False
            elif isinstance(step, BadBatch):
                self._ledger.skip(step.from_offset, step.to_offset, stub_of(step))
                done.bad.append(step)
            else:
                # The end event also steps over control records and removed ones, which yield no message.
                self._ledger.advance(max(step, self._ledger.indexed_to))
            decided.at += 1
        return True

    def _has_time(self) -> bool:
        """Whether another control may be evaluated before the next transaction; time begins with the first one."""
        now_s = self._clock.running_s()
        if self._until_s == math.inf:
            self._until_s = now_s + CONTROLS_FOR_S
        return now_s < self._until_s

    def _control(self, step: Controlling, following: Iterable[bytes], done: Indexed) -> bool:
        """Evaluate a control; False while it is not known where its id is in buckets."""
        is_settled = self._ledger.is_settled(step.offset)
        if not is_settled and not self._places.are_known(step.control.deliver_id, following):
            return False
        held = self._places.held(step.control.deliver_id)
        receipt, added = self._ledger.control(step.offset, step.control, step.record, step.entry, held=held)
        self._count([] if step.entry is None else [step.entry], added, done)
        # Of a chain of moves one record is written.
        is_moved = receipt is not None and receipt.moved is not None and receipt.moved in receipt.written
        moved_bytes = MOVED_BYTES if is_moved else 0
        done.size_bytes += size_of(step.record) + sum(scheduled_size(payload) for _, _, payload in added) + moved_bytes
        return True

    def _add(self, run: list[Entry[Payload]], decided: Decided, done: Indexed) -> None:
        added = self._ledger.add(run)
        names, shifts_ms = decided.names, decided.shifts_ms
        if names:
            known = self._ledger.named.names
            for due_ms, offset, _ in added:
                if offset in names:
                    known.add(names[offset], Position(due_ms, offset), shifts_ms.get(offset, 0))
        self._count(run, added, done)

    def _count(self, run: Sequence[Entry[Payload]], added: Sequence[Entry[Payload]], done: Indexed) -> None:
        run_bytes = added_bytes = resident_bytes(run)
        if len(added) < len(run):
            # A replay shows that some have left already.
            added_bytes = resident_bytes(added)
            self._budget.give_back(run_bytes - added_bytes)
        self._settled_bytes += run_bytes
        done.accepted += len(added)
        done.resident_bytes += added_bytes


def _fitting(run: list[Entry[Payload]], max_bytes: int) -> tuple[int, int]:
    """How many of the first entries it takes to fill so many bytes, or all of them, and what those have."""
    all_bytes = transaction_bytes(run)
    if all_bytes < max_bytes:
        return len(run), all_bytes
    sums = list(accumulate(map(scheduled_size, [payload for _, _, payload in run]), initial=0))
    fitting = min(bisect_left(sums, max_bytes), len(run))
    return fitting, sums[fitting]


def _ids_behind(decided: Decided) -> Iterator[bytes]:
    """Of the controls behind the one that is next."""
    for place in range(decided.at + 1, len(decided.steps)):
        step = decided.steps[place]
        if isinstance(step, Controlling):
            yield step.control.deliver_id
