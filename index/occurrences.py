"""The next occurrence of a recurring schedule: when it is due, and the record that stands for it.

It is a record of the delay topic like any other, written by the transaction that releases the one before: the same key,
value and headers, and these headers last::

    delay-source             b"orders.delay/0/51344"          the place of the record that it follows
    delay-source-timestamp   b"1767225541000"                 see below
    deliver-series           b"41027 3 1767225600000 8f0c…"   the series, its number, its due time and a signature

``delay-source-timestamp`` is there where a producer has asked for this very occurrence: the occurrence begins a series
by cron, or a control has moved it. The header is then the timestamp of the record that the producer has sent. An
occurrence counts as missed only if it fell due after that. The timestamp of the occurrence's own record does not tell
that: a router that was away when the producer sent writes that record long after.

``deliver-series`` by itself would let any producer claim to be the third occurrence of a series of somebody else's. So
the router signs it and the whole record with a key that is in the progress of the partition (``Progress.series_key``),
and looks at that when the record is due. Whoever may both read and write the delay topic can copy such a record as it
is, and by that have an occurrence twice, as he can with any record; he cannot change anything of it.

A local time that does not exist, since clocks are set forward, runs at the first instant after the gap; one that
exists twice runs once, the first time. Cron libraries differ in that (cronsim goes by Debian's cron, where it depends
on whether there is a star in the hours), so they are asked for local times only, and what a time zone makes of these is
worked out here. The rules of the zone are an argument, as is the time.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from cronsim import CronSim, CronSimError

from index.control_headers import IF_DUE, REPLACE
from index.headers import DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP, SERIES, lowered
from index.record import Record
from index.recurring import SIGNATURE_BYTES, Occurrence, Recurrence, series_header
from index.times import INT64_MAX

COUNTED_AT_MOST: Final = 1_000
"""Of missed occurrences by cron, which are counted one by one; of periods there is no limit."""

_SEARCHED_AT_MOST: Final = 10_000
"""Minutes that are looked at for one that comes once more: clocks were never set back by more than a day."""

_FIELDS: Final = 5
NOBODY_ASKED: Final = -1
"""In place of a timestamp, for an occurrence that only follows the one before."""

_OF_ONE: Final = frozenset((SERIES, REPLACE, IF_DUE, DELAY_SOURCE, DELAY_SOURCE_TIMESTAMP))
_SHAPE: Final = re.compile(r"[0-9A-Za-z*,/#-]+(?:[ \t]+[0-9A-Za-z*,/#-]+){4}")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DAY_MINUTES: Final = 1_440
_MINUTE_MS: Final = 60_000


class Following(NamedTuple):
    """When the next occurrence is due, and how many were missed and are skipped before it."""

    due_ms: int
    skipped: int


def check_cron(cron: str) -> None:
    """ValueError, saying what is wrong, when these are not five cron fields."""
    if not _SHAPE.fullmatch(cron):
        raise ValueError("expected five fields: minute, hour, day of month, month, day of week")
    try:
        CronSim(cron, _EPOCH)
    except (CronSimError, AssertionError, TypeError) as error:
        raise ValueError(f"no cron fields: {str(error) or 'they contradict each other'}") from None


def shortest_period_ms(cron: str) -> int:
    """The least time between two minutes of the day at which it runs, as if it ran on every day."""
    fields = CronSim(cron, _EPOCH)
    minutes = sorted(hour * 60 + minute for hour in fields.hours for minute in fields.minutes)
    return min(two - one for one, two in zip(minutes, [*minutes[1:], minutes[0] + _DAY_MINUTES])) * _MINUTE_MS  # noqa: B905


def first_match_ms(cron: str, zone: tzinfo, from_ms: int) -> int | None:
    """The first instant from this one on at which the cron fields say so; None when there is none any more.

    >>> from datetime import timezone
    >>> first_match_ms("30 8 * * *", timezone.utc, 0)
    30600000
    """
    return next(_matches(cron, zone, from_ms), None)


def missed_from_ms(record: Record, recurrence: Recurrence) -> int:
    """Return the instant from which on occurrences after this one count as missed; the record must be known for ours.

    A producer can only miss an occurrence that fell due after the producer had asked for the series, or had moved it.
    """
    if recurrence.occurrence is None:
        return record.timestamp_ms
    name, raw = record.headers[-2]
    if name == DELAY_SOURCE_TIMESTAMP and raw is not None:
        return int(raw)
    return NOBODY_ASKED


def following(recurrence: Recurrence, zone: tzinfo, last: Occurrence, missed_ms: int, now_ms: int) -> Following | None:
    """Return when the occurrence after ``last`` is due, which is released now; None when there is none.

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


def record_of(
    record: Record, occurrence: Occurrence, source: str, key: bytes, now_ms: int, asked_ms: int = NOBODY_ASKED
) -> Record:
    """Return the record that stands for an occurrence, made from that of the one before, or of the beginning.

    Only the first occurrence replaces the schedules that the producer's record replaces. ``source`` is the place of the
    record that the occurrence is written for, and ``asked_ms`` its timestamp where a producer has asked for this one.
    """
    headers = [header for header in record.headers if lowered(header[0]) not in _OF_ONE]
    headers.append((DELAY_SOURCE, source.encode()))
    if asked_ms >= 0:
        headers.append((DELAY_SOURCE_TIMESTAMP, b"%d" % asked_ms))
    signature = _signature(record._replace(headers=headers), occurrence, key)
    return Record(record.key, record.value, [*headers, series_header(occurrence, signature)], now_ms)


def is_ours(record: Record, recurrence: Recurrence, key: bytes) -> bool:
    """Whether a router with this key has written the record as it is."""
    headers = [header for header in record.headers if lowered(header[0]) != SERIES]
    occurrence = recurrence.occurrence
    if occurrence is None or not key:
        return False
    return _signature(record._replace(headers=headers), occurrence, key) == recurrence.signature


def _signature(record: Record, occurrence: Occurrence, key: bytes) -> bytes:
    """Of all that a record is but its timestamp, which the broker may set."""
    signing = blake2b(b"%d %d %d" % occurrence, digest_size=SIGNATURE_BYTES, key=key)
    parts = [record.key, record.value]
    for name, raw in record.headers:
        parts += name.encode("utf-8", "surrogatepass"), raw
    for part in parts:
        # With its length, so that nothing can be moved from one to the next; null is not empty.
        signing.update(b";-" if part is None else b";%d:%b" % (len(part), part))
    return signing.digest()


def _matches_between(cron: str, zone: tzinfo, last_ms: int, before_ms: int) -> int:
    if before_ms <= last_ms + 1:
        return 0
    matches = islice(_matches(cron, zone, last_ms + 1), COUNTED_AT_MOST)
    return sum(1 for due_ms in matches if due_ms < before_ms)


def _matches(cron: str, zone: tzinfo, from_ms: int) -> Iterator[int]:
    """Instants from this one on, none twice, as far as calendars go."""
    last_ms = from_ms - 1
    try:
        local = (_EPOCH + last_ms * _MS).astimezone(zone).replace(tzinfo=None, fold=0)
        searched = 0
        for minute in CronSim(cron, local):
            due_ms = _instant_ms(minute, zone)
            # In a gap several run at one instant, and where clocks were set back the first time has passed.
            if due_ms > last_ms:
                yield due_ms
                last_ms, searched = due_ms, 0
            searched += 1
            if searched > _SEARCHED_AT_MOST:
                return
    except (OverflowError, ValueError):
        # Beyond the year 9999 there is nothing.
        return


def _instant_ms(local: datetime, zone: tzinfo) -> int:
    """The instant of a local time: the first of two, and where there is none the first one after the gap."""
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) != local:
        instant = _end_of_gap(local, zone)
    return (instant - _EPOCH) // _MS


def _end_of_gap(local: datetime, zone: tzinfo) -> datetime:
    """When clocks were set forward over a local time: found between what it would be by the old and the new offset."""
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
