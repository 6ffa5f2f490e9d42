"""Decides the records read from a delay partition: their due time and targets, or the reason of a rejection.

A decision must replay, so it depends only on the record and on the rules of its offset, and asks neither the clock nor
the cluster. The clock only says which records wait for so long that they are packed.
"""

from collections.abc import Callable
from typing import TypeAlias

from index.errors import RefusedError
from index.named.names import hash_of
from index.pending.pending import Entry
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Control, Rejection
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from index.rules.unreadable import UnreadableHeaders, decide
from sidecar.engine.intake.decided import BadBatch, Controlling, Decided, Fetched, NativeDecider, Rejected, Step
from sidecar.engine.payload.records import Packed, Payload, Refused, Scheduled, packed, scheduled, size_of
from sidecar.engine.ports import Budget
from snapshots.segments.rows import RowPacker

NEVER = 1 << 63
"""An offset that no log reaches."""

PACKED_BYTES = 65_536
"""Largest record that is packed; a larger one is kept as it came, since it may be too large for a segment."""

_new = tuple.__new__  # A NamedTuple's own constructor is a Python function and costs three times as much.


Native: TypeAlias = Callable[[Rules, RowPacker, tuple[type, type]], NativeDecider | None]
"""Makes a native decider for some rules; returns None where it cannot."""


def nothing_native(_rules: Rules, _packer: RowPacker, _kinds: tuple[type, type]) -> None:
    """Leave all decisions to Python."""


class Deciding:
    """Decides the records of one delay partition, from one offset on; used by one thread.

    A record that is due more than ``soon_ms`` after ``now_ms()`` is packed: it will be sealed before it is released.
    Nothing is decided at or beyond ``until_offset``. An unreadable batch is passed on to be rejected. With
    ``stops_at_bad`` it stops the partition, unless it begins below the cursor that this function returns.
    ``taken_bytes`` counts the payload for which memory was taken.
    """

    def __init__(
        self,
        history: RuleHistory,
        budget: Budget,
        *,
        now_ms: Callable[[], int],
        soon_ms: int,
        until_offset: int = NEVER,
        stops_at_bad: Callable[[], int] | None = None,
        native: Native = nothing_native,
    ) -> None:
        self.taken_bytes = 0
        self.has_ended = False
        self._history = history
        self._budget = budget
        self._rules: Rules = history.in_force
        self._rules_end = 0
        self._now_ms = now_ms
        self._soon_ms = soon_ms
        self._until_offset = until_offset
        self._stops_at_bad = stops_at_bad
        self._packer = RowPacker()
        self._native_by = native
        self._native = self._decider(self._rules)
        self._far_ms = self._room_bytes = 0

    def decide(self, fetch: Fetched) -> Decided:
        """Return the steps to index for a fetch; the memory of their payload is counted at once.

        Raise ClusterError for an error among the messages, RefusedError for a batch that stops the partition.
        """
        decided = Decided()
        if fetch.bad is not None:
            decided.steps.append(self._passed(fetch.bad))
            return decided
        self._decide_messages(fetch, decided)
        # Several fetches may be ahead, so the indexing side cannot count the memory in time.
        self._budget.take(decided.resident_bytes)
        self.taken_bytes += decided.resident_bytes
        return decided

    def _decide_messages(self, fetch: Fetched, decided: Decided) -> None:
        self._far_ms, self._room_bytes = self._now_ms() + self._soon_ms, self._budget.room_bytes
        run: list[Entry[Payload]] = []
        at, count = 0, len(fetch.messages)
        while at < count and not self.has_ended:
            to = count
            if self._native is not None:
                at = self._decide_natively(self._native, fetch, at, run, decided)
                # The native decider stopped in front of a record that it does not know, or of other rules.
                to = at + 1
            run = self._decide_some(fetch, at, to, run, decided)
            at = to
        decided.steps.append(run)
        decided.records = count

    def _decide_natively(
        self, native: NativeDecider, fetch: Fetched, at: int, run: list[Entry[Payload]], decided: Decided
    ) -> int:
        """Continue a run from a place of the fetch on; return the place of the first message that is left to Python."""
        to, taken_bytes, without_time = native.decide(
            fetch.messages,
            fetch.headers,
            at,
            min(self._until_offset, self._rules_end, NEVER - 1),
            self._far_ms,
            self._room_bytes - decided.resident_bytes,
            run,
            decided.names,
        )
        decided.resident_bytes += taken_bytes
        decided.without_time += without_time
        return to

    # One function for all: a call for each record costs more than its work.
    def _decide_some(  # noqa: C901, PLR0912, PLR0915 -- see above
        self, fetch: Fetched, start: int, stop: int, run: list[Entry[Payload]], decided: Decided
    ) -> list[Entry[Payload]]:
        """Continue a run; return the run that is under way at the end."""
        steps, room_bytes, far_ms = decided.steps, self._room_bytes, self._far_ms
        for message, headers in fetch.some(start, stop):
            offset = message.offset() or 0
            error = message.error()
            if error is not None:
                fetch.require_end(error)
                steps += run, offset
                run = []
                continue
            if offset >= self._until_offset:
                self.has_ended = True
                steps += run, self._until_offset
                run = []
                break
            if offset >= self._rules_end:
                self._take_rules(offset)
            timestamp_ms = message.timestamp()[1]
            record = _new(Record, (message.key(), message.value(), headers, timestamp_ms))
            if isinstance(headers, UnreadableHeaders):
                decision, record = decide(self._rules, record, offset)
            else:
                decision = self._rules.decide(headers, timestamp_ms)
                if self._rules.spreads:
                    decision = self._rules.placed(decision, timestamp_ms, offset)
            if isinstance(decision, Rejection):
                steps += run, Rejected(offset, Refused(decision, record))
                run = []
                continue
            control, schedule = (decision, decision.schedule) if isinstance(decision, Control) else (None, decision)
            if schedule is None:
                assert control is not None
                steps += run, Controlling(offset, control, record, None)
                run = []
                continue
            due_ms = schedule[0]
            if schedule[5] or due_ms == AT_ONCE:
                decided.both_times += schedule[5]
                decided.without_time += due_ms == AT_ONCE and not self._rules.names_time(record[2])
            payload = self._packed(record, schedule[1]) if due_ms > far_ms else None
            if payload is None:
                payload = scheduled(schedule, size_of(record), record)
            taken_bytes = decided.resident_bytes + payload[1]
            if taken_bytes < room_bytes:
                decided.resident_bytes = taken_bytes
            else:
                # A record that does not fit stays in the delay topic, and is read again when it is due.
                payload = scheduled(schedule, payload[1], None)
            entry = due_ms, offset, payload
            if control is not None:
                steps += run, Controlling(offset, control, record, entry)
                run = []
                continue
            if schedule[4] is not None:
                decided.names[offset] = hash_of(schedule[4])
                if schedule.shift_ms:
                    decided.shifts_ms[offset] = schedule.shift_ms
            run.append(entry)
        return run

    def _take_rules(self, offset: int) -> None:
        rules, self._rules_end = self._history.at(offset), self._history.ends_at(offset) or NEVER
        if rules != self._rules:
            self._rules, self._native = rules, self._decider(rules)

    def _decider(self, rules: Rules) -> NativeDecider | None:
        return self._native_by(rules, self._packer, (Scheduled, Packed))

    def _passed(self, bad: BadBatch) -> Step:
        if bad.from_offset >= self._until_offset:
            self.has_ended = True
            return self._until_offset
        if self._stops_at_bad is not None and bad.from_offset >= self._stops_at_bad():
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
