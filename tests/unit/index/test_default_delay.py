"""Records without a due time, under rules that have a default delay."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.headers import Headers
from index.protocol.times import INT64_MAX
from index.rules.rules import AT_ONCE, Reason, Rejection, Rules, Schedule, TargetRule

SENT_MS = 1_767_268_800_000
DELAY_MS = 300_000
RULES = Rules("retry.delay", default_target="orders", allowed_targets=("billing",), delay_ms=DELAY_MS, recurring=True)


def due(headers: Headers | None, rules: Rules = RULES, timestamp_ms: int = SENT_MS) -> int:
    decision = rules.decide(headers, timestamp_ms)
    assert isinstance(decision, Schedule), decision
    return decision.due_ms


def refused(headers: Headers | None, rules: Rules = RULES, timestamp_ms: int = SENT_MS) -> Rejection:
    decision = rules.decide(headers, timestamp_ms)
    assert isinstance(decision, Rejection), decision
    return decision


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        [("trace", b"1")],
        [("deliver-at", None)],
        [("Deliver-After", None), ("deliver-at", None)],
        [("deliver-every", None)],
        [("deliver-to", b"billing"), ("deliver-id", b"i")],
    ],
)
def test_a_record_without_a_time_is_due_that_long_after_its_timestamp(headers: Headers | None) -> None:
    assert due(headers) == SENT_MS + DELAY_MS


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([("deliver-after", b"1000")], SENT_MS + 1_000),
        ([("deliver-after", b"0")], SENT_MS),
        ([("deliver-at", b"1767268900000")], 1_767_268_900_000),
        ([("deliver-at", b"0")], AT_ONCE),
        ([("deliver-after", b"5"), ("deliver-at", None)], SENT_MS + 5),
        ([("deliver-every", b"10s")], SENT_MS + 10_000),
        ([("deliver-cron", b"* * * * *")], AT_ONCE),
    ],
)
def test_what_a_record_says_itself_counts_instead(headers: Headers, due_ms: int) -> None:
    assert due(headers) == due_ms


def test_a_time_that_cannot_be_read_is_rejected_and_not_replaced() -> None:
    assert refused([("deliver-at", b"soon")]).reason == Reason.INVALID_SCHEDULE
    assert refused([("deliver-att", b"1")]).reason == Reason.INVALID_SCHEDULE


def test_the_maximum_delay_holds_for_it() -> None:
    assert refused(None, replace(RULES, max_delay_ms=DELAY_MS - 1)).reason == Reason.MAX_DELAY_EXCEEDED
    assert due(None, replace(RULES, max_delay_ms=DELAY_MS)) == SENT_MS + DELAY_MS
    strict = replace(RULES, target_rules=(TargetRule("billing", 1_000),))
    assert refused([("deliver-to", b"billing")], strict).reason == Reason.MAX_DELAY_EXCEEDED
    assert due(None, strict) == SENT_MS + DELAY_MS


def test_it_is_counted_from_a_timestamp_and_fits_64_bits() -> None:
    assert "no timestamp" in refused(None, timestamp_ms=-1).message
    assert "is over" in refused(None, replace(RULES, delay_ms=INT64_MAX)).message


def test_no_record_is_without_a_time_then() -> None:
    strict = replace(RULES, require_time=True)
    assert due(None, strict) == SENT_MS + DELAY_MS
    assert refused(None, replace(strict, delay_ms=0)).reason == Reason.INVALID_SCHEDULE


def test_a_consumer_may_send_a_record_back_as_often_as_it_likes() -> None:
    """A record that goes round through a delay is a retry. Only a loop without a delay is refused."""
    again: Headers = [("delay-source", b"retry.delay/0/1"), ("delay-hops", b"99")]
    assert due(again) == SENT_MS + DELAY_MS
    assert refused(again, replace(RULES, delay_ms=0)).reason == Reason.INVALID_SCHEDULE
    assert refused(again, replace(RULES, at_once=True)).reason == Reason.INVALID_SCHEDULE


def test_what_leaves_at_once_does_not_wait() -> None:
    assert due(None, replace(RULES, at_once=True)) == AT_ONCE


_headers = st.lists(
    st.tuples(
        st.sampled_from(["deliver-to", "deliver-key", "deliver-id", "deliver-expire-after", "deliver-partition", "x"]),
        st.sampled_from([b"billing", b"orders", b"5", b"", None]),
    ),
    max_size=4,
)


@given(headers=_headers, delay_ms=st.integers(1, 10_000), limit_ms=st.integers(0, 10_000))
def test_it_is_as_if_the_record_had_said_so(headers: Headers, delay_ms: int, limit_ms: int) -> None:
    without = replace(RULES, delay_ms=0, max_delay_ms=limit_ms)
    said = [*headers, ("deliver-after", b"%d" % delay_ms)]
    assert replace(without, delay_ms=delay_ms).decide(headers, SENT_MS) == without.decide(said, SENT_MS)
