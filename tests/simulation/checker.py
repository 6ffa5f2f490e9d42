"""The verdict on a run, from what producers asked for and what the store holds; it shares no code with the index."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from index.record import Record
from index.rules import Rules
from snapshots.envelope import Kind, unwrap
from snapshots.proto import state_pb2
from snapshots.state import PROGRESS_KEY
from tests.simulation.world import REJECTED, Produced, Transaction

Place = tuple[int, int]


class Violation(AssertionError):
    """A guarantee that was broken."""


class Numbers(NamedTuple):
    """C, W and S as they lie in the state topic."""

    cursor: int
    watermark: Place
    sealed_to: int


class Checker:
    """Follows the committed transactions in order; looks at its arguments again whenever they have grown."""

    def __init__(
        self, produced: Sequence[Produced], rules_used: Sequence[Rules], committed: Sequence[Transaction]
    ) -> None:
        self._log = produced
        self._rules_used = rules_used
        self._committed = committed
        self._followed = 0
        self._produced: dict[int, Produced] = {}
        self._left: dict[int, str] = {}
        self._numbers = Numbers(0, (-1, -1), 0)

    def follow(self) -> None:
        """Violation on the first new transaction that breaks a guarantee."""
        self._produced.update((record.offset, record) for record in self._log[len(self._produced) :])
        for transaction in self._committed[self._followed :]:
            self._followed += 1
            self._one(transaction)

    def nothing_missing(self, told_lost: Collection[int] = ()) -> None:
        """Violation when a record has not left at the end of the run, unless routers have said so, and why."""
        missing = sorted(self._produced.keys() - self._left.keys() - set(told_lost))
        _require(not missing, f"lost: {missing}")

    def still_owed(self, before_offset: int) -> set[int]:
        """Offsets below this one of records that have not left."""
        return {offset for offset in self._produced if offset < before_offset} - self._left.keys()

    def _one(self, transaction: Transaction) -> None:
        before, self._numbers = self._numbers, self._numbers_after(transaction)
        self._no_number_moves_back(before)
        for offset, topic, written in transaction.left:
            record = self._produced[offset]
            _require(written is None or _is_of(written, record), f"{offset} altered: {written}, not {record}")
            _require(offset not in self._left, f"{offset} left twice, to {self._left.get(offset)} and to {topic}")
            self._left[offset] = topic
            self._rightly(record, topic, transaction.begun_ms)
        released = [_place(self._produced[offset]) for offset, topic, _ in transaction.left if topic != REJECTED]
        in_time = [place for place in released if place > before.watermark]
        _require(in_time == sorted(in_time), f"not in order: {in_time}")

    def _rightly(self, record: Produced, topic: str, begun_ms: int) -> None:
        verdicts = {_acceptable(record, rules) for rules in self._rules_used}
        if topic == REJECTED:
            _require(False in verdicts, f"{record.offset} rejected, but right by all rules there were")
            return
        _require(True in verdicts, f"{record.offset} released, but wrong by all rules there were")
        _require(topic == record.target, f"{record.offset} went to {topic}, not {record.target}")
        early_us = record.due_us - begun_ms * 1_000
        _require(early_us <= 0, f"{record.offset} released {early_us} us early")

    def _no_number_moves_back(self, before: Numbers) -> None:
        now = self._numbers
        _require(now.sealed_to <= now.cursor, f"S beyond C: {now}")
        moved_back = {
            "C": now.cursor < before.cursor,
            "W": now.watermark < before.watermark,
            "S": now.sealed_to < before.sealed_to,
        }
        for name, is_back in moved_back.items():
            _require(not is_back, f"{name} moved back: {before} to {now}")

    def _numbers_after(self, transaction: Transaction) -> Numbers:
        for key, value in transaction.state:
            if key == PROGRESS_KEY and value is not None:
                stored = state_pb2.Progress.FromString(unwrap(Kind.PROGRESS, value))
                return Numbers(stored.cursor, (stored.watermark_due_ms, stored.watermark_offset), stored.sealed_to)
        return self._numbers


def _is_of(written: Record, record: Produced) -> bool:
    wanted = (record.key, record.value, list(record.headers), record.timestamp_ms)
    return (written.key, written.value, list(written.headers), written.timestamp_ms) == wanted


def _place(record: Produced) -> Place:
    return -(-record.due_us // 1_000), record.offset


def _acceptable(record: Produced, rules: Rules) -> bool:
    """Whether a record is right by one set of rules, told without asking them to decide."""
    delay_us = record.due_us - record.timestamp_ms * 1_000
    short_enough = not rules.max_delay_ms or delay_us <= rules.max_delay_ms * 1_000
    allowed = record.target == rules.default_target or record.target in rules.allowed_targets
    return record.legible and short_enough and allowed


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Violation(otherwise)
