"""Judges a run by the orders of the producers and the content of the store; it shares no code with the index."""

import json
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from index.protocol.record import Record
from index.rules.rules import Retry, Rules
from snapshots.envelope import Kind, kind_of, unwrap
from snapshots.proto import state_pb2
from snapshots.state.state import PROGRESS_KEY, RULES_KEY
from tests.simulation.answers import Answers
from tests.simulation.refusing import Refusing
from tests.simulation.violation import Violation, require
from tests.simulation.workload import DEFAULT_TARGET, MINUTE_MS
from tests.simulation.world import REJECTED, Left, Produced, Transaction

__all__ = ["Checker", "Violation"]

Place = tuple[int, int]

_GOLDEN = 11400714819323198485
"""2**64 divided by the golden ratio."""

_PLASTIC = 13925035116211876495
"""2**64 divided by the plastic number."""


class Numbers(NamedTuple):
    """C, W and S in the state topic."""

    cursor: int
    watermark: Place
    sealed_to: int


class Waits(NamedTuple):
    """The settings of an epoch of rules that delay a record in addition to its own headers, or count its attempts."""

    delay_ms: int
    spread_ms: int
    spreads_ms: Mapping[str, int]
    allowed: frozenset[str]
    retry: Retry | None

    @classmethod
    def of(cls, rules: bytes) -> "Waits":
        """Read the settings from the stored rules."""
        told = json.loads(rules)
        own = {rule[0]: rule[3] for rule in told.get("target_rules", []) if rule[3:]}
        retry = Retry(**told["retry"]) if "retry" in told else None
        allowed = frozenset(told["allowed_targets"])
        return cls(told.get("delay_ms", 0), told.get("spread_ms", 0), own, allowed, retry)


class Checker:
    """Follows the committed transactions in order; reads the lists of its arguments again whenever they have grown."""

    def __init__(
        self,
        produced: Sequence[Produced],
        rules_used: Sequence[Rules],
        committed: Sequence[Transaction],
        refusing: Refusing | None = None,
    ) -> None:
        self._log = produced
        self._rules_used = rules_used
        self._committed = committed
        self._refusing = refusing or Refusing()
        self._followed = 0
        self._produced: dict[int, Produced] = {}
        self._left: dict[int, str] = {}
        self._numbers = Numbers(0, (-1, -1), 0)
        self._answers = Answers(
            self._produced, self._left, self._may_be_rejected, self._may_be_accepted, self._due_us, self._target
        )
        self._waits = [(0, Waits.of(rules_used[0].to_json()))]

    def follow(self) -> None:
        """Raise Violation at the first new transaction that breaks a guarantee."""
        for record in self._log[len(self._produced) :]:
            self._produced[record.offset] = record
        for transaction in self._committed[self._followed :]:
            self._followed += 1
            self._one(transaction)

    def nothing_missing(self, told_lost: Collection[int] = ()) -> None:
        """Raise Violation if a record has not left at the end of the run and no router has reported it as lost."""
        missing = sorted(self._produced.keys() - self._left.keys() - self._answers.doubtful.keys() - set(told_lost))
        require(not missing, f"lost: {missing}")
        unanswered = sorted(self._answers.unanswered() - set(told_lost))
        require(not unanswered, f"controls without a receipt: {unanswered}")

    def still_owed(self, before_offset: int) -> set[int]:
        """Return the offsets below this one of records that have not left."""
        there = {offset for offset in self._produced if offset < before_offset}
        return there - self._left.keys() - self._answers.doubtful.keys()

    @property
    def unwanted(self) -> set[int]:
        """The offsets of records that a query has cancelled, or may have cancelled."""
        return self._answers.unwanted

    def _one(self, transaction: Transaction) -> None:
        before, self._numbers = self._numbers, self._numbers_after(transaction)
        self._no_number_moves_back(before)
        self._note_waits(transaction)
        self._answers.follow(transaction)
        for left in transaction.left:
            offset, topic, written, *_ = left
            record = self._produced[offset]
            is_whole = written is None or _is_of(written, record)
            require(is_whole or self._is_rightly_shortened(left, record), f"{offset} altered: {written}, not {record}")
            require(offset not in self._left, f"{offset} left twice, to {self._left.get(offset)} and to {topic}")
            query = self._answers.doubtful.get(offset)
            require(query is None or topic == REJECTED, f"{offset} released, and the query at {query} cancels it")
            self._left[offset] = topic
            self._rightly(record, topic, transaction.begun_ms)
            if topic != REJECTED:
                wanted = _attempt_of(record, self._waits_at(offset).retry)
                found = None if left.attempt is None else left.attempt[:2]
                require(found == wanted, f"{offset} released as attempt {found}, and is {wanted}")
        self._series_go_on(transaction)
        released = [self._place(self._produced[offset]) for offset, topic, *_ in transaction.left if topic != REJECTED]
        in_time = [place for place in released if place > before.watermark]
        require(in_time == sorted(in_time), f"not in order: {in_time}")

    def _series_go_on(self, transaction: Transaction) -> None:
        """Check that each occurrence that leaves is followed by the next one in the same transaction.

        Nothing else is appended, except moved schedules, which their receipts name.
        """
        appended = [(offset, self._produced[place]) for offset, place in transaction.placed.items()]
        unexplained = [(offset, record) for offset, record in appended if record.moved_by is None]
        for left in transaction.left:
            offset, topic = left.offset, left.topic
            record = self._produced[offset]
            if record.series is None:
                continue
            if topic != REJECTED:
                told = transaction.occurrences.get(offset)
                require(told == record.series[:2], f"{offset} released as {told}, and is {record.series}")
            wanted = _next_of(record, transaction.begun_ms - self._shift_ms(record))
            found = [each for each in unexplained if each[0] == offset]
            # A rejection because of the record's own content ends its series.
            if wanted is None or (topic == REJECTED and not left.is_refused_at_release):
                continue
            require(len(found) == 1, f"{offset} leaves, and is followed by {found}, not {wanted}")
            require(_number_and_due(found[0][1]) == wanted, f"{offset} is followed by {found}, not {wanted}")
            unexplained.remove(found[0])
        for offset, begun in unexplained:
            record = self._produced[offset]
            require(record.series is not None and record.series.begins, f"{begun} follows from nothing")
            require(offset not in self._left, f"{offset} has begun its series twice")
            self._left[offset] = "begun"
            wanted = 1, record.due_us // 1_000
            require(_number_and_due(begun) == wanted, f"{offset} begins with {begun}, not {wanted}")

    def _rightly(self, record: Produced, topic: str, begun_ms: int) -> None:
        if topic == REJECTED:
            is_right = self._may_be_rejected(record) or self._may_be_refused(record)
            require(is_right, f"{record.offset} rejected, but right by all rules there were")
            return
        require(self._may_be_accepted(record), f"{record.offset} released, but wrong by all rules there were")
        target = self._target(record)
        require(topic == target, f"{record.offset} went to {topic}, not {target}")
        early_us = self._due_us(record) + self._shift_ms(record) * 1_000 - begun_ms * 1_000
        require(early_us <= 0, f"{record.offset} released {early_us} us early")

    def _may_be_accepted(self, record: Produced) -> bool:
        return any(_acceptable(record, rules) for rules in self._rules_used)

    def _may_be_rejected(self, record: Produced) -> bool:
        if not all(_acceptable(record, rules) for rules in self._rules_used):
            return True
        # An attempt goes where the rules of its offset say, and other rules may hold when it is due.
        target, are_counted = self._target(record), any(rules.retry is not None for rules in self._rules_used)
        return are_counted and not all(target in _targets_by(rules) for rules in self._rules_used)

    def _may_be_refused(self, record: Produced) -> bool:
        """Say whether brokers have refused the record at some time, or would have."""
        target = self._target(record)
        return target in self._refusing.were_gone or self._refusing.is_too_large(target, _whole(record))

    def _is_rightly_shortened(self, left: Left, record: Produced) -> bool:
        """Say whether a rejected record lacks parts only, names each of them, and is too large with all of them."""
        written, whole = left.record, _whole(record)
        if written is None or left.rejection is None or not self._refusing.is_too_large(REJECTED, whole):
            return False
        gone = {
            "key": written.key is None and whole.key is not None,
            "value": written.value is None,
            "headers": not written.headers,
        }
        filled = Record(
            whole.key if gone["key"] else written.key,
            whole.value if gone["value"] else written.value,
            whole.headers if gone["headers"] else written.headers,
            written.timestamp_ms,
        )
        said = left.rejection.message
        return _is_of(filled, record) and all(
            f"refused its {part}" in said for part, is_gone in gone.items() if is_gone
        )

    def _note_waits(self, transaction: Transaction) -> None:
        """Note the delay and the spreads in the state topic, and the offset from which each epoch of them holds."""
        for key, value in transaction.state:
            if key == RULES_KEY and value is not None:
                epochs = state_pb2.RuleHistory.FromString(unwrap(Kind.RULES, value)).epochs
                told = [(epoch.from_offset, Waits.of(epoch.rules)) for epoch in epochs]
                self._waits = [each for each in self._waits if each[0] < told[0][0]] + told

    def _waits_at(self, offset: int) -> Waits:
        return next(waits for start, waits in reversed(self._waits) if start <= offset)

    def _due_us(self, record: Produced) -> int:
        waits = self._waits_at(record.offset)
        if waits.retry is None:
            return _due_by(record, waits.delay_ms)
        due_us = _due_by_attempt(record, waits.retry)
        if record.due_us or not record.legible or not due_us:
            return due_us
        most_ms = (due_us // 1_000 - record.timestamp_ms) * waits.retry.jitter // 1_000
        return due_us - record.offset * _PLASTIC % 2**64 * most_ms // 2**64 * 1_000

    def _target(self, record: Produced) -> str:
        waits = self._waits_at(record.offset)
        return _target_of(record, waits.retry, waits.allowed)

    def _shift_ms(self, record: Produced) -> int:
        """Return the time between due time and release: by offset and target, or 0 for a record that was past when
        written.
        """
        due_us, waits = self._due_us(record), self._waits_at(record.offset)
        if not due_us or -(-due_us // 1_000) <= record.timestamp_ms:
            return 0
        span_ms = waits.spreads_ms.get(self._target(record), waits.spread_ms)
        return record.offset * _GOLDEN % 2**64 * span_ms // 2**64

    def _place(self, record: Produced) -> Place:
        return -(-self._due_us(record) // 1_000) + self._shift_ms(record), record.offset

    def _no_number_moves_back(self, before: Numbers) -> None:
        now = self._numbers
        require(now.sealed_to <= now.cursor, f"S beyond C: {now}")
        moved_back = {
            "C": now.cursor < before.cursor,
            "W": now.watermark < before.watermark,
            "S": now.sealed_to < before.sealed_to,
        }
        for name, is_back in moved_back.items():
            require(not is_back, f"{name} moved back: {before} to {now}")

    def _numbers_after(self, transaction: Transaction) -> Numbers:
        for key, value in transaction.state:
            if key == PROGRESS_KEY and value is not None:
                stored = state_pb2.Progress.FromString(unwrap(kind_of(value), value))
                return Numbers(stored.cursor, (stored.watermark_due_ms, stored.watermark_offset), stored.sealed_to)
        return self._numbers


def _next_of(record: Produced, now_ms: int) -> tuple[int, int] | None:
    """Return number and due time of the next occurrence, found period by period, or None after the last one."""
    series = record.series
    assert series is not None
    if series.begins or series.number >= series.times:
        return None
    due_ms = before_ms = record.due_us // 1_000
    from_ms = record.missed_from_ms if series.takes_all else max(record.missed_from_ms, now_ms)
    while due_ms == before_ms or due_ms < from_ms:
        # A moved occurrence by cron is followed by the next minute, regardless of its own due time.
        due_ms += series.period_ms - (due_ms % MINUTE_MS if series.period_ms == MINUTE_MS else 0)
    return (series.number + 1, due_ms) if due_ms <= series.until_ms else None


def _number_and_due(record: Produced) -> tuple[int, int]:
    assert record.series is not None, "a series that nobody has begun"
    return record.series.number, record.due_us // 1_000


def _whole(record: Produced) -> Record:
    return Record(record.key, record.value, record.headers, record.timestamp_ms)


def _is_of(written: Record, record: Produced) -> bool:
    if record.unreadable_to is not None:
        return (written.key, written.value, list(written.headers)) == (None, None, [])
    wanted = (record.key, record.value, list(record.headers), record.timestamp_ms)
    return (written.key, written.value, list(written.headers), written.timestamp_ms) == wanted


def _acceptable(record: Produced, rules: Rules) -> bool:
    """Say whether a record is valid by one set of rules, without a call of the shipped decision."""
    if record.named is not None and record.named.action in ("cancel", "cancel-where"):
        return record.legible
    if rules.retry is not None:
        return _acceptable_attempt(record, rules, rules.retry)
    is_moving = record.named is not None and record.named.action == "move"
    delay_us = _due_by(record, rules.delay_ms) - record.timestamp_ms * 1_000
    short_enough = not rules.max_delay_ms or delay_us <= rules.max_delay_ms * 1_000
    allowed = is_moving or record.target == rules.default_target or record.target in rules.allowed_targets
    return record.legible and not record.attempts_most and short_enough and allowed


def _targets_by(rules: Rules) -> set[str]:
    dead_letter = [] if rules.retry is None else [rules.retry.dead_letter]
    return {rules.default_target, *rules.allowed_targets, *dead_letter}


def _acceptable_attempt(record: Produced, rules: Rules, retry: Retry) -> bool:
    attempt = _attempt_of(record, retry)
    if attempt is None or record.attempts_made < 0 or record.unreadable_to is not None:
        return False
    if attempt[1]:
        return True
    delay_us = _due_by_attempt(record, retry) - record.timestamp_ms * 1_000
    short_enough = not rules.max_delay_ms or delay_us <= rules.max_delay_ms * 1_000
    target = _target_of(record, retry, frozenset(rules.allowed_targets))
    return record.legible and short_enough and (target == rules.default_target or target in rules.allowed_targets)


def _attempt_of(record: Produced, retry: Retry | None) -> tuple[int, bool] | None:
    """Return the number of the attempt, and whether none is left; None where attempts are not counted."""
    if retry is None:
        return None
    is_exhausted = record.attempts_made >= (record.attempts_most or retry.attempts)
    return (record.attempts_made, True) if is_exhausted else (record.attempts_made + 1, False)


def _target_of(record: Produced, retry: Retry | None, allowed: Collection[str]) -> str:
    attempt = _attempt_of(record, retry)
    if retry is None or attempt is None:
        return record.target
    if attempt[1]:
        return retry.dead_letter
    return record.came_from if record.target == DEFAULT_TARGET and record.came_from in allowed else record.target


def _due_by_attempt(record: Produced, retry: Retry) -> int:
    """Return the due time of a record in us, with the whole wait of its attempt if it names no time."""
    attempt = _attempt_of(record, retry)
    if attempt is None or attempt[1]:
        return 0
    if record.due_us or not record.legible:
        return record.due_us
    exact = Fraction(retry.first_ms) * Fraction(retry.factor, 1_000) ** (attempt[0] - 1)
    return (record.timestamp_ms + min(ceil(exact), retry.max_ms)) * 1_000


def _due_by(record: Produced, delay_ms: int) -> int:
    """Return the due time of a record in us, with this delay for a record that names no time."""
    waits = delay_ms and record.legible and not record.due_us
    return (record.timestamp_ms + delay_ms) * 1_000 if waits else record.due_us
