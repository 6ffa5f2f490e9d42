"""The record that stands for a moved schedule: the same schedule, due at another time.

It is a record of the delay topic like any other, written by the transaction that contains the receipt of the move. The
schedule is written out under the names of the protocol, so that it means the same under any aliases and defaults that
apply where it is read::

    order-no  b"7"            order-no           b"7"
    x-due     b"1767225600"   deliver-at         b"1767312000000"      the new due time
    x-id      b"7"        ──► deliver-to         b"orders"             the default target at the time of the record
                              deliver-id         b"7"
                              delay-source       b"orders.delay/0/93"  the place of the control that moved it

This ``delay-source`` is dropped on release, like every incoming one.

An occurrence of a recurring schedule keeps its number when it is moved, and is signed again
(:mod:`index.protocol.occurrences`). The occurrences after it count from its new due time.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from index.protocol.control_headers import NAMES
from index.protocol.headers import CONTROL_PREFIX, DELAY_SOURCE, HeaderRole, lowered
from index.protocol.occurrences import NOBODY_ASKED, record_of
from index.protocol.readers import is_certain
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, Recurrence
from index.protocol.schedule import BY_KEY, KEEP_KEY, NO_EXPIRY, Schedule

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_NOT_KEPT: Final = NAMES | {DELAY_SOURCE}


def moved_record(
    record: Record, schedule: Schedule, says: Callable[[str], HeaderRole | None], source: str, due_ms: int, now_ms: int
) -> Record:
    """Return the record of a moved schedule that does not recur, due at ``due_ms``.

    ``schedule`` is the decision on ``record``. ``says`` returns the role of a header by the rules that decided so.
    ``source`` is the place of the control.

    >>> from index.rules.rules import Rules
    >>> rules = Rules("orders.delay", default_target="orders")
    >>> record = Record(b"k", None, [("deliver-after", b"PT1S"), ("trace", b"1"), ("deliver-id", b"7")], 0)
    >>> schedule = rules.decide(record.headers, 0)
    >>> moved = moved_record(record, schedule, rules.controls.role, "orders.delay/0/93", due_ms=90_000, now_ms=500)
    >>> moved.headers[:4]
    [('trace', b'1'), ('deliver-at', b'90000'), ('deliver-to', b'orders'), ('deliver-id', b'7')]
    >>> moved.headers[4:]
    [('delay-source', b'orders.delay/0/93')]
    """
    kept = [
        (name, raw)
        for name, raw in record.headers
        if says(name) in (None, HeaderRole.HOPS) and lowered(name) not in _NOT_KEPT
    ]
    asked: list[tuple[HeaderRole, bytes | None]] = [_when(due_ms, now_ms)]
    asked += [(HeaderRole.TO, target.encode()) for target in schedule.targets]
    if schedule.partition != BY_KEY:
        asked.append((HeaderRole.PARTITION, b"%d" % schedule.partition))
    if schedule.key is not KEEP_KEY:
        asked.append((HeaderRole.KEY, schedule.key))
    if schedule.deliver_id is not None:
        asked.append((HeaderRole.ID, schedule.deliver_id))
    if schedule.expire_after_ms != NO_EXPIRY:
        asked.append((HeaderRole.EXPIRE, b"%d" % schedule.expire_after_ms))
    headers = [*kept, *((CONTROL_PREFIX + role, raw) for role, raw in asked), (DELAY_SOURCE, source.encode())]
    return Record(record.key, record.value, headers, now_ms)


def _when(due_ms: int, now_ms: int) -> tuple[HeaderRole, bytes]:
    """Write a due time so that its unit is certain; a time beyond all calendars is written relative to ``now_ms``."""
    if is_certain(due_ms):
        return HeaderRole.AT, b"%d" % due_ms
    try:
        return HeaderRole.AT, (_EPOCH + due_ms * _MS).isoformat(timespec="milliseconds").encode()
    except OverflowError:
        return HeaderRole.AFTER, b"%d" % (due_ms - now_ms)


def moved_occurrence(
    record: Record,
    recurrence: Recurrence,
    offset: int,
    source: str,
    due_ms: int,
    key: bytes,
    now_ms: int,
    asked_ms: int = NOBODY_ASKED,
) -> Record:
    """Return the record of the occurrence at this offset, due at ``due_ms``; ``key`` signs it.

    ``source`` is the place of the control, and ``asked_ms`` its timestamp.
    """
    occurrence = recurrence.occurrence or Occurrence(offset, 1, due_ms)
    return record_of(record, occurrence._replace(due_ms=due_ms), source, key, now_ms, asked_ms)
