"""The headers of a recurring schedule: their meaning, the first due time, and the reasons for rejection."""

import pytest

from index.protocol.headers import Headers
from index.protocol.recurring import Occurrence, Recurrence, recurrence_of, series_header
from index.protocol.schedule import AT_ONCE, Reason, Rejection, Schedule
from index.protocol.times import INT64_MAX
from index.rules.rules import Rules

RULES = Rules("d", default_target="out", recurring=True)
NOW_MS = 1_800_000_000_000
SIGNATURE = bytes(range(16))


def due_of(*headers: tuple[str, bytes | None], timestamp_ms: int = NOW_MS, rules: Rules = RULES) -> int:
    decision = rules.decide(headers, timestamp_ms)
    assert isinstance(decision, Schedule), decision
    return decision.due_ms


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([("deliver-every", b"PT10S")], NOW_MS + 10_000),
        ([("Deliver-Every", b"10s"), ("deliver-until", None)], NOW_MS + 10_000),
        ([("deliver-every", b"10s"), ("deliver-after", b"1000")], NOW_MS + 1_000),
        ([("deliver-every", b"10s"), ("deliver-at", b"1800000000007"), ("deliver-after", b"1")], NOW_MS + 7),
        ([("deliver-every", b"10s"), ("deliver-until", b"1800000010000")], NOW_MS + 10_000),
        ([("deliver-cron", b"0 8 * * *"), ("deliver-timezone", b"Europe/Berlin")], AT_ONCE),
        ([("deliver-cron", b"whatever is wrong with it, is said when it begins")], AT_ONCE),
        ([("deliver-every", b"1s"), series_header(Occurrence(7, 2, NOW_MS + 5), SIGNATURE)], NOW_MS + 5),
        ([("deliver-every", None), ("deliver-times", None)], AT_ONCE),
    ],
)
def test_when_it_is_due_first(headers: Headers, due_ms: int) -> None:
    assert due_of(*headers) == due_ms


@pytest.mark.parametrize(
    ("headers", "reason", "message"),
    [
        ([("deliver-every", b"1s"), ("deliver-cron", b"* * * * *")], Reason.AMBIGUOUS_HEADER, "recurs by one of them"),
        ([("deliver-every", b"1s"), ("DELIVER-EVERY", b"2s")], Reason.AMBIGUOUS_HEADER, "more than once"),
        ([("deliver-times", b"3")], Reason.INVALID_SCHEDULE, "needs deliver-every or deliver-cron"),
        ([("deliver-every", b"1s"), ("deliver-timezone", b"UTC")], Reason.INVALID_SCHEDULE, "needs deliver-cron"),
        ([("deliver-every", b"soon")], Reason.INVALID_SCHEDULE, "deliver-every 'soon': expected milliseconds"),
        ([("deliver-every", b"0")], Reason.INVALID_SCHEDULE, "longer than nothing"),
        ([("deliver-every", b"999")], Reason.INVALID_SCHEDULE, "min_period of this delay topic, 1000 ms"),
        ([("deliver-every", b"1s"), ("deliver-times", b"0")], Reason.INVALID_SCHEDULE, "at least 1"),
        ([("deliver-every", b"1s"), ("deliver-missed", b"some")], Reason.INVALID_SCHEDULE, "'one' or 'all'"),
        ([("deliver-every", b"1s"), ("deliver-until", b"1800000000")], Reason.UNIT_SUSPECTED, "looks like seconds"),
        ([("deliver-every", b"1s"), ("deliver-until", b"1800000000001")], Reason.INVALID_SCHEDULE, "is due later"),
        ([("deliver-cron", b"")], Reason.INVALID_SCHEDULE, "1 to 256 ASCII characters"),
        ([("deliver-cron", b"*" * 257)], Reason.INVALID_SCHEDULE, "1 to 256 ASCII characters"),
        ([("deliver-cron", "ü * * * *".encode())], Reason.INVALID_SCHEDULE, "1 to 256 ASCII characters"),
        ([("deliver-every", b"1s"), ("deliver-series", b"1 2 3 zz")], Reason.INVALID_SCHEDULE, "by routers alone"),
        ([("deliver-every", b"1s"), ("deliver-series", b"1 2")], Reason.INVALID_SCHEDULE, "by routers alone"),
        ([("deliver-every", b"1s"), ("deliver-series", b"1 0 3 " + b"0" * 32)], Reason.INVALID_SCHEDULE, "by routers"),
        ([series_header(Occurrence(1, 1, 1), SIGNATURE)], Reason.INVALID_SCHEDULE, "needs deliver-every"),
    ],
)
def test_what_is_rejected(headers: Headers, reason: Reason, message: str) -> None:
    decision = RULES.decide(headers, NOW_MS)
    assert isinstance(decision, Rejection)
    assert decision.reason == reason
    assert message in decision.message


@pytest.mark.parametrize("name", ["deliver-every", "deliver-cron", "Deliver-Times", "deliver-missed"])
def test_where_it_is_off_the_key_that_allows_it_is_named(name: str) -> None:
    for rules in (Rules("d", default_target="out"), Rules("d", default_target="out", ignores_unknown=True)):
        decision = rules.decide([(name, b"1s")], NOW_MS)
        assert isinstance(decision, Rejection)
        assert decision.reason == Reason.INVALID_SCHEDULE
        assert "recurring = true" in decision.message


def test_a_record_without_timestamp_has_nothing_to_count_from() -> None:
    decision = RULES.decide([("deliver-every", b"1s")], -1)
    assert isinstance(decision, Rejection)
    assert "no timestamp" in decision.message
    assert due_of(("deliver-every", b"1s"), ("deliver-at", b"1800000000000"), timestamp_ms=-1) == NOW_MS


def test_the_maximum_delay_holds_for_each_occurrence() -> None:
    rules = Rules("d", default_target="out", recurring=True, max_delay_ms=5_000)
    assert due_of(("deliver-every", b"5s"), rules=rules) == NOW_MS + 5_000
    for headers in (
        [("deliver-every", b"6s")],
        [("deliver-every", b"1s"), series_header(Occurrence(1, 9, NOW_MS + 5_001), SIGNATURE)],
    ):
        decision = rules.decide(headers, NOW_MS)
        assert isinstance(decision, Rejection)
        assert decision.reason == Reason.MAX_DELAY_EXCEEDED


def test_it_waits_even_where_all_else_leaves_at_once() -> None:
    at_once = Rules("d", default_target="out", recurring=True, at_once=True)
    assert due_of(("deliver-at", b"1800000000007"), rules=at_once) == AT_ONCE
    assert due_of(("deliver-every", b"10s"), rules=at_once) == NOW_MS + 10_000


def test_a_period_is_a_time_where_one_is_required() -> None:
    rules = Rules("d", default_target="out", recurring=True, require_time=True)
    assert due_of(("deliver-every", b"10s"), rules=rules) == NOW_MS + 10_000
    assert due_of(("deliver-cron", b"* * * * *"), rules=rules) == AT_ONCE


def test_how_it_recurs_says_when() -> None:
    assert RULES.names_time([("deliver-cron", b"* * * * *")])
    assert not RULES.names_time([("deliver-cron", None), ("trace", b"1")])


def test_where_it_starts() -> None:
    assert RULES.start_ms([("deliver-at", b"1800000000007"), ("deliver-after", b"9")], NOW_MS) == NOW_MS + 7
    assert RULES.start_ms([("x", b"y"), ("deliver-after", b"PT1S")], NOW_MS) == NOW_MS + 1_000
    assert RULES.start_ms([("deliver-to", b"out")], NOW_MS) == NOW_MS


def test_what_a_router_writes_is_read_back() -> None:
    occurrence = Occurrence(41_027, 3, INT64_MAX)
    found = recurrence_of([("deliver-every", b"1s"), series_header(occurrence, SIGNATURE)])
    assert found == Recurrence(period_ms=1_000, occurrence=occurrence, signature=SIGNATURE)
    assert not found.begins
