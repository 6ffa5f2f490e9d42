"""Decisions about records: a schedule, or a rejection with its reason."""

from enum import Enum, StrEnum
from typing import Final, NamedTuple

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


class Schedule(NamedTuple):
    """The request in a record: due time, targets, and changes to the record.

    * ``due_ms``: when it is to leave, in epoch milliseconds, never negative; AT_ONCE without a time header.
    * ``targets``: topics, none twice, in the order of the headers; none where the record only cancels or moves others.
    * ``partition``: of every target, or BY_KEY.
    * ``key``: of the released record, null as None, or KEEP_KEY.
    * ``deliver_id``: the caller's name for this schedule, or for the schedules that it cancels or moves.
    * ``both_times``: whether a ``deliver-after`` was outranked by a ``deliver-at``.
    * ``expire_after_ms``: how late it may be released at most, 0 for no limit under any policy, or NO_EXPIRY.
    * ``shift_ms``: the part of ``due_ms`` that is the spread of its targets, see index.spreading.

    >>> from index.rules import Rules
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

    @property
    def asked_ms(self) -> int:
        """The due time that the record names."""
        return self.due_ms - self.shift_ms
