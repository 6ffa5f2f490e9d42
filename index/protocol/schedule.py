"""Decisions about records: a schedule, a control, or a rejection with its reason."""

from enum import Enum, StrEnum
from typing import Final, NamedTuple, TypeAlias

AT_ONCE: Final = 0
"""Due time of a record without one: it is past on every clock."""

NO_EXPIRY: Final = -1
"""Lateness limit of a record that names none; policies decide then."""

BY_KEY: Final = -1
"""Partition of a record that is to be placed by its key."""


class KeepKey(Enum):
    """The type of KEEP_KEY, so that type checkers can tell it from a key."""

    KEEP_KEY = "keep"


KEEP_KEY: Final = KeepKey.KEEP_KEY
"""The released record has the key of the delayed one; a null ``deliver-key`` is None instead."""


class Reason(StrEnum):
    """The reason why a record went to the rejected topic; the value of its ``delay-error`` header."""

    MAX_DELAY_EXCEEDED = "MAX_DELAY_EXCEEDED"
    INVALID_SCHEDULE = "INVALID_SCHEDULE"
    UNIT_SUSPECTED = "UNIT_SUSPECTED"
    AMBIGUOUS_HEADER = "AMBIGUOUS_HEADER"
    TARGET_MISSING = "TARGET_MISSING"
    TARGET_NOT_ALLOWED = "TARGET_NOT_ALLOWED"
    TARGET_UNKNOWN = "TARGET_UNKNOWN"
    TARGET_DENIED = "TARGET_DENIED"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    DELAY_DISABLED = "DELAY_DISABLED"
    EXPIRED = "EXPIRED"
    UNREADABLE = "UNREADABLE"


class Rejection(NamedTuple):
    """A record that is not to be released, with a message for the readers of the rejected topic."""

    reason: Reason
    message: str


_LABELS: Final = ((1, "1"), (2, "2"), (3, "3"), (7, "4-7"))
ATTEMPT_LABELS: Final = (*(label for _, label in _LABELS), "8+")
"""Numbers of attempts as metrics show them: few, even if records claim any number."""


class Attempted(NamedTuple):
    """The count of attempts of a record, where its delay topic counts them (:mod:`index.rules.retrying`).

    * ``number``: the number of this attempt, from 1; of an exhausted record the number of its last attempt.
    * ``exhausted``: whether no attempt is left, so that the record goes to the dead-letter topic.
    * ``jitter_ms``: how much sooner it may leave than its wait says.
    """

    number: int
    exhausted: bool = False
    jitter_ms: int = 0

    @property
    def label(self) -> str:
        """The number as metrics show it.

        >>> [Attempted(number).label for number in (1, 3, 4, 7, 8, 1_000)]
        ['1', '3', '4-7', '4-7', '8+', '8+']
        """
        return next((label for most, label in _LABELS if self.number <= most), "8+")


class Schedule(NamedTuple):
    """The request in a record: due time, targets, and changes to the record.

    * ``due_ms``: when it is to leave, in epoch milliseconds, never negative; AT_ONCE without a time header.
    * ``targets``: topics, none twice, in the order of the headers.
    * ``partition``: of every target, or BY_KEY.
    * ``key``: of the released record, null as None, or KEEP_KEY.
    * ``deliver_id``: the caller's name for this schedule.
    * ``both_times``: whether a ``deliver-after`` was outranked by a ``deliver-at``.
    * ``expire_after_ms``: how late it may be released at most, 0 for no limit under any policy, or NO_EXPIRY.
    * ``shift_ms``: the part of ``due_ms`` that is the spread of its targets, see index.rules.spreading.
    * ``attempt``: the count of its attempts; None where the delay topic counts none.

    >>> from index.rules.rules import Rules
    >>> rules = Rules(topic="orders.delay", default_target="orders", max_delay_ms=3_600_000)
    >>> rules.decide([("deliver-at", b"1800000"), ("deliver-key", b"k")], timestamp_ms=0)[:4]
    (1800000, ('orders',), -1, b'k')
    >>> rules.decide([("deliver-after", b"PT2H")], timestamp_ms=0).message
    'Exceeds max allowed delivery delay of 3600000 milliseconds'
    """

    due_ms: int
    targets: tuple[str, ...]
    partition: int
    key: bytes | KeepKey | None
    deliver_id: bytes | None
    both_times: bool
    expire_after_ms: int = NO_EXPIRY
    shift_ms: int = 0
    attempt: Attempted | None = None

    @property
    def asked_ms(self) -> int:
        """The due time that the record names."""
        return self.due_ms - self.shift_ms


class Action(StrEnum):
    """The effect of a control on the pending schedules in front of it that have its id, or that match it."""

    CANCEL = "cancel"
    REPLACE = "replace"
    MOVE = "move"
    CANCEL_WHERE = "cancel-where"


class Control(NamedTuple):
    """The request in a control record, which changes other schedules; the same on every replay.

    * ``deliver_id``: the caller's name for the schedules that it changes.
    * ``if_due_ms``: it applies only to schedules due exactly then; None: to all.
    * ``due_ms``: the new due time of a schedule that it moves; None where it moves none.
    * ``schedule``: the schedule that the record itself becomes, where it replaces others; else None.
    * ``where``: the canonical form of the predicate of the schedules that it cancels; empty where it names an id
      (:mod:`index.protocol.where`).

    >>> from index.rules.rules import Rules
    >>> rules = Rules(topic="orders.delay", default_target="orders")
    >>> rules.decide([("deliver-move", b"order-7"), ("deliver-at", b"1800000000000")], timestamp_ms=0)[:4]
    (<Action.MOVE: 'move'>, b'order-7', None, 1800000000000)
    >>> replacement = rules.decide([("deliver-replace", b"true"), ("deliver-id", b"order-7")], timestamp_ms=0)
    >>> replacement.action.value, replacement.schedule.targets
    ('replace', ('orders',))
    """

    action: Action
    deliver_id: bytes
    if_due_ms: int | None = None
    due_ms: int | None = None
    schedule: Schedule | None = None
    where: bytes = b""


Decision: TypeAlias = Schedule | Control | Rejection


def due_ms_of(decision: Decision) -> int:
    """Return when a decided record is due, or the schedule that it moves; AT_ONCE where it names no time."""
    if isinstance(decision, Rejection):
        return AT_ONCE
    if isinstance(decision, Control):
        return decision.due_ms or (AT_ONCE if decision.schedule is None else decision.schedule.due_ms)
    return decision.due_ms


def schedule_of(decision: Decision) -> Schedule | None:
    """Return the schedule that a decided record becomes; None where it is rejected, or only cancels or moves others."""
    if isinstance(decision, Control):
        return decision.schedule
    return None if isinstance(decision, Rejection) else decision
