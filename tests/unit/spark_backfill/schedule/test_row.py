"""Rows of a table of schedules: decisions, digests and partitions, without Spark."""

import pytest

from index.protocol.partitioner import partition_of_key
from index.rules.rules import Rules
from spark_backfill.schedule.row import (
    MALFORMED,
    InputRow,
    RowRules,
    deliver_id,
    digest_of,
    parse_headers,
    partition_of,
)

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000
DUE = str(NOW_MS + DAY_MS)
GOOD = InputRow(DUE, "orders", b"k", b"v", [("a", b"1")])
RULES = Rules("d", "fallback", ("orders", "billing.*"), max_delay_ms=7 * DAY_MS)


_RULES = RowRules(RULES, "job", 3, 1_000, NOW_MS)


def test_a_good_row_has_its_control_headers_first() -> None:
    decision = _RULES.decide(GOOD)
    assert (decision.reason, decision.past, decision.targets) == ("", False, ("orders",))
    assert decision.headers == [("deliver-at", DUE.encode()), ("deliver-to", b"orders"), ("a", b"1")]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (GOOD._replace(due=None), MALFORMED),
        (GOOD._replace(damage='x,"'), MALFORMED),
        (GOOD._replace(headers="{"), MALFORMED),
        (GOOD._replace(headers='{"a": 1}'), MALFORMED),
        (GOOD._replace(headers='["a"]'), MALFORMED),
        (GOOD._replace(headers='{"a": "\\ud800"}'), MALFORMED),
        (GOOD._replace(headers="[" * 100_000), MALFORMED),
        (GOOD._replace(due="soon"), "INVALID_SCHEDULE"),
        (GOOD._replace(due="2030-01-31T08:00:00"), "INVALID_SCHEDULE"),
        (GOOD._replace(due=str(NOW_MS // 1000)), "UNIT_SUSPECTED"),
        (GOOD._replace(due=str(NOW_MS + 7 * DAY_MS + 1)), "MAX_DELAY_EXCEEDED"),
        (GOOD._replace(target="elsewhere"), "TARGET_NOT_ALLOWED"),
        (GOOD._replace(target="d"), "TARGET_NOT_ALLOWED"),
        (GOOD._replace(target=""), "TARGET_NOT_ALLOWED"),
        (GOOD._replace(headers=[("deliver-at", b"1")]), "AMBIGUOUS_HEADER"),
        (GOOD._replace(headers=[("deliver-id", b"mine")]), "AMBIGUOUS_HEADER"),
        (GOOD._replace(headers=[("deliver-to", b"orders")]), "AMBIGUOUS_HEADER"),
        (GOOD._replace(value=b"v" * 1_000), "RECORD_TOO_LARGE"),
    ],
)
def test_what_is_wrong_with_a_row_is_named(row: InputRow, reason: str) -> None:
    decision = _RULES.decide(row)
    assert decision.reason == reason
    assert decision.message


def test_the_longest_delay_still_goes_and_no_target_is_the_default() -> None:
    assert _RULES.decide(GOOD._replace(due=str(NOW_MS + 7 * DAY_MS))).reason == ""
    assert _RULES.decide(GOOD._replace(target=None)).targets == ("fallback",)
    assert _RULES._replace(rules=Rules("d")).decide(GOOD._replace(target=None)).reason == "TARGET_MISSING"


@pytest.mark.parametrize(("due_ms", "past"), [(NOW_MS - 1, True), (NOW_MS, True), (NOW_MS + 1, False), (0, True)])
def test_past_due(due_ms: int, past: bool) -> None:
    decision = _RULES.decide(GOOD._replace(due=str(due_ms)))
    assert (decision.reason, decision.past) == ("", past)


def test_a_digest_tells_every_part_apart() -> None:
    rows = [
        GOOD,
        GOOD._replace(due=f"{DUE}0"),
        GOOD._replace(target=None),
        GOOD._replace(target=""),
        GOOD._replace(key=None),
        GOOD._replace(key=b""),
        GOOD._replace(key=b"v", value=b"k"),
        GOOD._replace(value=None),
        GOOD._replace(headers=None),
        GOOD._replace(headers=[("a", None)]),
        GOOD._replace(headers=[("a", b"")]),
        GOOD._replace(headers=[("a", b"1"), ("a", b"1")]),
        GOOD._replace(headers='{"a":"1"}'),
        GOOD._replace(row_id="1"),
        GOOD._replace(row_id="2"),
        GOOD._replace(damage=""),
    ]
    assert len({digest_of(row) for row in rows}) == len(rows)
    assert digest_of(GOOD) == digest_of(InputRow(*GOOD))


def test_equal_rows_are_told_apart_by_their_number() -> None:
    digest = bytes(16)
    assert deliver_id("job", digest, 0) == b"job/" + b"0" * 32
    assert deliver_id("job", digest, 2) == b"job/" + b"0" * 32 + b"/2"
    assert len(deliver_id("j" * 64, digest, 10**12)) <= 256


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (None, []),
        ("", []),
        ("{}", []),
        ('{"b": "1", "a": null, "b": ""}', [("b", b"1"), ("a", None), ("b", b"")]),
        ('[["b", "1"], ["a", "\\u00e9"]]', [("b", b"1"), ("a", "é".encode())]),
        ([("a", b"1")], [("a", b"1")]),
    ],
)
def test_headers(text: str | None, pairs: list[tuple[str, bytes | None]]) -> None:
    assert parse_headers(text) == pairs


def test_rows_without_a_key_are_spread_and_stay_where_they_are() -> None:
    digests = [digest_of(GOOD._replace(key=None, row_id=str(number))) for number in range(300)]
    placed = [partition_of(None, digest, 3) for digest in digests]
    assert min(placed.count(partition) for partition in range(3)) > 50
    assert placed == [partition_of(None, digest, 3) for digest in digests]
    assert partition_of(b"", digests[0], 3) == partition_of_key(b"", 3)
