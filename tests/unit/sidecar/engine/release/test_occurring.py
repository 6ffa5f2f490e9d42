"""Recurring schedules by their records alone: series that begin, occurrences that leave, and the ones that follow."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import pytest

from index.named.transit import NO_ID
from index.pending.pending import Entry
from index.protocol.headers import Headers
from index.protocol.moving import moved_occurrence
from index.protocol.occurrences import record_of
from index.protocol.record import Record
from index.protocol.recurring import Occurrence, Recurrence, recurrence_of
from index.protocol.schedule import Reason, Rejection, Schedule
from index.rules.rules import Rules
from sidecar.engine.payload.records import Appended, Refused, Scheduled, scheduled
from sidecar.engine.release.occurring import FORGED, Recurring, Series
from sidecar.zones import zone_of

KEY: Final = b"k" * 16
RULES: Final = Rules("d", default_target="out", recurring=True)
NOW_MS: Final = 1_800_000_000_000
SERIES: Final = Series(KEY, "d/3/", zone_of)


def entry(headers: Headers, offset: int = 7, timestamp_ms: int = NOW_MS - 5_000) -> Entry[Scheduled]:
    return entry_of(Record(b"k", b"v", headers, timestamp_ms), offset)


def spread(entry: Entry[Scheduled], shift_ms: int) -> Entry[Scheduled]:
    due_ms, offset, payload = entry
    schedule = payload.schedule._replace(due_ms=due_ms + shift_ms, shift_ms=shift_ms)
    return due_ms + shift_ms, offset, payload._replace(schedule=schedule)


def entry_of(record: Record, offset: int) -> Entry[Scheduled]:
    schedule = RULES.decide(record.headers, record.timestamp_ms)
    assert isinstance(schedule, Schedule), schedule
    return schedule.due_ms, offset, scheduled(schedule, 1, record)


def look(
    *released: Entry[Scheduled],
    rejected: Sequence[tuple[int, Refused]] = (),
    series: Series = SERIES,
    rules: Rules = RULES,
) -> Recurring:
    return series.look(released, rejected, released, lambda _: rules, NOW_MS)


def occurrence_in(record: Record) -> Occurrence | None:
    found = recurrence_of(record.headers)
    assert isinstance(found, Recurrence)
    return found.occurrence


def test_in_a_burst_the_next_one_is_counted_from_when_it_was_due_and_none_is_missed_meanwhile() -> None:
    first = spread(entry([("deliver-every", b"2s")]), 3_000)
    found = look(first)
    assert found.occurrences == {7: Occurrence(7, 1, NOW_MS - 3_000)}
    assert occurrence_in(found.next[7]) == Occurrence(7, 2, NOW_MS - 1_000)
    assert found.skipped_before(found.appended([7])) == 0
    # With a spread of only 500 ms, the occurrence leaves 2.5 s late.
    later = look(spread(entry([("deliver-every", b"2s")]), 500))
    assert occurrence_in(later.next[7]) == Occurrence(7, 2, NOW_MS + 1_000)
    assert later.skipped_before(later.appended([7])) == 1


def test_an_occurrence_is_followed_by_the_next() -> None:
    first = entry([("deliver-every", b"2s")])
    found = look(first)
    assert found.occurrences == {7: Occurrence(7, 1, NOW_MS - 3_000)}
    assert occurrence_in(found.next[7]) == Occurrence(7, 2, NOW_MS + 1_000)
    assert found.next[7].timestamp_ms == NOW_MS
    assert found.appended([7]) == [Appended(7, found.next[7], NOW_MS + 1_000, NO_ID)]
    assert found.skipped_before(found.appended([7])) == 1
    assert found.appended([8]) == []

    again = look(entry_of(found.next[7], 30))
    assert again.occurrences == {30: Occurrence(7, 2, NOW_MS + 1_000)}
    assert occurrence_in(again.next[30]) == Occurrence(7, 3, NOW_MS + 3_000)


def test_the_last_one_is_followed_by_nothing() -> None:
    found = look(entry([("deliver-every", b"2s"), ("deliver-times", b"1")]))
    assert found.occurrences == {7: Occurrence(7, 1, NOW_MS - 3_000)}
    assert found.appended([7]) == []


def test_what_does_not_recur_is_passed_over() -> None:
    plain = entry([("deliver-at", b"1800000000000"), ("x", b"y")])
    assert look(plain) == Recurring()
    # By the rules of old, nobody looked at such headers.
    assert look(entry([("deliver-every", b"2s")]), rules=Rules("d", version=2)) == Recurring()


def test_one_that_its_target_refuses_is_followed_too_and_what_was_never_accepted_is_not() -> None:
    planned = entry([("deliver-every", b"2s")])
    record = planned[2].record
    assert record is not None
    refused = Refused(Rejection(Reason.TARGET_UNKNOWN, "gone"), record)
    found = SERIES.look([], [(7, refused), (8, refused)], [planned], lambda _: RULES, NOW_MS)
    assert [each.offset for each in found.appended([7, 8])] == [7]
    assert found.occurrences.keys() == {7}


def test_a_series_by_cron_begins_with_an_occurrence_of_its_own() -> None:
    beginning = entry([("deliver-cron", b"30 8 * * *"), ("deliver-timezone", b"Europe/Berlin")])
    found = look(beginning)
    due_ms = round(datetime(2027, 1, 15, 7, 30, tzinfo=UTC).timestamp() * 1_000)
    if due_ms < NOW_MS:
        due_ms += 86_400_000
    assert occurrence_in(found.begun[7]) == Occurrence(7, 1, due_ms)
    assert found.occurrences == {}
    assert found.appended([]) == [Appended(7, found.begun[7], due_ms, NO_ID)]

    first = look(entry_of(found.begun[7], 30))
    assert first.occurrences == {30: Occurrence(7, 1, due_ms)}
    assert occurrence_in(first.next[30]) == Occurrence(7, 2, due_ms + 86_400_000)


def _dues_ms(entry: Entry[Scheduled], count: int) -> list[int]:
    """Return the due times of this occurrence and of the following ones, each released at once by a router that was
    away.
    """
    dues_ms, offset = [], entry[1]
    for _ in range(count):
        found = look(entry)
        told = found.occurrences[offset]
        dues_ms.append(told.due_ms)
        entry, offset = entry_of(found.next[offset], offset + 1), offset + 1
    return dues_ms


ALL_MISSED: Final = ("deliver-missed", b"all")


def test_no_minute_is_skipped_of_a_series_by_cron_that_a_router_reads_late() -> None:
    """The series recurs every minute, is sent while no router runs, and is read 130 seconds later."""
    minute_ms = NOW_MS - NOW_MS % 60_000
    sent = entry([("deliver-cron", b"* * * * *"), ALL_MISSED], timestamp_ms=minute_ms - 130_000)
    first = entry_of(look(sent).begun[7], 30)
    assert _dues_ms(first, 4) == [minute_ms - 120_000, minute_ms - 60_000, minute_ms, minute_ms + 60_000]
    # The series began at the requested time. No occurrence between that and its sending was asked for.
    earlier = ("deliver-at", b"%d" % (minute_ms - 300_000))
    sent = entry([("deliver-cron", b"* * * * *"), ALL_MISSED, earlier], timestamp_ms=minute_ms - 130_000)
    first = entry_of(look(sent).begun[7], 30)
    assert _dues_ms(first, 3) == [minute_ms - 300_000, minute_ms - 120_000, minute_ms - 60_000]


@pytest.mark.parametrize("number", [1, 3])
def test_nothing_is_skipped_of_a_series_that_was_moved_while_no_router_ran(number: int) -> None:
    """The series recurs every two seconds. The control moves it to 15 seconds after the control was written, and is
    read 139 seconds after it was written.
    """
    record = Record(b"k", b"v", [("deliver-every", b"2000"), ALL_MISSED], NOW_MS - 150_000)
    if number > 1:
        record = record_of(record, Occurrence(3, number, NOW_MS - 140_000), "d/3/4", KEY, NOW_MS - 142_000)
    recurrence = recurrence_of(record.headers)
    assert isinstance(recurrence, Recurrence)
    control_ms = NOW_MS - 139_000
    for due_ms, expected_ms in (
        (control_ms + 15_000, [control_ms + 15_000, control_ms + 17_000, control_ms + 19_000]),
        # Moved to a time that had passed: no occurrence between that time and the control counts as missed.
        (control_ms - 60_500, [control_ms - 60_500, control_ms + 1_500, control_ms + 3_500]),
    ):
        moved = moved_occurrence(record, recurrence, 3, "d/3/9", due_ms, KEY, NOW_MS, control_ms)
        assert _dues_ms(entry_of(moved, 20), 3) == expected_ms


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([("deliver-cron", b"61 * * * *")], "deliver-cron '61 * * * *': no cron fields: Bad minute"),
        ([("deliver-cron", b"* * * *")], "expected five fields"),
        ([("deliver-cron", b"* * * * *"), ("deliver-timezone", b"Europe/Atlantis")], "no such time zone"),
        ([("deliver-cron", b"* * * * *"), ("deliver-timezone", b"../../etc/passwd")], "no such time zone"),
        ([("deliver-cron", b"0 0 1 1 *"), ("deliver-until", b"1800000000001")], "is due later"),
        ([("deliver-cron", b"* * * * *"), ("deliver-at", b"9999-12-31T23:59:59Z")], "there is no such minute"),
    ],
)
def test_what_cannot_begin_is_rejected(headers: Headers, message: str) -> None:
    found = look(entry(headers))
    assert found.refused[7].reason == Reason.INVALID_SCHEDULE
    assert message in found.refused[7].message
    assert found.appended([7]) == []


def test_cron_may_not_run_more_often_than_allowed() -> None:
    slow = Rules("d", default_target="out", recurring=True, min_period_ms=600_000)
    refused = look(entry([("deliver-cron", b"*/5 * * * *")]), rules=slow).refused
    assert "300000 ms apart, and min_period of this delay topic is 600000 ms" in refused[7].message
    assert look(entry([("deliver-cron", b"*/10 * * * *")]), rules=slow).begun.keys() == {7}


def test_what_no_router_has_written_is_rejected_and_not_followed() -> None:
    forged = record_of(
        Record(b"k", b"v", [("deliver-every", b"2s")], 1), Occurrence(3, 2, NOW_MS), "d/3/3", b"x" * 16, NOW_MS
    )
    found = look(entry_of(forged, 9))
    assert found.refused == {9: FORGED}
    assert found.appended([9]) == []
    assert found.occurrences == {}


def test_what_the_delay_topic_refuses_ends_a_series_and_is_told() -> None:
    begins = entry([("deliver-cron", b"* * * * *")], offset=5)
    goes_on = entry([("deliver-every", b"2s")], offset=6)
    found = look(begins, goes_on)
    why = Rejection(Reason.RECORD_TOO_LARGE, "too large")
    record = begins[2].record
    assert record is not None
    assert found.ended({5: why, 6: why}) == [(5, Refused(why, record))]
    assert found.appended([5, 6]) == []


@pytest.mark.parametrize("name", ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"])
def test_zones_that_there_are(name: str) -> None:
    assert datetime(2026, 1, 1, tzinfo=zone_of(name)).utcoffset() is not None


@pytest.mark.parametrize(
    "name", ["", "Nowhere", "Europe", "europe/berlin/x/y", "../UTC", "/etc/localtime", "tzdata.zi", "zone.tab"]
)
def test_zones_that_there_are_not(name: str) -> None:
    with pytest.raises(ValueError, match="no such time zone"):
        zone_of(name)
