"""The next occurrence of a recurring schedule: its due time, and the record that stands for it.

It is a record of the delay topic like any other, written by the transaction that releases the occurrence before. It has
the same key, value and headers, followed by these headers::

    delay-source             b"orders.delay/0/51344"          the place of the record that it follows
    delay-source-timestamp   b"1767225541000"                 see below
    deliver-series           b"41027 3 1767225600000 8f0c…"   the series, its number, its due time and a signature

``delay-source-timestamp`` is present where a producer has asked for this very occurrence: the occurrence begins a
series by cron, or a control has moved it. The header is then the timestamp of the record that the producer has sent. An
occurrence counts as missed only if it fell due after that time. The timestamp of the occurrence's own record cannot
serve for this: a router that was away when the producer sent its record writes the occurrence long after.

``deliver-series`` by itself would let any producer claim to be the third occurrence of another producer's series. So
the router signs it and the whole record with a key in the progress of the partition (``Progress.series_key``), and
checks the signature when the record is due. A user who may both read and write the delay topic can copy such a record,
and have an occurrence twice by that, as with any record; he cannot change anything in it.

A local time that clocks skip when they are set forward runs at the first instant after the gap; a local time that
exists twice runs once, the first time. Cron libraries differ here (cronsim follows Debian's cron, where it depends on a
star in the hours). So the library computes local times only, and this module turns them into instants of the time zone.
The rules of the zone are an argument, as is the time.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from index.protocol.control_headers import IF_DUE, REPLACE
from index.protocol.headers import DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP, SERIES, lowered
from index.protocol.record import Record
from index.protocol.recurring import SIGNATURE_BYTES, Occurrence, Recurrence, series_header
from index.protocol.times import INT64_MAX

COUNTED_AT_MOST: Final = 1_000
"""Most missed occurrences by cron that are counted, because they are counted one by one; periods have no limit."""

_SEARCHED_AT_MOST: Final = 10_000
"""Most minutes to search for one that is later than the last: clocks were never set back by more than a day."""

_FIELDS: Final = 5
NOBODY_ASKED: Final = -1
"""Replaces a timestamp, for an occurrence that only follows the one before."""

_OF_ONE: Final = frozenset((SERIES, REPLACE, IF_DUE, DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP))
_SHAPE: Final = re.compile(r"[0-9A-Za-z*,/#-]+(?:[ \t]+[0-9A-Za-z*,/#-]+){4}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DAY_MINUTES: Final = 1_440
_MINUTE_MS: Final = 60_000


class Following(NamedTuple):
    """The due time of the next occurrence, and how many missed ones are skipped before it."""

    due_ms: int
    skipped: int


def check_cron(cron: str) -> None:
    """Raise ValueError with the fault unless the text is five cron fields."""
    if not _SHAPE.fullmatch(cron):
        raise ValueError("expected five fields: minute, hour, day of month, month, day of week")
    try:
        CronSim(cron, _EPOCH)
    except (CronSimError, AssertionError, TypeError) as error:
        raise ValueError(f"no cron fields: {str(error) or 'they contradict each other'}") from None


def shortest_period_ms(cron: str) -> int:
    """Return the least time between two matching minutes of the day, as if the fields matched on every day."""
    fields = CronSim(cron, _EPOCH)
    minutes = sorted(hour * 60 + minute for hour in fields.hours for minute in fields.minutes)
    return min(two - one for one, two in zip(minutes, [*minutes[1:], minutes[0] + _DAY_MINUTES])) * _MINUTE_MS  # noqa: B905


def first_match_ms(cron: str, zone: tzinfo, from_ms: int) -> int | None:
    """Return the first instant from ``from_ms`` on that the cron fields match; None when there is none any more.

    >>> from datetime import timezone
    >>> first_match_ms("30 8 * * *", timezone.utc, 0)
    30600000
    """
    return next(_matches(cron, zone, from_ms), None)


def missed_from_ms(record: Record, recurrence: Recurrence) -> int:
    """Return the instant from which on later occurrences count as missed; the signature of the record must be valid.

    A producer can only miss an occurrence that fell due after the producer had asked for the series, or had moved it.
    """
    if recurrence.occurrence is None:
        return record.timestamp_ms
    name, raw = record.headers[-2]
    if name == DELAY_SOURCE_TIMESTAMP and raw is not None:
        return int(raw)
    return NOBODY_ASKED


def following(recurrence: Recurrence, zone: tzinfo, last: Occurrence, missed_ms: int, now_ms: int) -> Following | None:
    """Return when the occurrence after ``last``, which is released now, is due; None when there is none.

    Occurrences that fell due before ``missed_ms`` were not missed, see :func:`missed_from_ms`.
    """
    if last.number >= recurrence.times:
        return None
    since_ms = max(last.due_ms + 1, missed_ms)
    if not recurrence.takes_all:
        since_ms = max(since_ms, now_ms)
    if recurrence.period_ms:
        periods = -(-(since_ms - last.due_ms) // recurrence.period_ms)
        found = Following(last.due_ms + periods * recurrence.period_ms, periods - 1)
    else:
        due_ms = first_match_ms(recurrence.cron, zone, since_ms)
        if due_ms is None:
            return None
        found = Following(due_ms, _matches_between(recurrence.cron, zone, last.due_ms, since_ms))
    return found if found.due_ms <= min(recurrence.until_ms, INT64_MAX) else None


def upcoming(recurrence: Recurrence, zone: tzinfo, due_ms: int, most: int) -> list[int]:
    """Return when this occurrence, due at ``due_ms``, and the ones after it are due, ``most`` of them.

    They are foreseen by the present rules of the zone, and as if none was missed.

    >>> from datetime import timezone
    >>> upcoming(Recurrence(cron="0 8 * * *", times=2), timezone.utc, 0, 5)
    [28800000, 115200000]
    """
    number = 1 if recurrence.occurrence is None else recurrence.occurrence.number
    left = min(most, recurrence.times - number + 1)
    next_ms = first_match_ms(recurrence.cron, zone, due_ms) if recurrence.begins else due_ms
    found: list[int] = []
    while next_ms is not None and next_ms <= recurrence.until_ms and len(found) < left:
        found.append(next_ms)
        period_ms = recurrence.period_ms
        next_ms = next_ms + period_ms if period_ms else first_match_ms(recurrence.cron, zone, next_ms + 1)
    return found


def record_of(
    record: Record, occurrence: Occurrence, source: str, key: bytes, now_ms: int, asked_ms: int = NOBODY_ASKED
) -> Record:
    """Return the record that stands for an occurrence, made from the record before it in the series.

    Only the first occurrence replaces the schedules that the producer's record replaces. ``source`` is the place of the
    record that the occurrence is written for. ``asked_ms`` is its timestamp where a producer has asked for this
    occurrence.
    """
    headers = [header for header in record.headers if lowered(header[0]) not in _OF_ONE]
    headers.append((DELAY_SOURCE, source.encode()))
    if asked_ms >= 0:
        headers.append((DELAY_SOURCE_TIMESTAMP, b"%d" % asked_ms))
    signature = _signature(record._replace(headers=headers), occurrence, key)
    return Record(record.key, record.value, [*headers, series_header(occurrence, signature)], now_ms)


def is_ours(record: Record, recurrence: Recurrence, key: bytes) -> bool:
    """Return whether a router with this key has written the record as it is."""
    headers = [header for header in record.headers if lowered(header[0]) != SERIES]
    occurrence = recurrence.occurrence
    if occurrence is None or not key:
        return False
    return _signature(record._replace(headers=headers), occurrence, key) == recurrence.signature


def _signature(record: Record, occurrence: Occurrence, key: bytes) -> bytes:
    """Sign everything in a record except its timestamp, which the broker may set."""
    signing = blake2b(b"%d %d %d" % occurrence, digest_size=SIGNATURE_BYTES, key=key)
    parts = [record.key, record.value]
    for name, raw in record.headers:
        parts += name.encode("utf-8", "surrogatepass"), raw
    for part in parts:
        # The length comes first, so that no byte can be moved from one part to the next. Null differs from empty.
        signing.update(b";-" if part is None else b";%d:%b" % (len(part), part))
    return signing.digest()


def _matches_between(cron: str, zone: tzinfo, last_ms: int, before_ms: int) -> int:
    if before_ms <= last_ms + 1:
        return 0
    matches = islice(_matches(cron, zone, last_ms + 1), COUNTED_AT_MOST)
    return sum(1 for due_ms in matches if due_ms < before_ms)


def _matches(cron: str, zone: tzinfo, from_ms: int) -> Iterator[int]:
    """Yield the matching instants from ``from_ms`` on, none twice, as far as calendars go."""
    last_ms = from_ms - 1
    try:
        local = (_EPOCH + last_ms * _MS).astimezone(zone).replace(tzinfo=None, fold=0)
        searched = 0
        for minute in CronSim(cron, local):
            due_ms = _instant_ms(minute, zone)
            # In a gap several local times run at one instant, and where clocks were set back the first time has passed.
            if due_ms > last_ms:
                yield due_ms
                last_ms, searched = due_ms, 0
            searched += 1
            if searched > _SEARCHED_AT_MOST:
                return
    except (OverflowError, ValueError):
        # Calendars end with the year 9999.
        return


def _instant_ms(local: datetime, zone: tzinfo) -> int:
    """Return the instant of a local time: the first of two, or the first one after the gap where clocks skip it."""
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) != local:
        instant = _end_of_gap(local, zone)
    return (instant - _EPOCH) // _MS


def _end_of_gap(local: datetime, zone: tzinfo) -> datetime:
    """Find the instant when clocks skipped a local time, between its instants by the new and the old offset."""
    before, after = (local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (1, 0))
    new_offset = after.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // 2
        middle = middle.replace(microsecond=0) if middle.replace(microsecond=0) > before else before + _SECOND
        if middle.astimezone(zone).utcoffset() == new_offset:
            after = middle
        else:
            before = middle
    return after
