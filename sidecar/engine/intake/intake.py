"""Indexes a delay partition in offset order, from fetches that were read and decided ahead.

A thread reads and decides (:mod:`sidecar.process.host.read_ahead`) and hands over in order; the worker indexes between
two transactions.
"""

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, Protocol

from index.named.queries import MOST_QUERIES
from index.named.receipts import Matched
from index.pending.pending import Entry
from index.pending.progress import Position
from index.protocol.control_headers import CANCEL_WHERE
from index.protocol.schedule import Reason, Rejection
from index.protocol.where import CancelWhere, parse_where
from sidecar.clock import Clock
from sidecar.engine.intake.decided import BadBatch, Controlling, Decided, Indexed, Rejected, Step, stub_of
from sidecar.engine.intake.deciding import NEVER
from sidecar.engine.payload.ledger import PartitionLedger
from sidecar.engine.payload.records import Payload, Refused, resident_bytes, scheduled_size, size_of, transaction_bytes
from sidecar.engine.ports import Budget

INDEX_RECORDS = 20_000
"""Most records indexed between two transactions, give or take one fetch. This bounds the records owed at once, and the
wait of releasing. A transaction takes some 15 ms beside its records, which is 1 us a record for this many."""


MOVED_BYTES = 262_144
"""Size that a moved schedule counts for in a transaction: its record is only read when the transaction begins."""

CONTROLS_FOR_S = 0.05
"""Longest time that controls are evaluated between two transactions, since releasing waits. One control takes some 30
us, and as much again for each pending schedule of its id that it looks at; an id may have any number of these."""


TOO_MANY_QUERIES: Final = Rejection(
    Reason.INVALID_SCHEDULE,
    f"{CANCEL_WHERE}: {MOST_QUERIES} predicates are in force in this partition, and there may be no more. A predicate"
    " ends when no record that was sent before it is pending; until then, cancel by id",
)


class Ahead(Protocol):
    """The port through which a delay partition is read: decided fetches, in offset order."""

    @property
    def taken_bytes(self) -> int:
        """Bytes of payload for which memory was taken so far."""

    @property
    def log_end(self) -> int:
        """End of the log at the last fetch."""

    def next(self, wait_s: float) -> Decided | None:
        """Return the next decided fetch, waiting at most ``wait_s``; raise ClusterError or RefusedError on error."""

    def close(self) -> None:
        """End reading."""


class IdPlaces(Protocol):
    """The port that tells the positions at which records of an id wait, in memory or in buckets."""

    def are_known(self, deliver_id: bytes, following: Iterable[bytes]) -> bool:
        """Say whether the ledger knows which bucket records have this id; False while they are read, so ask again.

        ``following`` are the ids of the next controls.
        """

    def held(self, deliver_id: bytes) -> Mapping[Position, int]:
        """Return the positions of the records of this id that are held for their targets, each with its spread in
        milliseconds.
        """

    def cancelled(self, deliver_id: bytes, held: Mapping[Position, int]) -> Collection[int]:
        """Return the offsets of schedules of this id that queries have cancelled, ``held`` ones among them."""

    def answer(self, offset: int, where: CancelWhere) -> "QueryAnswer | None":
        """Return the schedules that the query at this offset cancels; None while they are counted, so ask again."""


class QueryAnswer(Protocol):
    """The schedules that a query cancels."""

    @property
    def behind(self) -> Sequence[Position]:
        """The positions of the schedules that lie behind its control, in transit."""

    @property
    def matched(self) -> Matched:
        """The number of all schedules."""

    @property
    def left(self) -> int:
        """About how many schedules stay where they are."""


class Intake:
    """Indexes the fetches of ``ahead``, which it owns; used by the worker of its partition only."""

    def __init__(self, ahead: Ahead, ledger: PartitionLedger, budget: Budget, places: IdPlaces, clock: Clock) -> None:
        self._ahead = ahead
        self._clock = clock
        self._places = places
        self._ledger = ledger
        self._budget = budget
        self._settled_bytes = 0
        self._under_way: Decided | None = None
        self._until_s = math.inf

    def fill(self, wait_s: float, max_bytes: int = NEVER) -> Indexed:
        """Index the fetches that have arrived, waiting at most ``wait_s`` for the first record.

        All that is indexed may have to leave in one transaction, so indexing ends with the record that fills
        ``max_bytes``. It also ends with the control that is evaluated ``CONTROLS_FOR_S`` after the first one. Raises
        the errors of ``Ahead``.
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
        """Return how many offsets are not indexed yet, as far as the last fetch tells; no request is made."""
        return max(0, self._ahead.log_end - self._ledger.indexed_to)

    @property
    def waits(self) -> bool:
        """Says that no record may be indexed before the next transaction: a query needs a transaction of its own."""
        ledger, decided = self._ledger, self._under_way
        if ledger.named.queries.is_owed:
            return True
        step = decided.steps[decided.at] if decided is not None and decided.at < len(decided.steps) else None
        return _is_query(step) and bool(ledger.owed) and not ledger.replaying

    def close(self) -> None:
        """End reading, and give back the memory of the records that were not indexed; a second call changes nothing."""
        try:
            self._ahead.close()
        finally:
            left_bytes = self._ahead.taken_bytes - self._settled_bytes
            self._settled_bytes += left_bytes
            self._budget.give_back(left_bytes)

    def _index(self, decided: Decided, done: Indexed, max_bytes: int) -> bool:
        """Index the steps that fit; return False when a control waits for its ids or for the next transaction."""
        steps, queries = decided.steps, self._ledger.named.queries
        while decided.at < len(steps) and done.size_bytes < max_bytes and not queries.is_owed:
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
                if not self._has_time() or not self._control(step, decided, done):
                    return False
            elif isinstance(step, BadBatch):
                self._ledger.skip(step.from_offset, step.to_offset, stub_of(step))
                done.bad.append(step)
            else:
                # The end event also steps over control records and removed ones, which yield no message.
                self._ledger.advance(max(step, self._ledger.indexed_to))
            decided.at += 1
        return not queries.is_owed

    def _has_time(self) -> bool:
        """Say whether another control may be evaluated before the next transaction; the time begins with the first
        control.
        """
        now_s = self._clock.running_s()
        if self._until_s == math.inf:
            self._until_s = now_s + CONTROLS_FOR_S
        return now_s < self._until_s

    def _control(self, step: Controlling, decided: Decided, done: Indexed) -> bool:
        """Evaluate a control; return False while it is unknown which records it concerns."""
        if _is_query(step):
            if not self._query(step):
                return False
            done.size_bytes += size_of(step.record)
            return True
        is_settled = self._ledger.is_settled(step.offset)
        if not is_settled and not self._places.are_known(step.control.deliver_id, _ids_behind(decided)):
            return False
        held, gone = self._places.held(step.control.deliver_id), frozenset[int]()
        if self._ledger.named.queries and not is_settled:
            gone = frozenset(self._places.cancelled(step.control.deliver_id, held))
            held = {place: shift_ms for place, shift_ms in held.items() if place.offset not in gone}
        receipt, added = self._ledger.control(step.offset, step.control, step.record, step.entry, held=held, gone=gone)
        self._count([] if step.entry is None else [step.entry], added, done)
        # A chain of moves writes one record.
        is_moved = receipt is not None and receipt.moved is not None and receipt.moved in receipt.written
        moved_bytes = MOVED_BYTES if is_moved else 0
        done.size_bytes += size_of(step.record) + sum(scheduled_size(payload) for _, _, payload in added) + moved_bytes
        return True

    def _query(self, step: Controlling) -> bool:
        """Put a query into force; return False while records are owed, or while its schedules are counted."""
        ledger = self._ledger
        if ledger.is_settled(step.offset):
            ledger.advance(step.offset + 1)
            return True
        if ledger.owed:
            return False
        if len(ledger.named.queries) >= MOST_QUERIES:
            ledger.reject(step.offset, Refused(TOO_MANY_QUERIES, step.record))
            return True
        answer = self._places.answer(step.offset, parse_where(step.control.where))
        if answer is None:
            return False
        ledger.query(step.offset, step.control, step.record, answer.behind, answer.matched, answer.left)
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
            # In a replay some of the records have left already.
            added_bytes = resident_bytes(added)
            self._budget.give_back(run_bytes - added_bytes)
        self._settled_bytes += run_bytes
        done.accepted += len(added)
        done.resident_bytes += added_bytes


def _fitting(run: list[Entry[Payload]], max_bytes: int) -> tuple[int, int]:
    """Return how many of the first entries fill ``max_bytes``, or the number of all, and the bytes of these entries."""
    all_bytes = transaction_bytes(run)
    if all_bytes < max_bytes:
        return len(run), all_bytes
    sums = list(accumulate(map(scheduled_size, [payload for _, _, payload in run]), initial=0))
    fitting = min(bisect_left(sums, max_bytes), len(run))
    return fitting, sums[fitting]


def _ids_behind(decided: Decided) -> Iterator[bytes]:
    """Yield the ids of the controls behind the next one."""
    for place in range(decided.at + 1, len(decided.steps)):
        step = decided.steps[place]
        if isinstance(step, Controlling) and not _is_query(step):
            yield step.control.deliver_id


def _is_query(step: Step | None) -> bool:
    return isinstance(step, Controlling) and bool(step.control.where)
