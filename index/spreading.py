"""Bursts: records due at one instant leave evenly over the span behind it, where their targets have a ``spread_ms``.

::

    asked for   09:00:00 | all 100,000
    leave       09:00:00 |  .  .  .  .  .  .  .  .  .  .  .  .  | 09:00:30     never before, always less than 30 s after

When a record leaves must replay: it is part of its place (due, offset), by which everything is sorted, sealed and
compared with W. So the shift is worked out where a record is decided, from its offset and the rules of its epoch alone,
and what waits knows nothing but the shifted time. ``Schedule.due_ms`` is that one, ``Schedule.shift_ms`` says how much
of it nobody asked for. What goes by which:

==========================================  ========================================================================
when it leaves                              order, W, buckets, lists, ``deliver-expire-after``, lateness
what was asked for (``Schedule.asked_ms``)  ``delay-due``, the maximum delay, ``deliver-if-due``, receipts, when the
                                            next occurrence of a series is due, ``deliver-until``
==========================================  ========================================================================

A released record says both: ``delay-due``, and ``delay-spread`` where that is not all. What names no time, or one that
had passed when it was written, leaves at once, as without a spread. With several targets the largest spread counts.

The multiples of the golden ratio modulo 1 fall into the largest gap that those before have left: any run of consecutive
offsets is even, of 100,000 as of 10, and no state has to be kept.

Rejected: a hash of the record: even only as dice are, some milliseconds get three times their share, two that are alike
leave together, and to read it costs a pass over the payload. Rejected: a place in line for each due time: it depends on
what else is pending, which no replay knows. Rejected: spreading at release, as a rate does: W would pass what has not
left, or order would not be (due, offset). Rejected: keeping what was asked for in segments: what they hold is decided
again by the rules of its epoch when it is loaded, which tells both.
"""

from typing import Final

from index.schedule import AT_ONCE, Schedule
from index.times import INT64_MAX

MAX_SPREAD_MS: Final = 86_400_000
"""A day: behind that nobody would call it the same instant."""

_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio, odd."""

_FRACTION: Final = (1 << 64) - 1


def shift_ms(offset: int, spread_ms: int) -> int:
    """How much later than asked for the record at an offset leaves: 0 to below ``spread_ms``.

    >>> [shift_ms(offset, 30_000) for offset in range(5)]
    [0, 18541, 7082, 25623, 14164]
    """
    return (offset * _GOLDEN & _FRACTION) * spread_ms >> 64


def spread(schedule: Schedule, spread_ms: int, timestamp_ms: int, offset: int) -> Schedule:
    """The schedule of the record at an offset, shifted within ``spread_ms``.

    >>> from index.rules import Rules
    >>> asked = Rules("d", default_target="t").decide([("deliver-at", b"1800000000000")], 1_700_000_000_000)
    >>> found = spread(asked, 30_000, 1_700_000_000_000, offset=1)
    >>> found.due_ms, found.shift_ms, found.asked_ms
    (1800000018541, 18541, 1800000000000)
    """
    due_ms = schedule.due_ms
    if due_ms == AT_ONCE or due_ms <= timestamp_ms:
        return schedule
    shifted_ms = min(due_ms + shift_ms(offset, spread_ms), INT64_MAX)
    return schedule._replace(due_ms=shifted_ms, shift_ms=shifted_ms - due_ms)
