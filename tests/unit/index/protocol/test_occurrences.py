"""The due time of the next occurrence, against a model that looks at every minute; and forged occurrences."""

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from index.protocol.headers import Headers
from index.protocol.occurrences import (
    COUNTED_AT_MOST,
    NOBODY_ASKED,
    Following,
    check_cron,
    first_match_ms,
    following,
    is_ours,
    missed_from_ms,
    record_of,
    shortest_period_ms,
    upcoming,
)
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, Recurrence, recurrence_of

MINUTE_MS: Final = 60_000
DAY_MS: Final = 1_440 * MINUTE_MS
KEY: Final = b"k" * 16

CHANGES: Final = [
    # Clocks are set forward and back: at 2 and 3 in the morning, at midnight, and by only half an hour.
    ("Europe/Berlin", datetime(2026, 3, 29, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 6, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2018, 11, 4, 3, tzinfo=UTC)),
    ("America/Sao_Paulo", datetime(2019, 2, 17, 2, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2027, 4, 3, 15, tzinfo=UTC)),
]


def told(cron: str, zone: str, from_: str) -> str:
    rules = ZoneInfo(zone)
    found = first_match_ms(cron, rules, ms_of(datetime.fromisoformat(from_)))
    assert found is not None
    return datetime.fromtimestamp(found / 1_000, rules).isoformat(timespec="minutes")


def ms_of(instant: datetime) -> int:
    return round(instant.timestamp() * 1_000)


@pytest.mark.parametrize(
    ("cron", "zone", "from_", "expected"),
    [
        # The gap: 02:30 does not exist; the occurrence is due once, when the gap ends.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T00:00+01:00", "2026-03-29T03:00+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-03-29T03:01+02:00", "2026-03-30T02:30+02:00"),
        ("*/20 2 * * *", "Europe/Berlin", "2026-03-29T03:00:00.001+02:00", "2026-03-30T02:00+02:00"),
        # The overlap: 02:30 exists twice; the occurrence is due the first time.
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T00:00+02:00", "2026-10-25T02:30+02:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:31+02:00", "2026-10-26T02:30+01:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25T02:10+01:00", "2026-10-26T02:30+01:00"),
        ("*/30 * * * *", "Europe/Berlin", "2026-10-25T02:31+02:00", "2026-10-25T03:00+01:00"),
        ("30 2 * * *", "America/New_York", "2026-03-08T00:00-05:00", "2026-03-08T03:00-04:00"),
        ("30 1 * * *", "America/New_York", "2026-11-01T01:31-04:00", "2026-11-02T01:30-05:00"),
        # A zone that changes at midnight: one day has no midnight, and on another day the hour before it comes twice.
        ("0 0 * * *", "America/Sao_Paulo", "2018-11-03T12:00-03:00", "2018-11-04T01:00-02:00"),
        ("30 23 * * *", "America/Sao_Paulo", "2019-02-16T23:31-02:00", "2019-02-17T23:30-03:00"),
        ("0 0 * * *", "America/Sao_Paulo", "2019-02-16T23:31-02:00", "2019-02-17T00:00-03:00"),
        # A whole day that does not exist.
        ("0 9 30 12 *", "Pacific/Apia", "2011-12-29T12:00-10:00", "2011-12-31T00:00+14:00"),
        # A zone that never changes. The instant itself counts.
        ("30 2 * * *", "Asia/Kolkata", "2026-03-29T02:30+05:30", "2026-03-29T02:30+05:30"),
        ("0 12 * * MON-FRI", "UTC", "2026-11-20T12:00:00.001+00:00", "2026-11-23T12:00+00:00"),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00+00:00", "2028-02-29T00:00+00:00"),
    ],
)
def test_where_clocks_change(cron: str, zone: str, from_: str, expected: str) -> None:
    assert told(cron, zone, from_) == expected


def _minutes(zone: ZoneInfo, around: datetime) -> list[tuple[int, datetime]]:
    """Return every minute of three days, with the local time at that minute."""
    first = around - timedelta(days=1)
    instants = [first + timedelta(minutes=minute) for minute in range(3 * 1_440)]
    return [(ms_of(instant), instant.astimezone(zone).replace(tzinfo=None)) for instant in instants]


def _modelled(minutes: set[int], hours: set[int], shown: list[tuple[int, datetime]]) -> list[int]:
    """Return the instants at which local times first come; skipped local times count at the end of the gap."""
    found: list[int] = []
    seen: set[datetime] = set()
    latest = shown[0][1] - timedelta(minutes=1)
    for at_ms, local in shown:
        passed = [latest + timedelta(minutes=n) for n in range(1, (local - latest) // timedelta(minutes=1) + 1)] or [
            local
        ]
        fresh = [each for each in passed if each not in seen]
        seen.update(fresh)
        if any(each.minute in minutes and each.hour in hours for each in fresh):
            found.append(at_ms)
        latest = max(latest, local)
    return found


some_minutes = st.sets(st.integers(0, 59), min_size=1, max_size=4)
some_hours = st.one_of(st.sets(st.integers(0, 4), min_size=1, max_size=3), st.just(set(range(24))))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(CHANGES), some_minutes, some_hours, st.integers(0, 3 * DAY_MS))
def test_each_minute_by_itself_says_the_same(
    change: tuple[str, datetime], minutes: set[int], hours: set[int], after_ms: int
) -> None:
    name, around = change
    zone = ZoneInfo(name)
    shown = _minutes(zone, around)
    expected = [due_ms for due_ms in _modelled(minutes, hours, shown) if due_ms >= shown[0][0] + after_ms]
    cron = f"{','.join(map(str, sorted(minutes)))} {','.join(map(str, sorted(hours)))} * * *"
    found, from_ms = [], shown[0][0] + after_ms
    while (due_ms := first_match_ms(cron, zone, from_ms)) is not None and due_ms <= shown[-1][0]:
        found.append(due_ms)
        from_ms = due_ms + 1
    assert found == expected


@given(
    st.integers(1, 50), st.integers(0, 300), st.integers(0, 300), st.integers(0, 400), st.booleans(), st.integers(1, 3)
)
def test_periods_are_counted_one_by_one(
    period_ms: int, due_ms: int, missed_ms: int, now_ms: int, takes_all: bool, number: int
) -> None:
    recurrence = Recurrence(period_ms=period_ms, takes_all=takes_all, until_ms=500, times=3)
    found = following(recurrence, UTC, Occurrence(1, number, due_ms), missed_ms, now_ms)
    candidates, skipped = due_ms + period_ms, 0
    while candidates < max(missed_ms, 0 if takes_all else now_ms):
        candidates, skipped = candidates + period_ms, skipped + 1
    expected = None if number == 3 or candidates > 500 else Following(candidates, skipped)
    assert found == expected


def test_what_was_missed_by_cron_is_counted_up_to_a_bound() -> None:
    each_minute = Recurrence(cron="* * * * *")
    last = Occurrence(1, 2, 0)
    assert following(each_minute, UTC, last, 0, 0) == Following(MINUTE_MS, 0)
    assert following(each_minute, UTC, last, 0, 5 * MINUTE_MS) == Following(5 * MINUTE_MS, 4)
    assert following(each_minute._replace(takes_all=True), UTC, last, 0, 5 * MINUTE_MS) == Following(MINUTE_MS, 0)
    late = following(each_minute, UTC, last, 0, 365 * DAY_MS)
    assert late == Following(365 * DAY_MS, COUNTED_AT_MOST)


def test_a_series_ends_where_calendars_do() -> None:
    assert first_match_ms("0 0 1 1 *", UTC, ms_of(datetime(9999, 6, 1, tzinfo=UTC))) is None
    assert first_match_ms("0 0 1 1 *", UTC, 2**63 - 1) is None
    assert following(Recurrence(period_ms=2**62), UTC, Occurrence(1, 1, 2**62), 0, 0) is None


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "0 0 31 2 *",
        "a b c d e",
        "@daily",
        "* * * * 8",
        "1,,2 * * * *",
        "*/0 * * * *",
        "5-1 * * * *",
        "* * * * 1#2/3",
        "* * * * 1#9",
    ],
)
def test_what_are_no_cron_fields(cron: str) -> None:
    with pytest.raises(ValueError, match=r"cron fields|five fields"):
        check_cron(cron)


@given(st.text("0123456789*,-/#LWMONJAFEB ", min_size=9, max_size=30))
def test_whatever_is_taken_for_cron_fields_can_be_searched(cron: str) -> None:
    try:
        check_cron(cron)
    except ValueError:
        return
    assert shortest_period_ms(cron) >= MINUTE_MS
    first_match_ms(cron, UTC, 0)


@pytest.mark.parametrize(
    ("cron", "minutes"),
    [("* * * * *", 1), ("*/15 * * * *", 15), ("0 8,20 * * *", 720), ("59,1 0,23 1 1 *", 2), ("0 0 * * *", 1_440)],
)
def test_the_shortest_period(cron: str, minutes: int) -> None:
    assert shortest_period_ms(cron) == minutes * MINUTE_MS


FIRST = Record(b"k", None, [("a", b""), ("deliver-every", b"1s"), ("a", None)], 5)


def _recurrence(record: Record) -> Recurrence:
    found = recurrence_of(record.headers)
    assert isinstance(found, Recurrence)
    return found


@pytest.mark.parametrize(
    "recurrence",
    [
        Recurrence(period_ms=7 * MINUTE_MS),
        Recurrence(cron="*/20 2-4 * * *", zone="Europe/Berlin"),
        Recurrence(cron="0 9 * * 1-5", zone="Europe/Berlin", times=4),
        Recurrence(period_ms=DAY_MS, until_ms=1_774_656_000_000 + 2 * DAY_MS),
    ],
)
def test_what_is_foreseen_is_what_follows_one_after_the_other(recurrence: Recurrence) -> None:
    zone = ZoneInfo(recurrence.zone)
    # The day before clocks are set forward.
    due_ms = 1_774_656_000_000
    expected: list[int] = []
    number = 2
    while len(expected) < 5:
        expected.append(due_ms)
        last = Occurrence(7, number, due_ms)
        found = following(recurrence, zone, last, due_ms, due_ms)
        if found is None:
            break
        number, due_ms = number + 1, found.due_ms
    occurrence = Occurrence(7, 2, 1_774_656_000_000)
    assert upcoming(recurrence._replace(occurrence=occurrence), zone, occurrence.due_ms, 5) == expected
    assert upcoming(recurrence._replace(occurrence=occurrence), zone, occurrence.due_ms, 0) == []


def test_what_only_begins_is_foreseen_from_its_first_match_on() -> None:
    daily = Recurrence(cron="0 0 * * *", times=2)
    assert upcoming(daily, UTC, DAY_MS + 1, 5) == [2 * DAY_MS, 3 * DAY_MS]
    assert upcoming(daily._replace(until_ms=DAY_MS), UTC, DAY_MS + 1, 5) == []


def test_the_next_one_is_the_same_record_with_two_headers_more() -> None:
    second = record_of(FIRST, Occurrence(7, 2, 2_000), "d/0/7", KEY, now_ms=9)
    assert second[:2] == FIRST[:2]
    assert list(second.headers[:-2]) == FIRST.headers
    assert second.headers[-2] == ("delay-source", b"d/0/7")
    assert second.timestamp_ms == 9
    third = record_of(second, Occurrence(7, 3, 3_000), "d/0/9", KEY, now_ms=10)
    assert len(third.headers) == len(second.headers)
    assert third.headers[-2] == ("delay-source", b"d/0/9")
    assert _recurrence(third).occurrence == Occurrence(7, 3, 3_000)
    assert is_ours(second, _recurrence(second), KEY)
    assert is_ours(third._replace(timestamp_ms=77), _recurrence(third), KEY)


def test_what_was_due_before_somebody_asked_for_an_occurrence_was_not_missed() -> None:
    assert missed_from_ms(FIRST, _recurrence(FIRST)) == FIRST.timestamp_ms
    asked = record_of(FIRST, Occurrence(7, 1, 2_000), "d/0/7", KEY, 9, asked_ms=6)
    assert is_ours(asked, _recurrence(asked), KEY)
    assert missed_from_ms(asked, _recurrence(asked)) == 6
    second = record_of(asked, Occurrence(7, 2, 3_000), "d/0/8", KEY, 10)
    assert missed_from_ms(second, _recurrence(second)) == NOBODY_ASKED
    assert all(name != "delay-source-timestamp" for name, _ in second.headers)
    moved = record_of(second, Occurrence(7, 2, 4_000), "d/0/11", KEY, 30, asked_ms=12)
    assert missed_from_ms(moved, _recurrence(moved)) == 12


def _altered() -> list[Record]:
    second = record_of(FIRST, Occurrence(7, 2, 2_000), "d/0/7", KEY, now_ms=9)
    *headers, (name, series) = second.headers
    assert series is not None
    changed: list[Headers] = [
        [*headers, (name, series.replace(b"7 2 ", b"7 1 "))],
        [*headers, (name, series.replace(b"7 2 ", b"8 2 "))],
        [*headers, (name, series.replace(b" 2000 ", b" 2001 "))],
        [("b", b""), *second.headers[1:]],
        [("a", None), *second.headers[1:]],
        [*second.headers, ("x", b"")],
        [*headers[:-1], ("delay-source", b"d/0/8"), (name, series)],
        [*headers, ("delay-source-timestamp", b"1"), (name, series)],
        [("a", b""), ("a", None), ("deliver-every", b"1s"), (name, series)],
    ]
    return [
        second._replace(key=None),
        second._replace(key=b""),
        second._replace(value=b""),
        second._replace(key=b"k;-"),
        *(second._replace(headers=each) for each in changed),
    ]


@pytest.mark.parametrize("altered", _altered())
def test_nothing_of_it_can_be_changed(altered: Record) -> None:
    assert not is_ours(altered, _recurrence(altered), KEY)


def test_another_key_or_none_signs_nothing() -> None:
    second = record_of(FIRST, Occurrence(7, 2, 2_000), "d/0/7", KEY, now_ms=9)
    assert not is_ours(second, _recurrence(second), b"l" * 16)
    assert not is_ours(second, _recurrence(second), b"")
    assert not is_ours(FIRST, _recurrence(FIRST), KEY)
