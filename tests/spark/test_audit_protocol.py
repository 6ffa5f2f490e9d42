"""Tests of due times, targets and digests computed by Spark, compared with the router and the auditor."""

import random
from fractions import Fraction

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from index.protocol.headers import PRESETS, Alias, HeaderRole, Unit
from index.protocol.released_headers import ReleasedHeaders, attempt_headers
from index.rules.rules import Retry, Rules, Schedule
from sidecar.dev.audit import AttemptRules, AuditedRecord
from sidecar.dev.audit import record as single
from sidecar.dev.audit.attempts import AuditedAttempt
from spark_backfill.audit.attempts import Attempts
from spark_backfill.audit.protocol import (
    AT_ONCE,
    UNREADABLE,
    Protocol,
    digest,
    is_redrive_mark,
    rejected_as_sent,
    source,
)

Header = tuple[str, bytes | None]
SCHEMA = "key binary, value binary, headers array<struct<key:string,value:binary>>, timestamp_ms bigint"
SENT_MS = 1_700_000_000_123


def rows(spark: SparkSession, headers: list[list[Header]], timestamp_ms: int = SENT_MS) -> DataFrame:
    return spark.createDataFrame([(b"k", b"v", each, timestamp_ms) for each in headers], SCHEMA).coalesce(1)


def due(spark: SparkSession, headers: list[list[Header]], aliases: tuple[Alias, ...] = ()) -> list[int]:
    protocol = Protocol(aliases)
    found = rows(spark, headers).select(protocol.due_ms(protocol.control(f.col("headers")), f.col("timestamp_ms")))
    return [row[0] for row in found.collect()]


def test_what_names_no_time_is_due_after_the_delay_of_its_topic(spark: SparkSession) -> None:
    found: list[list[Header]] = [
        [],
        [("Deliver-After", None), ("trace", b"1")],
        [("deliver-at", b"0")],
        [("deliver-after", b"1")],
        [("deliver-at", b"soon")],
        [("Deliver-Every", b"10s")],
        [("deliver-every", None)],
    ]
    protocol = Protocol(delay_ms=60_000)
    dues = rows(spark, found).select(protocol.due_ms(protocol.control(f.col("headers")), f.col("timestamp_ms")))
    assert [row[0] for row in dues.collect()] == [
        *[SENT_MS + 60_000] * 2,
        AT_ONCE,
        SENT_MS + 1,
        UNREADABLE,
        SENT_MS + 10_000,
        SENT_MS + 60_000,
    ]


def test_an_occurrence_is_due_as_its_router_says_and_the_first_one_by_its_headers(spark: SparkSession) -> None:
    every, cron, after = ("Deliver-Every", b"10s"), ("deliver-cron", b"* * * * *"), ("deliver-after", b"500")
    told: Header = ("Deliver-Series", b"7 2 1700000009000 8f0c")
    found: list[tuple[list[Header], int]] = [
        ([every], SENT_MS + 10_000),
        ([every, after], SENT_MS + 500),
        ([("deliver-every", b"often")], UNREADABLE),
        ([cron], AT_ONCE),
        ([cron, after], AT_ONCE),
        ([every, after, told], 1_700_000_009_000),
        ([cron, after, told], 1_700_000_009_000),
        ([every, ("deliver-series", b"7 2 soon 8f0c")], SENT_MS + 10_000),
        ([every, ("deliver-series", b"7 2")], SENT_MS + 10_000),
        ([every, ("deliver-series", None), told], 1_700_000_009_000),
        ([after, told], SENT_MS + 500),
    ]
    assert due(spark, [headers for headers, _ in found]) == [expected for _, expected in found]


TIMES: list[tuple[Header, int]] = [
    (("deliver-at", b"1700000001000"), 1_700_000_001_000),
    (("deliver-at", b"0"), 0),
    (("deliver-at", b"9223372036854775807"), 2**63 - 1),
    (("deliver-at", b"9223372036854775808"), UNREADABLE),
    (("deliver-at", b"17000000010001700000001000"), UNREADABLE),
    (("deliver-at", b"1700000001000\n"), UNREADABLE),
    (("deliver-at", b" 1700000001000"), UNREADABLE),
    (("deliver-at", b"-1"), UNREADABLE),
    (("deliver-at", b""), UNREADABLE),
    (("deliver-at", None), AT_ONCE),
    (("Deliver-At", b"1700000001000"), 1_700_000_001_000),
    (("DELIVER-AFTER", b"15m"), SENT_MS + 900_000),
    (("deliver-after", b"500ms"), SENT_MS + 500),
    (("deliver-after", b"7d"), SENT_MS + 604_800_000),
    (("deliver-after", b"9223372036854775807d"), UNREADABLE),
    (("deliver-after", b"15M"), UNREADABLE),
    (("deliver-after", b"1h30m"), UNREADABLE),
    (("deliver-after", None), AT_ONCE),
    (("deliver-at", "١٢٣".encode()), UNREADABLE),
    (("deliver-at", b"2030-01-31T08:00:00Z"), 1_896_076_800_000),
    (("deliver-at", b"2030-01-31T10:00:00+02:00"), 1_896_076_800_000),
    (("deliver-at", b"2030-01-31t02:30:00.0000001-05:30"), 1_896_076_800_001),
    (("deliver-at", b"2030-01-31T08:00:00.250Z"), 1_896_076_800_250),
    (("deliver-at", b"2030-01-31T07:59:60Z"), 1_896_076_800_000),
    (("deliver-at", b"1960-01-31T08:00:00Z"), 0),
    (("deliver-at", b"2030-02-30T08:00:00Z"), UNREADABLE),
    (("deliver-at", b"2030-01-31T08:00:00"), UNREADABLE),
    (("deliver-at", b"2030-01-31 08:00:00Z"), UNREADABLE),
    (("deliver-after", b"500"), SENT_MS + 500),
    (("deliver-after", b"PT15M"), SENT_MS + 900_000),
    (("deliver-after", b"P1W"), SENT_MS + 604_800_000),
    (("deliver-after", b"P1DT12H"), SENT_MS + 129_600_000),
    (("deliver-after", b"PT0.0000001S"), SENT_MS + 1),
    (("deliver-after", b"PT1,5S"), SENT_MS + 1_500),
    (("deliver-after", b"P9999999999999999999W"), UNREADABLE),
    (("deliver-after", b"9223372036854775807"), UNREADABLE),
    (("deliver-after", b"P1M"), UNREADABLE),
    (("deliver-after", b"P"), UNREADABLE),
    (("deliver-after", b"PT"), UNREADABLE),
    (("deliver-after", b"-PT1S"), UNREADABLE),
    (("deliver-after", b"soon"), UNREADABLE),
]


def test_due_times(spark: SparkSession) -> None:
    assert due(spark, [[header] for header, _ in TIMES]) == [expected for _, expected in TIMES]


def test_no_time_both_times_and_a_time_twice(spark: SparkSession) -> None:
    at, after = ("deliver-at", b"1700000001000"), ("deliver-after", b"500")
    wanted = [0, 1_700_000_001_000, 1_700_000_001_000, UNREADABLE, UNREADABLE]
    assert due(spark, [[("n", b"1")], [at, after], [after, at], [at, at], [after, after]]) == wanted


def test_aliases_by_their_units(spark: SparkSession) -> None:
    presets = (alias for preset in PRESETS.values() for alias in preset)
    micros = Alias("x-us", HeaderRole.AT, Unit.US), Alias("x-after-us", HeaderRole.AFTER, Unit.US)
    binary = Alias("X-Be", HeaderRole.AT, Unit.BE_MS), Alias("x-after-be", HeaderRole.AFTER, Unit.BE_MS)
    aliases = (*presets, Alias("wait", HeaderRole.AFTER, Unit.S), *micros, *binary)
    headers: list[list[Header]] = [
        [("cesium-deliver-at", b"1700000001000")],
        [("cesium-deliver-at", b"2030-01-31T08:00:00Z")],
        [("scheduler-epoch", b"1700000001")],
        [("scheduler-epoch", b"9223372036854775807")],
        [("X-Timebridge-When", b"2030-01-31T08:00:00Z")],
        [("NServiceBus.DeliverAt", b"2030-01-31 08:00:00:000001 Z")],
        [("NServiceBus.DeliverAt", b"2030-01-31 08:00:60:000000 Z")],
        [("NServiceBus.DeliverAt", b"2030-01-31T08:00:00Z")],
        [("wait", b"2")],
        [("wait", b"2"), ("deliver-after", b"2")],
        [("WAIT", b"2")],
        [("x-us", b"1700000001000001")],
        [("x-us", b"99999999999999999")],
        [("x-after-us", b"1000")],
        [("x-be", (1_700_000_001_000).to_bytes(8, "big"))],
        [("x-be", (1_700_000_001_000).to_bytes(6, "big"))],
        [("x-be", b"\xff" * 8)],
        [("x-be", b"1700000001000")],
        [("x-be", b"")],
        [("x-after-be", b"\x01\x00")],
    ]
    assert due(spark, headers, aliases) == [
        1_700_000_001_000,
        UNREADABLE,
        1_700_000_001_000,
        UNREADABLE,
        1_896_076_800_000,
        1_896_076_800_001,
        UNREADABLE,
        UNREADABLE,
        SENT_MS + 2_000,
        UNREADABLE,
        SENT_MS + 2_000,
        1_700_000_001_001,
        100_000_000_000_000,
        SENT_MS + 1,
        1_700_000_001_000,
        1_700_000_001_000,
        UNREADABLE,
        UNREADABLE,
        UNREADABLE,
        SENT_MS + 256,
    ]


def test_what_the_router_accepts_is_due_at_the_same_time_here(spark: SparkSession, rng: random.Random) -> None:
    headers = [[_time(rng)] for _ in range(500)]
    rules = Rules("d", default_target="t")
    decided = [rules.decide(each, SENT_MS) for each in headers]
    found = due(spark, headers)
    accepted = [
        (each, one.due_ms, two)
        for each, one, two in zip(headers, decided, found, strict=True)
        if isinstance(one, Schedule)
    ]
    assert len(accepted) > 200
    assert [two for _, _, two in accepted] == [one for _, one, _ in accepted]


def _time(rng: random.Random) -> Header:
    number = rng.randrange(10 ** rng.randint(1, 15))
    match rng.randrange(6):
        case 0:
            return "deliver-at", b"%d" % number
        case 1:
            return "deliver-after", b"%d" % number
        case 2:
            day = f"{rng.randint(1960, 2100)}-{rng.randint(1, 12):02}-{rng.randint(1, 31):02}"
            clock = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 60):02}"
            fraction = rng.choice(["", f".{rng.randrange(10**9)}", ".000000001", ".999999999"])
            offset = rng.choice(["Z", "z", f"{rng.choice('+-')}{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"])
            return "deliver-at", f"{day}T{clock}{fraction}{offset}".encode()
        case 5:
            return "Deliver-After", f"{rng.randrange(10**6)}{rng.choice(['ms', 's', 'm', 'h', 'd'])}".encode()
        case 3:
            parts = f"P{rng.randint(0, 9)}W{rng.randint(0, 99)}DT{rng.randint(0, 99)}H{rng.randint(0, 999)}M"
            return "deliver-after", f"{parts}{rng.randint(0, 99)}.{rng.randrange(10**9)}S".encode()
        case _:
            return "deliver-after", f"PT{rng.randint(0, 99)}S".encode()


CHANGES = [
    (b"k", b"v", [("a", b"1")]),
    (None, b"v", [("a", b"1")]),
    (b"", b"v", [("a", b"1")]),
    (b"v", b"k", [("a", b"1")]),
    (b"k", None, [("a", b"1")]),
    (b"k", b"v", []),
    (b"k", b"v", [("a", None)]),
    (b"k", b"v", [("a", b"")]),
    (b"k", b"v", [("a", b"1"), ("a", b"1")]),
    (b"k", b"v", [("a", b"b"), ("x", None)]),
    (b"k", b"v", [("a", None), ("b", b"x")]),
]


def test_a_digest_tells_everything_apart(spark: SparkSession) -> None:
    schema = "key binary, value binary, headers array<struct<key:string,value:binary>>"
    frame = spark.createDataFrame(CHANGES, schema).coalesce(1)
    digests = [row[0] for row in frame.select(digest(f.col("key"), f.col("value"), f.col("headers"))).collect()]
    assert len(set(digests)) == len(CHANGES)


def test_a_released_record_keeps_its_headers_and_its_key(spark: SparkSession) -> None:
    sent: list[Header] = [("a", b"1"), ("deliver-at", b"1"), ("delay-id", b"x"), ("a", None), ("deliver-odd", b"")]
    protocol = Protocol()
    frame = rows(spark, [sent, [("deliver-key", None)], [("deliver-key", b"other")]])
    control = protocol.control(f.col("headers"))
    key = protocol.released_key(control, f.col("key"))
    found = frame.select(protocol.user(f.col("headers")).alias("user"), key.alias("key")).collect()
    assert [(each["key"], each["value"]) for each in found[0]["user"]] == single.user_headers(sent)
    assert [row["key"] for row in found] == [b"k", None, b"other"]


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("delay-source", b"d/0/1")], ["d", "0", "1"]),
        ([("delay-source", b"d/0/1"), ("n", b"1"), ("delay-source", b"d/1/2")], ["d", "1", "2"]),
        ([("n", b"1")], None),
        ([("delay-source", None)], None),
    ],
)
def test_the_last_source_counts(spark: SparkSession, headers: list[Header], expected: list[str] | None) -> None:
    assert rows(spark, [headers]).select(source(f.col("headers"))).first()[0] == expected  # type: ignore[index]


def test_a_rejected_record_is_what_was_sent_and_three_headers(spark: SparkSession) -> None:
    added: list[Header] = [("delay-error", b"X"), ("delay-error-message", b"x"), ("delay-source", b"d/0/1")]
    sent: list[Header] = [("a", b"1"), ("delay-error", b"mine")]
    frame = rows(spark, [[*sent, *added], added, added[:2], [*added, ("a", b"1")]])
    found = [row[0] for row in frame.select(rejected_as_sent(f.col("headers"))).collect()]
    assert [None if each is None else [tuple(header) for header in each] for each in found] == [sent, [], None, None]


def test_a_rejected_occurrence_has_two_headers_more(spark: SparkSession) -> None:
    added: list[Header] = [("delay-error", b"X"), ("delay-error-message", b"x"), ("delay-source", b"d/0/1")]
    numbered: list[Header] = [("delay-occurrence", b"2"), ("delay-series", b"d/0/1")]
    recurring: list[Header] = [("Deliver-Every", b"10s"), ("a", b"1")]
    wanted = [
        ([*recurring, *numbered], recurring),
        (recurring, recurring),
        ([*recurring, *numbered[:1]], [*recurring, *numbered[:1]]),
        # These are the producer's own: the record does not recur.
        ([("a", b"1"), *numbered], [("a", b"1"), *numbered]),
    ]
    frame = rows(spark, [[*headers, *added] for headers, _ in wanted])
    found = [row[0] for row in frame.select(rejected_as_sent(f.col("headers"))).collect()]
    assert [[tuple(header) for header in each] for each in found] == [expected for _, expected in wanted]


def test_only_a_record_with_one_header_is_a_mark_of_what_was_driven_again(spark: SparkSession) -> None:
    mark: Header = ("delay-redriven-offsets", b"1-3")
    found = rows(spark, [[mark], [mark, mark], [("a", None), mark], [("a", b"")], []])
    assert [row[0] for row in found.select(is_redrive_mark(f.col("headers"))).collect()] == [True, *[False] * 4]


RETRY = Retry(1_000, 1_500, 4_000, 100, 4, "dead")
ATTEMPTED: list[list[Header]] = [
    [],
    [("trace", b"1"), ("delay-attempt", b"1"), ("delay-target", b"a"), ("trace", None)],
    [("Delay-Attempt", b"3"), ("delay-target", b"b.eu")],
    [("delay-attempt", b"3"), ("delay-target", b"elsewhere"), ("deliver-after", b"5")],
    [("delay-attempt", b"2"), ("deliver-to", b"a"), ("deliver-at", None)],
    [("delay-attempt", b"4"), ("delay-target", b"a"), ("deliver-to", b"b.x"), ("deliver-at", b"soon")],
    [("delay-attempt", b"9"), ("deliver-attempts-max", b"12"), ("delay-attempts-exhausted", b"4")],
    [("deliver-attempts-max", b"0")],
    [("delay-attempt", b"1001")],
    [("delay-attempt", b"x")],
    [("delay-attempt", None)],
    [("delay-attempt", b"1"), ("delay-attempt", b"1")],
]


def test_attempts_are_those_of_the_router_and_of_the_auditor(spark: SparkSession) -> None:
    rules = Rules("d", "out", ("a", "b.*"), retry=RETRY)
    terms = AttemptRules(1_000, Fraction(3, 2), 4_000, Fraction(1, 10), 4, "dead", frozenset({"a", "b.eu", "b.x"}))
    attempts, protocol, headers = Attempts(RETRY, "out", ("a", "b.*")), Protocol(), f.col("headers")
    control, user = protocol.control(headers), protocol.user(headers)
    found = rows(spark, ATTEMPTED).select(
        attempts.due_ms(protocol, headers, control, f.col("timestamp_ms")),
        attempts.sooner_ms(protocol, headers, control),
        attempts.targets(protocol.targets(control), headers),
        attempts.to_be_told(user, headers),
    )
    for given, (due_ms, sooner_ms, targets, wanted) in zip(ATTEMPTED, found.collect(), strict=True):
        decision = rules.decide(given, SENT_MS)
        read = AuditedAttempt.of(AuditedRecord("d", 0, 0, b"k", b"v", given, SENT_MS), "out", terms)
        if not isinstance(decision, Schedule):
            assert due_ms == read.to_ms == UNREADABLE, given
            continue
        assert (due_ms, due_ms - sooner_ms) == (decision.due_ms, read.from_ms), given
        assert tuple(targets) == decision.targets == read.targets, given
        assert decision.attempt is not None
        assert sooner_ms == decision.attempt.jitter_ms, given
        released = ReleasedHeaders(rules.stripped, "d/0/").of(given, decision.due_ms, 0, SENT_MS, None)
        copy = attempt_headers(released, decision.attempt, decision.targets[0])
        kept = Attempts.told(protocol.user(headers), headers)
        (told,) = rows(spark, [copy]).select(kept).collect()[0]
        assert [(each["key"], each["value"]) for each in told] == [(each["key"], each["value"]) for each in wanted]
