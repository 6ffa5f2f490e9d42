"""The decision about a record. The table of cases comes first: it is the protocol by example."""

import time
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import pytest

from index.protocol.headers import MAX_REMEMBERED, PRESETS, Alias, HeaderRole, Headers, Unit
from index.protocol.schedule import Decision
from index.protocol.times import INT64_MAX
from index.rules.rules import AT_ONCE, BY_KEY, KEEP_KEY, KeepKey, Reason, Rejection, Rules, Schedule

HOUR_MS = 3_600_000
NOON_MS = 1_767_268_800_000
"""Thursday 1 January 2026, 12:00 UTC: the timestamp of the records below."""

RULES = Rules(
    topic="orders.delay",
    default_target="orders",
    allowed_targets=("orders.*", "billing"),
    max_delay_ms=7 * 24 * HOUR_MS,
    forbidden_targets=frozenset({"orders.rejected"}),
)
LIMIT = "Exceeds max allowed delivery delay of 604800000 milliseconds"


def at(
    due_ms: int,
    *targets: str,
    partition: int = BY_KEY,
    key: bytes | KeepKey | None = KEEP_KEY,
    deliver_id: bytes | None = None,
    both_times: bool = False,
) -> Schedule:
    return Schedule(due_ms, targets or ("orders",), partition, key, deliver_id, both_times)


def no(reason: Reason, *words: str) -> tuple[Reason, tuple[str, ...]]:
    return reason, words


class Case(NamedTuple):
    """Control headers of a record and their meaning: a schedule, or a reason and words of its message."""

    title: str
    headers: Headers | None
    becomes: Schedule | tuple[Reason, tuple[str, ...]]


AMBIGUOUS, INVALID, UNIT_, DELAY = (
    Reason.AMBIGUOUS_HEADER,
    Reason.INVALID_SCHEDULE,
    Reason.UNIT_SUSPECTED,
    Reason.MAX_DELAY_EXCEEDED,
)
NOT_ALLOWED = Reason.TARGET_NOT_ALLOWED

CASES = [
    # Due time
    Case("no headers at all: at once", None, at(AT_ONCE)),
    Case("only user headers: at once", [("trace", b"1"), ("x-deliver-at", b"9"), ("deliver", b"")], at(AT_ONCE)),
    Case("a name in any case", [("Deliver-At", b"1767272400000")], at(NOON_MS + HOUR_MS)),
    Case("every letter in upper case", [("DELIVER-AFTER", b"PT1H"), ("DELIVER-TO", b"billing")],
         at(NOON_MS + HOUR_MS, "billing")),
    Case("a delay as in the configuration", [("deliver-after", b"15m")], at(NOON_MS + HOUR_MS // 4)),
    Case("in ms, with the unit", [("deliver-after", b"500ms")], at(NOON_MS + 500)),
    Case("a null instant is none", [("deliver-at", None)], at(AT_ONCE)),
    Case("a null instant beside a delay", [("deliver-at", None), ("deliver-after", b"1h")], at(NOON_MS + HOUR_MS)),
    Case("null times of any number are none", [("deliver-after", None), ("deliver-after", None)], at(AT_ONCE)),
    Case("a null one beside one that says when", [("deliver-at", None), ("Deliver-At", b"1767272400000")],
         at(NOON_MS + HOUR_MS)),
    Case("null lateness is none", [("deliver-expire-after", None)], at(AT_ONCE)),
    Case("an instant in milliseconds", [("deliver-at", b"1767272400000")], at(NOON_MS + HOUR_MS)),
    Case("an instant with an offset", [("deliver-at", b"2026-01-01T15:00:00+02:00")], at(NOON_MS + HOUR_MS)),
    Case("a fraction is rounded up", [("deliver-at", b"2026-01-01T12:00:00.0001Z")], at(NOON_MS + 1)),
    Case("a delay in milliseconds", [("deliver-after", b"3600000")], at(NOON_MS + HOUR_MS)),
    Case("a delay as a duration", [("deliver-after", b"PT1H")], at(NOON_MS + HOUR_MS)),
    Case("no delay", [("deliver-after", b"0")], at(NOON_MS)),
    Case("an instant in the past keeps its value", [("deliver-at", b"2001-01-01T00:00:00Z")], at(978_307_200_000)),
    Case("an instant before 1970", [("deliver-at", b"1969-07-20T20:17:40Z")], at(AT_ONCE)),
    Case("both times: deliver-at wins", [("deliver-after", b"1"), ("deliver-at", b"2026-01-01T13:00:00Z")],
         at(NOON_MS + HOUR_MS, both_times=True)),
    Case("exactly the longest delay", [("deliver-after", b"P7D")], at(NOON_MS + 168 * HOUR_MS)),
    Case("1 ms over the longest delay", [("deliver-after", b"604800001")], no(DELAY, LIMIT)),
    Case("a date over the longest delay", [("deliver-at", b"2026-01-08T12:00:00.0001Z")], no(DELAY, LIMIT)),
    # Due time: refused headers
    Case("no number", [("deliver-at", b"12e3")], no(INVALID, "deliver-at '12e3'", "RFC 3339")),
    Case("no offset", [("deliver-at", b"2026-01-01T13:00:00")], no(INVALID, "with an offset")),
    Case("one unit only", [("deliver-after", b"1h30m")], no(INVALID, "deliver-after '1h30m'", "PT15M", "36h, 7d")),
    Case("units as they are spelled", [("deliver-after", b"15M")], no(INVALID, "deliver-after '15M'", "36h, 7d")),
    Case("a short delay beyond 64 bits", [("deliver-after", b"9223372036854775807d")], no(INVALID, "longer than")),
    Case("a slip of the pen", [("deliver-att", b"1767272400000")],
         no(INVALID, "'deliver-att'", "there is no such header", "did you mean deliver-at?")),
    Case("a guess", [("deliver-in", b"PT15M")], no(INVALID, "'deliver-in'", "did you mean deliver-after?")),
    Case("a guess in another case", [("Deliver-Delay", b"9")], no(INVALID, "'Deliver-Delay'", "deliver-after?")),
    Case("without a value too", [("deliver-att", None)], no(INVALID, "'deliver-att'")),
    Case("the prefix alone", [("deliver-", b"1")], no(INVALID, "there are deliver-after, deliver-at, deliver-expire")),
    Case("the first of many is told", [("deliver-x1", b""), ("deliver-x2", b"")], no(INVALID, "'deliver-x1'")),
    Case("what it means is shown and not done", [("deliver-\n\u20ac" + "x" * 500, b"")],
         no(INVALID, r"'deliver-\n\xe2\x82\xacxxx", "... (")),
    Case("moved, and not when to", [("deliver-move", b"42")], no(INVALID, "deliver-move: deliver-at or deliver-after")),
    Case("off, in any case", [("deliver-at", b"1767272400000"), ("Deliver-Every", b"1h")], no(INVALID, "-Every")),
    Case("an empty value", [("deliver-after", b"")], no(INVALID, "deliver-after ''", "ISO 8601")),
    Case("a negative delay", [("deliver-after", b"-5")], no(INVALID, "deliver-after '-5'", "not negative")),
    Case("a month has no length", [("deliver-after", b"P1M")], no(INVALID, "years and months")),
    Case("a delay beyond 64 bits", [("deliver-after", b"9223372036854775807")], no(INVALID, "over 922337203685477")),
    Case("the outranked time must be readable too", [("deliver-at", b"1767272400000"), ("deliver-after", b"soon")],
         no(INVALID, "deliver-after 'soon'")),
    Case("seconds", [("deliver-at", b"1767272400")], no(UNIT_, "deliver-at '1767272400'", "looks like seconds")),
    Case("microseconds", [("deliver-at", b"1767272400000000")], no(UNIT_, "looks like microseconds")),
    Case("nanoseconds", [("deliver-at", b"1767272400000000000")], no(UNIT_, "looks like nanoseconds")),
    Case("given twice", [("deliver-at", b"1"), ("deliver-at", b"1")], no(AMBIGUOUS, "deliver-at", "more than once")),
    Case("given twice in two spellings", [("deliver-at", b"1"), ("Deliver-At", b"1")], no(AMBIGUOUS, "Deliver-At")),
    # Target
    Case("another target", [("deliver-to", b"billing")], at(AT_ONCE, "billing")),
    Case("the default by name", [("deliver-to", b"orders")], at(AT_ONCE, "orders")),
    Case("fan-out, in the order given", [("deliver-to", b"orders.eu"), ("a", b""), ("deliver-to", b"billing")],
         at(AT_ONCE, "orders.eu", "billing")),
    Case("the same target twice", [("deliver-to", b"billing"), ("deliver-to", b"billing")],
         no(AMBIGUOUS, "same target is named twice")),
    Case("not on the list", [("deliver-to", b"payments")], no(NOT_ALLOWED, "'payments'", "not in allowed_targets")),
    Case("one of several not on the list", [("deliver-to", b"billing"), ("deliver-to", b"payments")],
         no(NOT_ALLOWED, "'payments'")),
    Case("the delay topic itself, though a pattern covers it", [("deliver-to", b"orders.delay")],
         no(NOT_ALLOWED, "of the router is never a target")),
    Case("another topic of the router", [("deliver-to", b"orders.rejected")], no(NOT_ALLOWED, "never a target")),
    Case("an internal topic", [("deliver-to", b"__consumer_offsets")], no(NOT_ALLOWED, "internal")),
    Case("the state of a router, whoever's", [("deliver-to", b"orders.x.delay-state")],
         no(NOT_ALLOWED, "'orders.x.delay-state'", "belong to delay routers")),
    Case("no topic name", [("deliver-to", b"orders.\xc3\xa9")], no(NOT_ALLOWED, r"'orders.\xc3\xa9'", "a topic name")),
    Case("an empty target", [("deliver-to", b"")], no(NOT_ALLOWED, "deliver-to ''")),
    Case("a null target", [("deliver-to", None)], no(NOT_ALLOWED, "deliver-to null")),
    # Other headers
    Case("another key", [("deliver-key", b"\x00\xff")], at(AT_ONCE, key=b"\x00\xff")),
    Case("an empty key is a key", [("deliver-key", b"")], at(AT_ONCE, key=b"")),
    Case("a null key", [("deliver-key", None)], at(AT_ONCE, key=None)),
    Case("a partition", [("deliver-partition", b"7")], at(AT_ONCE, partition=7)),
    Case("the last partition", [("deliver-partition", b"2147483647")], at(AT_ONCE, partition=2**31 - 1)),
    Case("too high a partition", [("deliver-partition", b"2147483648")], no(INVALID, "at most 2147483647")),
    Case("a negative partition", [("deliver-partition", b"-1")], no(INVALID, "deliver-partition '-1'")),
    Case("a null partition", [("deliver-partition", None)], no(INVALID, "deliver-partition null")),
    Case("an id", [("deliver-id", b"x" * 256)], at(AT_ONCE, deliver_id=b"x" * 256)),
    Case("an id too long", [("deliver-id", b"x" * 257)], no(INVALID, "(257 bytes)", "up to 256 bytes")),
    Case("a null id", [("deliver-id", None)], no(INVALID, "deliver-id null")),
    Case("a key twice", [("deliver-key", None), ("deliver-key", b"")], no(AMBIGUOUS, "deliver-key")),
    Case("passed on, as often as may be", [("delay-hops", b"15")], at(AT_ONCE)),
    Case("passed on too often", [("delay-hops", b"16")], no(INVALID, "16 times in a row without a time")),
    Case("passed on as often, and scheduled again", [("delay-hops", b"99"), ("deliver-after", b"0")], at(NOON_MS)),
    Case("what no router has written", [("delay-hops", None), ("delay-hops", b"-5"), ("delay-hops", b"")], at(AT_ONCE)),
]  # fmt: skip


def _check(decision: Decision, becomes: Schedule | tuple[Reason, tuple[str, ...]]) -> None:
    if isinstance(becomes, Schedule):
        assert decision == becomes
        assert isinstance(decision, Schedule)
        return
    assert isinstance(decision, Rejection), decision
    reason, words = becomes
    assert decision.reason == reason
    assert all(word in decision.message for word in words), decision.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_the_protocol_by_example(case: Case) -> None:
    _check(RULES.decide(case.headers, NOON_MS), case.becomes)


def _with(*presets: str) -> Rules:
    return replace(RULES, aliases=tuple(alias for preset in presets for alias in PRESETS[preset]))


_US = replace(RULES, aliases=(Alias("x-us", HeaderRole.AT, Unit.US), Alias("x-after-us", HeaderRole.AFTER, Unit.US)))
_BE = replace(
    RULES, aliases=(Alias("x-be", HeaderRole.AT, Unit.BE_MS), Alias("x-after-be", HeaderRole.AFTER, Unit.BE_MS))
)

ALIAS_CASES: list[tuple[Rules, Case]] = [
    (_with("cesium"), Case("cesium, instant", [("cesium-deliver-at", b"1767272400000")], at(NOON_MS + HOUR_MS))),
    (_with("cesium"), Case("cesium, delay", [("cesium-delay-ms", b"500")], at(NOON_MS + 500))),
    (_with("cesium"), Case("cesium takes no durations", [("cesium-delay-ms", b"PT1S")], no(INVALID, "ASCII digits"))),
    (_with("cesium"), Case("cesium takes no dates", [("cesium-deliver-at", b"2026-01-01T13:00:00Z")],
                           no(INVALID, "cesium-deliver-at '2026-01-01T13:00:00Z'"))),
    (_with("cesium"), Case("an alias and its native header", [("cesium-deliver-at", b"1"), ("deliver-at", b"1")],
                           no(AMBIGUOUS, "deliver-at: 'at' is given more than once"))),
    (_with("cesium"), Case("instant and delay by different names", [("deliver-at", b"5"), ("cesium-delay-ms", b"1")],
                           at(5, both_times=True))),
    (_with("etf1"), Case("etf1", [("scheduler-epoch", b"1767272400"), ("scheduler-target-topic", b"billing"),
                                  ("scheduler-target-key", b"video")], at(NOON_MS + HOUR_MS, "billing", key=b"video"))),
    (_with("etf1"), Case("milliseconds where seconds belong", [("scheduler-epoch", b"1767272400000")],
                         no(UNIT_, "looks like milliseconds", "seconds since 1970"))),
    (_with("etf1"), Case("a number too large for any unit", [("scheduler-epoch", b"9223372036854775807")],
                         no(UNIT_, "looks like nanoseconds"))),
    (_with("etf1"), Case("fan-out over two names", [("scheduler-target-topic", b"billing"), ("deliver-to", b"orders")],
                         at(AT_ONCE, "billing", "orders"))),
    (_with("karafka"), Case("karafka", [
        ("schedule_schema_version", b"1.0.0"), ("schedule_target_epoch", b"1767272400"),
        ("schedule_source_type", b"schedule"), ("schedule_target_topic", b"billing"),
        ("schedule_target_partition", b"3"), ("schedule_target_key", b"k"),
    ], at(NOON_MS + HOUR_MS, "billing", partition=3, key=b"k"))),
    (_with("karafka"), Case("karafka, a cancellation", [
        ("schedule_schema_version", b"1.0.0"), ("schedule_source_type", b"cancel"),
    ], no(INVALID, "schedule_source_type 'cancel'", "cancellations are not"))),
    (_with("karafka"), Case("karafka, a partition key", [("schedule_target_partition_key", b"k")],
                            no(INVALID, "schedule_target_partition_key 'k'", "not supported"))),
    (replace(RULES, aliases=(Alias("x-a", HeaderRole.REFUSED), Alias("x-b", HeaderRole.REFUSED))),
     Case("two headers that are not supported: the first is named", [("x-a", b""), ("x-b", b"")], no(INVALID, "x-a"))),
    (_with("karafka"), Case("karafka, no type", [("schedule_source_type", None)], no(INVALID, "null"))),
    (_with("timebridge"), Case("timebridge", [
        ("X-Timebridge-When", b"2026-01-01T13:00:00Z"), ("X-Timebridge-Where", b"billing"),
    ], at(NOON_MS + HOUR_MS, "billing"))),
    (_with("timebridge"), Case("timebridge takes no numbers", [("X-Timebridge-When", b"1767272400000")],
                               no(INVALID, "RFC 3339"))),
    (_with("timebridge"), Case("an alias in any case", [("x-timebridge-when", b"2026-01-01T13:00:00Z")],
                               at(NOON_MS + HOUR_MS))),
    (replace(RULES, aliases=(Alias("deliver-soon", HeaderRole.IGNORED),)),
     Case("a name of the family may be taken for nothing", [("Deliver-Soon", b"1")], at(AT_ONCE))),
    (replace(RULES, ignores_unknown=True), Case("unknown ones are ignored", [("deliver-att", b"5")], at(AT_ONCE))),
    (replace(RULES, ignores_unknown=True), Case("but not what is reserved", [("deliver-every", b"5")],
                                                no(INVALID, "'deliver-every'"))),
    (replace(RULES, require_time=True), Case("a time is there", [("deliver-after", b"0")], at(NOON_MS))),
    (replace(RULES, require_time=True), Case("a time of long ago", [("deliver-at", b"0")], at(AT_ONCE))),
    (replace(RULES, require_time=True), Case("no time", [("trace", b"1")], no(INVALID, "takes delays only"))),
    (replace(RULES, require_time=True), Case("a null time", [("deliver-at", None)], no(INVALID, "takes delays only"))),
    (replace(RULES, require_time=True, at_once=True),
     Case("a time that is not waited for", [("deliver-after", b"9")], at(AT_ONCE))),
    (_US, Case("Debezium's MicroTimestamp", [("x-us", b"1767272400000000")], at(NOON_MS + HOUR_MS))),
    (_US, Case("microseconds are rounded up", [("x-us", b"1767272400000001")], at(NOON_MS + HOUR_MS + 1))),
    (_US, Case("milliseconds where microseconds belong", [("x-us", b"1767272400000")],
               no(UNIT_, "looks like milliseconds", "microseconds since 1970"))),
    (_US, Case("nanoseconds where microseconds belong", [("x-us", b"1767272400000000000")], no(UNIT_, "nanoseconds"))),
    (_US, Case("a delay in microseconds", [("x-after-us", b"1001")], at(NOON_MS + 2))),
    (_BE, Case("Java's LongSerializer", [("x-be", (NOON_MS + HOUR_MS).to_bytes(8, "big"))], at(NOON_MS + HOUR_MS))),
    (_BE, Case("BigInteger.toByteArray", [("x-be", (NOON_MS + HOUR_MS).to_bytes(6, "big"))], at(NOON_MS + HOUR_MS))),
    (_BE, Case("a binary delay", [("x-after-be", b"\x01\x00")], at(NOON_MS + 256))),
    (_BE, Case("digits where a binary number belongs", [("x-be", b"17672724")], no(UNIT_, "nanoseconds"))),
    (_BE, Case("too many bytes", [("x-be", b"1767272400000")], no(INVALID, "1 to 8 bytes"))),
    (_BE, Case("no byte", [("x-be", b"")], no(INVALID, "1 to 8 bytes"))),
    (_BE, Case("a negative one", [("x-be", b"\xff" * 8)], no(INVALID, "not negative"))),
    (_BE, Case("binary seconds", [("x-be", (1_767_272_400).to_bytes(8, "big"))], no(UNIT_, "looks like seconds"))),
    (RULES, Case("without its preset an alias is a user header", [("scheduler-epoch", b"soon")], at(AT_ONCE))),
    (replace(RULES, aliases=(Alias("x-delay", HeaderRole.AFTER, Unit.S),)),
     Case("a custom alias in seconds", [("x-delay", b"90")], at(NOON_MS + 90_000))),
    (replace(RULES, aliases=(Alias("x-delay", HeaderRole.AFTER, Unit.S),)),
     Case("seconds that overflow", [("x-delay", b"9223372036854775807")], no(INVALID, "longer than"))),
    (replace(RULES, aliases=(Alias("x-due", HeaderRole.AT),)),
     Case("a custom alias in the native notation", [("x-due", b"2026-01-01T13:00:00Z")], at(NOON_MS + HOUR_MS))),
    (replace(RULES, aliases=(Alias("x-id", HeaderRole.ID),)),
     Case("a custom alias for the id", [("x-id", b"me")], at(AT_ONCE, deliver_id=b"me"))),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "case"), ALIAS_CASES, ids=[case.title for _, case in ALIAS_CASES])
def test_aliases_by_example(rules: Rules, case: Case) -> None:
    _check(rules.decide(case.headers, NOON_MS), case.becomes)


OF_BEFORE = replace(RULES, version=2, allowed_targets=("*",))

CASES_OF_BEFORE = [
    Case("names counted in lower case only", [("Deliver-At", b"1767272400000")], at(AT_ONCE)),
    Case("all others were passed over", [("deliver-att", b"1"), ("deliver-cancel", b"1")], at(AT_ONCE)),
    Case("a null time was refused", [("deliver-at", None)], no(INVALID, "deliver-at null")),
    Case("a null lateness too", [("deliver-expire-after", None)], no(INVALID, "deliver-expire-after null")),
    Case("no short delays", [("deliver-after", b"15m")], no(INVALID, "deliver-after '15m'", "ISO 8601")),
    Case("topics of other routers were targets", [("deliver-to", b"b.delay-state")], at(AT_ONCE, "b.delay-state")),
    Case("nobody counted hops", [("delay-hops", b"99")], at(AT_ONCE)),
]


@pytest.mark.parametrize("case", CASES_OF_BEFORE, ids=lambda case: case.title)
def test_what_rules_of_version_2_decided_is_decided_so_again(case: Case) -> None:
    _check(OF_BEFORE.decide(case.headers, NOON_MS), case.becomes)
    _check(Rules.from_json(OF_BEFORE.to_json()).decide(case.headers, NOON_MS), case.becomes)


@pytest.mark.parametrize(
    ("headers", "says_when"),
    [
        ([], False),
        ([("trace", b"1"), ("deliver-to", b"orders")], False),
        ([("deliver-at", None)], False),
        ([("deliver-at", b"0")], True),
        ([("DELIVER-AFTER", b"0")], True),
    ],
)
def test_whether_a_record_says_when(headers: Headers, says_when: bool) -> None:
    assert RULES.names_time(headers) is says_when


@pytest.mark.parametrize(
    ("headers", "names_id"),
    [
        ([], False),
        ([("deliver-at", b"0"), ("other", b"id")], False),
        ([("deliver-at", b"0"), ("deliver-id", b"id")], True),
        ([("Deliver-Id", None)], True),
    ],
)
def test_whether_a_record_names_a_schedule(headers: Headers, names_id: bool) -> None:
    assert RULES.controls.names_id(headers) is names_id


def test_a_hundred_thousand_unknown_headers_are_refused_quickly() -> None:
    many: Headers = [(f"deliver-at{number}", b"") for number in range(100_000)]
    started = time.process_time()
    _check(RULES.decide(many, NOON_MS), no(INVALID, "'deliver-at0'", "did you mean deliver-at?"))
    assert time.process_time() - started < 5
    assert len(RULES.controls) <= MAX_REMEMBERED
    assert isinstance(RULES.decide([("deliver-at", b"1767272400000")], NOON_MS), Schedule), "known ones stay known"


@pytest.mark.parametrize(
    ("first", "last", "unit"),
    [(10**9, 10**11 - 1, "seconds"), (10**14, 10**17 - 1, "microseconds"), (10**17, INT64_MAX, "nanoseconds")],
)
def test_implausible_milliseconds(first: int, last: int, unit: str) -> None:
    rules = replace(RULES, max_delay_ms=0)
    for number in (first, last):
        _check(rules.decide([("deliver-at", b"%d" % number)], NOON_MS), no(UNIT_, f"looks like {unit}"))


@pytest.mark.parametrize("number", [0, 1, 10**9 - 1, 10**11, 10**14 - 1])
def test_plausible_milliseconds(number: int) -> None:
    assert replace(RULES, max_delay_ms=0).decide([("deliver-at", b"%d" % number)], NOON_MS) == at(number)


def test_the_bound_of_plausible_seconds() -> None:
    rules = replace(RULES, max_delay_ms=0, aliases=PRESETS["etf1"])
    assert rules.decide([("scheduler-epoch", b"99999999999")], NOON_MS) == at(99_999_999_999_000)
    _check(rules.decide([("scheduler-epoch", b"100000000000")], NOON_MS), no(UNIT_, "looks like milliseconds"))


def test_a_record_without_a_time_is_due_at_once_even_when_its_producers_clock_is_ahead() -> None:
    """KIP-1030 lets a timestamp be an hour ahead; that hour is not a delay that the producer asked for."""
    assert RULES.decide([], NOON_MS + HOUR_MS) == at(AT_ONCE)


def test_a_record_without_a_timestamp() -> None:
    unlimited = replace(RULES, max_delay_ms=0)
    due = [("deliver-at", b"1767272400000")]
    assert RULES.decide([], -1) == at(AT_ONCE)
    assert unlimited.decide(due, -1) == at(NOON_MS + HOUR_MS)
    _check(RULES.decide(due, -1), no(INVALID, "no timestamp", "maximum delay"))
    for rules in (RULES, unlimited):
        _check(rules.decide([("deliver-after", b"1")], -1), no(INVALID, "no timestamp", "deliver-after"))
    both = [*due, ("deliver-after", b"1")]
    assert unlimited.decide(both, -1) == at(NOON_MS + HOUR_MS, both_times=True)


def test_without_a_limit_a_delay_may_fill_64_bits_and_no_more() -> None:
    unlimited = replace(RULES, max_delay_ms=0)
    assert unlimited.decide([("deliver-after", b"%d" % (INT64_MAX - 5))], 5) == at(INT64_MAX)
    _check(unlimited.decide([("deliver-after", b"%d" % (INT64_MAX - 4))], 5), no(INVALID, "over 9223372036854775807"))


def test_no_target_at_all() -> None:
    rules = replace(RULES, default_target="")
    assert rules.decide([("deliver-to", b"billing")], NOON_MS) == at(AT_ONCE, "billing")
    _check(rules.decide([], NOON_MS), no(Reason.TARGET_MISSING, "orders.delay", "default_target"))


_WRONG: dict[Reason, tuple[str, bytes | None]] = {
    Reason.AMBIGUOUS_HEADER: ("deliver-key", b"twice"),
    Reason.INVALID_SCHEDULE: ("deliver-partition", b"x"),
    Reason.UNIT_SUSPECTED: ("deliver-at", b"1767272400"),
    Reason.MAX_DELAY_EXCEEDED: ("deliver-after", b"P8D"),
    Reason.TARGET_NOT_ALLOWED: ("deliver-to", b"payments"),
}


@pytest.mark.parametrize("order", list(permutations(_WRONG)), ids=lambda order: " ".join(r[0] for r in order))
def test_the_reason_does_not_depend_on_the_order_of_the_headers(order: tuple[Reason, ...]) -> None:
    wrong = [_WRONG[reason] for reason in order]
    first = list(_WRONG)
    while wrong:
        reason = first.pop(0)
        repeated = [_WRONG[reason]] if reason is AMBIGUOUS else []
        decision = RULES.decide(wrong + repeated, NOON_MS)
        assert isinstance(decision, Rejection)
        assert decision.reason is reason
        wrong.remove(_WRONG[reason])


def test_a_missing_target_counts_after_the_times_too() -> None:
    rules = replace(RULES, default_target="")
    _check(rules.decide([_WRONG[DELAY]], NOON_MS), no(DELAY))


def test_a_target_named_twice_outranks_a_header_that_cannot_be_read() -> None:
    twice = [("deliver-to", b"payments")] * 2
    _check(RULES.decide([("deliver-id", None), *twice], NOON_MS), no(AMBIGUOUS, "named twice"))


def test_the_allow_list_is_asked_again_at_release() -> None:
    assert RULES.allowed("billing")
    shrunk = replace(RULES, allowed_targets=())
    assert not shrunk.allowed("billing")
    assert shrunk.allowed("orders")


def test_a_disabled_delay_topic_rejects_every_record_and_stays_disabled_when_stored() -> None:
    rules = Rules(topic="orders.delay", default_target="orders", enabled=False)
    for headers in ([], [("deliver-at", b"1767225600000")], [("deliver-at", b"nonsense")]):
        decision = rules.decide(headers, 1_767_225_000_000)
        assert isinstance(decision, Rejection)
        assert decision.reason is Reason.DELAY_DISABLED
        assert decision.message == "Delivery from delay topic orders.delay is switched off"
    assert Rules.from_json(rules.to_json()) == rules
    assert rules != Rules(topic="orders.delay", default_target="orders")
