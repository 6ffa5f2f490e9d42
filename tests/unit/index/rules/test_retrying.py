"""Retries: the ladder of waits, the count of attempts, and the dead-letter topic, against a naive reading."""

from dataclasses import replace
from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.released_headers import ReleasedHeaders, attempt_headers
from index.protocol.schedule import Action, Attempted, Control
from index.protocol.times import INT64_MAX
from index.rules.retrying import MAX_ATTEMPTS, MAX_FACTOR, Retry, wait_ms, waits_ms
from index.rules.rules import AT_ONCE, BY_KEY, Reason, Rejection, Rules, Schedule, TargetRule
from index.rules.rules_by_column import decide_alike
from index.rules.unreadable import decide

SENT_MS = 1_767_268_800_000
RETRY = Retry(1_000, 2_000, 10_000, 0, 4, "dead")
RULES = Rules("d", "out", ("a", "b"), retry=RETRY)
PLAIN = replace(RULES, retry=None)
JITTERY = replace(RULES, retry=RETRY._replace(jitter=100))


def decided(headers: Headers | None, rules: Rules = RULES, timestamp_ms: int = SENT_MS, offset: int = 0) -> Schedule:
    decision, _ = decide(rules, Record(b"k", b"v", headers or (), timestamp_ms), offset)
    assert isinstance(decision, Schedule), decision
    return decision


def refused(headers: Headers, rules: Rules = RULES, timestamp_ms: int = SENT_MS) -> Rejection:
    decision = rules.decide(headers, timestamp_ms)
    assert isinstance(decision, Rejection), decision
    return decision


def test_a_record_that_fails_again_and_again_waits_longer_each_time_and_ends_in_the_dead_letter_topic() -> None:
    headers: Headers = [("trace", b"1")]
    waits, targets, timestamp_ms = [], [], SENT_MS
    released = ReleasedHeaders(RULES.stripped, "d/0/")
    for offset in range(6):
        schedule = decided(headers, timestamp_ms=timestamp_ms)
        assert schedule.attempt is not None
        waits.append(schedule.due_ms - timestamp_ms if schedule.due_ms else 0)
        targets.append(schedule.targets)
        came = released.of(headers, schedule.due_ms, offset, timestamp_ms, None)
        headers = attempt_headers(came, schedule.attempt, schedule.targets[0])
        timestamp_ms += waits[-1]
        if schedule.attempt.exhausted:
            break
    assert waits == [1_000, 2_000, 4_000, 8_000, 0]
    assert targets == [("out",)] * 4 + [("dead",)]
    kept = {name: raw for name, raw in headers if name not in ("delay-due", "delay-source", "delay-source-timestamp")}
    assert kept == {
        "trace": b"1",
        "delay-attempt": b"4",
        "delay-target": b"out",
        "delay-attempts-exhausted": b"4",
        "delay-hops": b"1",
    }


@given(
    first_ms=st.integers(1, 10_000),
    factor=st.integers(1_000, MAX_FACTOR),
    most=st.integers(0, 100_000_000),
    number=st.integers(1, MAX_ATTEMPTS),
)
def test_the_wait_of_an_attempt_is_the_exact_power_rounded_up(
    first_ms: int, factor: int, most: int, number: int
) -> None:
    retry = Retry(first_ms, factor, first_ms + most, 0, 1, "dead")
    exact = first_ms * Fraction(factor, 1_000) ** (number - 1)
    assert wait_ms(retry, number) == min(ceil(exact), retry.max_ms)


def test_the_ladder_is_as_long_as_it_must_be() -> None:
    assert waits_ms(RETRY) == (1_000, 2_000, 4_000, 8_000, 10_000)
    assert waits_ms(RETRY._replace(factor=1_000)) == (1_000,)
    assert waits_ms(RETRY._replace(first_ms=10_000)) == (10_000,)
    slow = RETRY._replace(first_ms=1, factor=1_001, max_ms=INT64_MAX)
    assert len(waits_ms(slow)) == MAX_ATTEMPTS
    assert wait_ms(slow, MAX_ATTEMPTS) == waits_ms(slow)[-1]


@given(offset=st.integers(0, INT64_MAX), jitter=st.integers(0, 1_000), number=st.integers(0, 3))
def test_jitter_shortens_a_wait_within_its_limit_and_always_alike(offset: int, jitter: int, number: int) -> None:
    rules = replace(RULES, retry=RETRY._replace(jitter=jitter))
    headers = [("delay-attempt", b"%d" % number)]
    found, full_ms = decided(headers, rules, offset=offset), wait_ms(RETRY, number + 1)
    waited_ms = found.due_ms - SENT_MS
    assert full_ms - full_ms * jitter // 1_000 <= waited_ms <= full_ms
    assert found == decided(headers, replace(rules), offset=offset)
    assert found.asked_ms == found.due_ms, "the released record names the time at which it was to leave"


def test_the_jitter_is_that_of_the_stored_buckets() -> None:
    """A golden test: if the jitter changes, decisions on replay differ from the entries in sealed buckets."""
    shortened = [
        SENT_MS + 1_000 - decided(None, JITTERY, offset=offset).due_ms for offset in (0, 1, 2, 3, 4_711, 2**40)
    ]
    assert shortened == [0, 75, 50, 26, 22, 64]


def test_any_run_of_offsets_has_an_even_jitter() -> None:
    shortened = sorted(decided(None, JITTERY, offset=offset).due_ms for offset in range(7_000, 8_000))
    shares = [sum(SENT_MS + at <= due_ms < SENT_MS + at + 10 for due_ms in shortened) for at in range(901, 1_001, 10)]
    assert sum(shares) == 1_000
    assert all(abs(share - 100) < 15 for share in shares), shares


def test_jitter_and_spread_do_not_cancel_out() -> None:
    both = replace(JITTERY, spread_ms=100)
    assert len({decided(None, both, offset=offset).due_ms for offset in range(500)}) > 100
    for offset in range(100):
        found = decided(None, both, offset=offset)
        assert found.asked_ms == decided(None, JITTERY, offset=offset).due_ms <= found.due_ms < found.asked_ms + 100


@pytest.mark.parametrize(
    ("headers", "due_ms"),
    [
        ([("deliver-after", b"5s")], SENT_MS + 5_000),
        ([("deliver-after", b"0")], SENT_MS),
        ([("deliver-at", b"1767268900000")], 1_767_268_900_000),
        ([("deliver-at", b"0")], AT_ONCE),
        ([("Deliver-After", None)], SENT_MS + 2_000),
    ],
)
def test_a_time_of_its_own_replaces_one_wait_and_is_counted(headers: Headers, due_ms: int) -> None:
    found = decided([*headers, ("delay-attempt", b"1")], JITTERY, offset=0)
    assert found.due_ms == due_ms
    assert found.attempt is not None
    assert found.attempt.number == 2
    named = [raw for _, raw in headers if raw is not None]
    assert not named or decided([*headers, ("delay-attempt", b"1")], JITTERY, offset=1).due_ms == due_ms, "no jitter"


@pytest.mark.parametrize(
    ("headers", "targets"),
    [
        ([], ("out",)),
        ([("delay-target", b"a")], ("a",)),
        ([("Delay-Target", b"a")], ("a",)),
        ([("delay-target", b"a"), ("deliver-to", b"b")], ("b",)),
        ([("deliver-to", b"b"), ("deliver-to", b"a"), ("delay-target", b"out")], ("b", "a")),
        ([("delay-target", b"elsewhere")], ("out",)),
        ([("delay-target", b"d")], ("out",)),
        ([("delay-target", b"dead")], ("out",)),
        ([("delay-target", b"__x")], ("out",)),
        ([("delay-target", b"\xff")], ("out",)),
        ([("delay-target", b"")], ("out",)),
        ([("delay-target", None)], ("out",)),
    ],
)
def test_it_goes_where_it_says_or_where_it_came_from_or_to_the_default(
    headers: Headers, targets: tuple[str, ...]
) -> None:
    assert decided(headers).targets == targets


def test_the_dead_letter_topic_may_be_released_to_and_not_be_asked_for() -> None:
    assert RULES.allowed("dead")
    assert not PLAIN.allowed("dead")
    assert refused([("deliver-to", b"dead")]).reason == Reason.TARGET_NOT_ALLOWED
    assert decided([("deliver-to", b"dead")], replace(RULES, allowed_targets=("dead",))).targets == ("dead",)


@pytest.mark.parametrize(
    ("headers", "attempt"),
    [
        ([], Attempted(1)),
        ([("delay-attempt", b"0")], Attempted(1)),
        ([("delay-attempt", b"0003")], Attempted(4)),
        ([("delay-attempt", b"4")], Attempted(4, exhausted=True)),
        ([("delay-attempt", b"1000")], Attempted(1_000, exhausted=True)),
        ([("delay-attempt", b"4"), ("deliver-attempts-max", b"5")], Attempted(5)),
        ([("delay-attempt", b"999"), ("Deliver-Attempts-Max", b"1000")], Attempted(1_000)),
        ([("delay-attempt", b"1000"), ("deliver-attempts-max", b"1000")], Attempted(1_000, exhausted=True)),
        ([("deliver-attempts-max", b"1")], Attempted(1)),
        ([("delay-attempt", b"1"), ("deliver-attempts-max", b"1")], Attempted(1, exhausted=True)),
        ([("delay-attempts-exhausted", b"4")], Attempted(1)),
    ],
)
def test_the_attempts_of_a_record_are_counted(headers: Headers, attempt: Attempted) -> None:
    assert decided(headers).attempt == attempt


@pytest.mark.parametrize(
    ("headers", "reason", "told"),
    [
        (
            [("delay-attempt", b"1001")],
            Reason.INVALID_SCHEDULE,
            "delay-attempt '1001': expected a number from 0 to 1000",
        ),
        ([("delay-attempt", b"9" * 5_000)], Reason.INVALID_SCHEDULE, "delay-attempt '999"),
        ([("delay-attempt", b"-1")], Reason.INVALID_SCHEDULE, "expected a number"),
        ([("delay-attempt", b" 1")], Reason.INVALID_SCHEDULE, "expected a number"),
        ([("delay-attempt", b"")], Reason.INVALID_SCHEDULE, "expected a number"),
        ([("delay-attempt", None)], Reason.INVALID_SCHEDULE, "delay-attempt null"),
        ([("deliver-attempts-max", b"0")], Reason.INVALID_SCHEDULE, "expected a number from 1 to 1000"),
        ([("deliver-attempts-max", b"1001")], Reason.INVALID_SCHEDULE, "expected a number from 1 to 1000"),
        ([("delay-attempt", b"1"), ("Delay-Attempt", b"1")], Reason.AMBIGUOUS_HEADER, "given more than once"),
        ([("delay-target", b"a"), ("delay-target", b"a")], Reason.AMBIGUOUS_HEADER, "given more than once"),
        ([("deliver-attempts-max", b"1")] * 2, Reason.AMBIGUOUS_HEADER, "given more than once"),
        (
            [("delay-attempt", b"x"), ("deliver-at", b"1"), ("deliver-at", b"1")],
            Reason.AMBIGUOUS_HEADER,
            "'at' is given more than once",
        ),
        ([("delay-attempt", b"x"), ("deliver-to", b"z")], Reason.INVALID_SCHEDULE, "delay-attempt 'x'"),
        ([("deliver-every", b"1h")], Reason.INVALID_SCHEDULE, "recurring schedules are off"),
    ],
)
def test_a_count_that_no_router_writes_is_rejected(headers: Headers, reason: Reason, told: str) -> None:
    rejection = refused(headers)
    assert rejection.reason == reason
    assert told in rejection.message
    assert rejection.message.isprintable()


def test_nothing_keeps_an_exhausted_record_from_the_dead_letter_topic() -> None:
    spent = ("delay-attempt", b"4")
    headers = [
        *(spent, ("deliver-at", b"soon"), ("deliver-after", b"P1Y"), ("deliver-to", b"nowhere"), ("deliver-to", b"")),
        *(("deliver-partition", b"7"), ("deliver-expire-after", b"1"), ("deliver-key", b"own"), ("delay-target", b"x")),
    ]
    strict = replace(RULES, require_time=True, max_delay_ms=10_000)
    for rules in (RULES, strict, replace(RULES, default_target="")):
        for timestamp_ms in (SENT_MS, 0, -1):
            found = decided(headers, rules, timestamp_ms)
            assert found == (AT_ONCE, ("dead",), BY_KEY, b"own", None, False, 0, 0, Attempted(4, exhausted=True))


def test_delay_topics_that_deliver_to_each_other_come_to_an_end() -> None:
    """A loop through waits ends by the count of attempts, and one through dead-letter topics by the count of hops."""
    there, back = (
        replace(RULES, topic="d1", retry=RETRY._replace(dead_letter="d2")),
        replace(RULES, topic="d2", retry=RETRY._replace(dead_letter="d1")),
    )
    headers: Headers = []
    decision, round_trips = there.decide(headers, SENT_MS), 0
    while not isinstance(decision, Rejection):
        assert isinstance(decision, Schedule)
        assert decision.attempt is not None
        released = ReleasedHeaders(RULES.stripped, "d/0/").of(headers, decision.due_ms, 0, SENT_MS, None)
        headers = attempt_headers(released, decision.attempt, decision.targets[0])
        round_trips += 1
        decision = (there, back)[round_trips % 2].decide(headers, SENT_MS)
    assert "routers have passed this record on 16 times" in decision.message
    assert round_trips == RETRY.attempts + 16


def test_a_switched_off_target_or_topic_rejects() -> None:
    off = replace(RULES, target_rules=(TargetRule("dead", enabled=False), TargetRule("a", enabled=False)))
    assert refused([("delay-attempt", b"4")], off).reason == Reason.DELAY_DISABLED
    assert refused([("delay-target", b"a")], off).reason == Reason.DELAY_DISABLED
    assert refused([("delay-attempt", b"x")], replace(RULES, enabled=False)).reason == Reason.DELAY_DISABLED
    assert decided([("delay-attempt", b"1")], replace(JITTERY, at_once=True), offset=1)[:2] == (AT_ONCE, ("out",))


def test_the_limits_of_delays_hold() -> None:
    assert refused([("deliver-after", b"11s")], replace(RULES, max_delay_ms=10_000)).reason == Reason.MAX_DELAY_EXCEEDED
    strict = replace(RULES, target_rules=(TargetRule("a", 1_000),))
    assert decided([("delay-target", b"a")], strict).targets == ("a",)
    longer = [("delay-target", b"a"), ("delay-attempt", b"1")]
    assert refused(longer, strict).reason == Reason.MAX_DELAY_EXCEEDED
    assert "no timestamp" in refused([], timestamp_ms=-1).message


def test_a_replacement_is_counted_and_other_controls_are_not() -> None:
    spent: Headers = [("delay-attempt", b"4"), ("deliver-id", b"7")]
    replacement = RULES.decide([*spent, ("deliver-replace", b"true")], SENT_MS)
    assert replacement == Control(Action.REPLACE, b"7", schedule=decided(spent))
    for control in ([("deliver-cancel", b"7")], [("deliver-move", b"7"), ("deliver-after", b"1s")]):
        asked = RULES.decide([*control, ("delay-attempt", b"bad"), ("delay-target", b"a")], SENT_MS)
        assert asked == PLAIN.decide(control, SENT_MS)
    assert refused([("deliver-move", b"7")]).reason == Reason.INVALID_SCHEDULE, "its time is not filled in"


def test_columns_leave_it_to_each_record() -> None:
    assert decide_alike(RULES, [], [], [SENT_MS], [SENT_MS + 1_000]) is None


_values: dict[str, list[bytes | None]] = {
    "delay-attempt": [b"0", b"1", b"3", b"4", b"900", b"1001", b"x", None],
    "Delay-Attempt": [b"2"],
    "deliver-attempts-max": [b"1", b"2", b"1000", b"0", None],
    "delay-target": [b"a", b"out", b"zz", None],
    "deliver-to": [b"a", b"b", b"zz", None],
    "deliver-at": [b"1767272400000", b"0", b"soon", None],
    "deliver-after": [b"5", b"PT1H", b"", None],
    "deliver-partition": [b"1", b"x"],
    "deliver-id": [b"i"],
    "delay-hops": [b"3", b"16"],
    "delay-source": [b"d/0/1"],
    "trace": [b"t", None],
}
_headers = st.lists(
    st.sampled_from(sorted(_values)).flatmap(lambda name: st.tuples(st.just(name), st.sampled_from(_values[name]))),
    max_size=5,
)


def _naive(headers: Headers, retry: Retry) -> Headers | Reason | None:
    """Return the headers that say the same without a count of attempts; a reason, or None for an exhausted record."""
    given: dict[str, list[bytes | None]] = {}
    for name, raw in headers:
        given.setdefault(name.lower(), []).append(raw)
    if any(len(given.get(name, [])) > 1 for name in ("delay-attempt", "delay-target", "deliver-attempts-max")):
        return Reason.AMBIGUOUS_HEADER
    made, most = given.get("delay-attempt", [b"0"])[0], given.get("deliver-attempts-max", [b"%d" % retry.attempts])[0]
    if made not in (b"0", b"1", b"2", b"3", b"4", b"900") or most in (b"0", None):
        return Reason.INVALID_SCHEDULE
    number = int(made) + 1
    if number > int(most or b""):
        return None
    counted = ("delay-attempt", "delay-target", "deliver-attempts-max")
    own = [(name, raw) for name, raw in headers if name.lower() not in counted]
    if "deliver-to" not in given and given.get("delay-target", [None])[0] in (b"a", b"out"):
        own.append(("deliver-to", given["delay-target"][0]))
    if not any(raw is not None for name in ("deliver-at", "deliver-after") for raw in given.get(name, [])):
        own.append(("deliver-after", b"%d" % min(retry.first_ms * 2 ** (number - 1), retry.max_ms)))
    return own


@given(headers=_headers, attempts=st.integers(1, 5), timestamp_ms=st.sampled_from([-1, 0, SENT_MS]))
def test_decisions_are_those_of_the_naive_reading(
    headers: list[tuple[str, bytes | None]], attempts: int, timestamp_ms: int
) -> None:
    retry = RETRY._replace(attempts=attempts)
    decision = replace(RULES, retry=retry).decide(headers, timestamp_ms)
    expected = _naive(headers, retry)
    if isinstance(expected, Reason):
        assert isinstance(decision, Rejection)
        assert decision.reason in (expected, Reason.AMBIGUOUS_HEADER)
    elif expected is None:
        if isinstance(decision, Rejection):
            assert sum(name in ("deliver-id", "deliver-key", "delay-hops") for name, _ in headers) > 0, decision
        else:
            assert isinstance(decision, Schedule)
            assert decision[:3] == (AT_ONCE, ("dead",), BY_KEY)
            assert decision.attempt is not None
            assert decision.attempt.exhausted
    else:
        plain = PLAIN.decide(expected, timestamp_ms)
        assert (decision._replace(attempt=None) if isinstance(decision, Schedule) else decision) == plain


def test_headers_are_those_of_each_copy() -> None:
    came: list[tuple[str, bytes | None]] = [
        *(("delay-attempt", b"1"), ("Delay-Target", b"x"), ("delay-attempts-exhausted", b"9"), ("trace", b"7")),
        *(("Delay-Attempt", b"8"), ("delay-due", b"5"), ("delay-hops", b"1")),
    ]
    kept = [("trace", b"7"), ("delay-due", b"5")]
    assert attempt_headers(came, Attempted(2), "a") == [*kept, ("delay-attempt", b"2"), ("delay-target", b"a")]
    assert attempt_headers(came, Attempted(2), "b")[-1] == ("delay-target", b"b")
    spent = attempt_headers(came, Attempted(8, exhausted=True), "dead")
    assert spent == [*(each for each in came if each[1] != b"9"), ("delay-attempts-exhausted", b"8")]


def test_where_no_attempts_are_counted_their_headers_are_the_users() -> None:
    headers: Headers = [
        ("delay-attempt", b"x"),
        ("delay-target", None),
        ("delay-attempt", b"1"),
        ("deliver-after", b"5"),
    ]
    found = decided(headers, PLAIN)
    assert found == decided([("deliver-after", b"5")], PLAIN)
    assert found.attempt is None
    released = ReleasedHeaders(PLAIN.stripped, "d/0/").of(headers, found.due_ms, 0, SENT_MS, None)
    assert released[:3] == list(headers[:3])
    assert "its key retry makes it count them" in refused([("deliver-attempts-max", b"3")], PLAIN).message
