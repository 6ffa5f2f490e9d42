"""Bursts: records due at one instant leave evenly over the span after it, where their targets have a ``spread_ms``.

::

    requested   09:00:00 | all 100,000
    leave       09:00:00 |  .  .  .  .  .  .  .  .  .  .  .  .  | 09:00:30     never before, always less than 30 s after

The time at which a record leaves must replay: it is part of its place (due, offset), by which everything is sorted,
sealed and compared with W. So the shift is computed where a record is decided, from its offset and the rules of its
epoch alone, and waiting entries have only the shifted time. ``Schedule.due_ms`` is the shifted time, and
``Schedule.shift_ms`` the part of it that the record did not ask for. The two times are used as follows:

==========================================  ========================================================================
time                                        used for
==========================================  ========================================================================
shifted (``Schedule.due_ms``)               order, W, buckets, lists, ``deliver-expire-after``, lateness
requested (``Schedule.asked_ms``)           ``delay-due``, the maximum delay, ``deliver-if-due``, receipts, the due time
                                            of the next occurrence of a series, ``deliver-until``
==========================================  ========================================================================

A released record has both: ``delay-due``, and ``delay-spread`` where the shift is not 0. A record that names no time,
or a time that had passed when it was written, leaves at once, as without a spread. With several targets the largest
spread counts.

Each multiple of the golden ratio modulo 1 falls into the largest gap that the earlier ones have left: any run of
consecutive offsets is even, of 100,000 as of 10, and no state has to be kept.

Rejected: a hash of the record: it is only as even as dice, some milliseconds get three times their share, two equal
records leave together, and it costs a pass over the payload. Rejected: a place in line for each due time: it depends on
the other pending records, which no replay knows. Rejected: spreading at release, as a rate limit does: W would pass
records that have not left, or the order would not be (due, offset). Rejected: keeping the requested time in segments:
their records are decided again by the rules of their epoch when they are loaded, which gives both times.
"""

from typing import Final

from index.protocol.schedule import AT_ONCE, Schedule
from index.protocol.times import INT64_MAX

MAX_SPREAD_MS: Final = 86_400_000
"""A day: no longer span would count as the same instant."""

_GOLDEN: Final = 0x9E37_79B9_7F4A_7C15
"""2**64 divided by the golden ratio, odd."""

_FRACTION: Final = (1 << 64) - 1


def shift_ms(offset: int, spread_ms: int) -> int:
    """Return how much later than requested the record at an offset leaves: from 0 to below ``spread_ms``.

    >>> [shift_ms(offset, 30_000) for offset in range(5)]
    [0, 18541, 7082, 25623, 14164]
    """
    return (offset * _GOLDEN & _FRACTION) * spread_ms >> 64


def spread(schedule: Schedule, spread_ms: int, timestamp_ms: int, offset: int) -> Schedule:
    """Return the schedule of the record at an offset, shifted within ``spread_ms``.

    >>> from index.rules.rules import Rules
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
