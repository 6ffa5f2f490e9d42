"""The auditor's join, fed with records made in memory: the violations it must count, and the cases it must not."""

from collections.abc import Sequence
from fractions import Fraction

import pytest

from sidecar.dev.audit import AT_ONCE, UNREADABLE, AttemptRules, AuditedRecord, AuditReport, check_order, join
from sidecar.dev.audit.__main__ import _retry, main
from sidecar.dev.audit.record import Header, due_ms
from tests.support.audit_records import (
    AFTER,
    DELAY,
    NOW_MS,
    OTHER,
    SENT_MS,
    TARGET,
    counts,
    refused,
    released,
    sent,
)


def audited(
    origins: Sequence[AuditedRecord],
    out: Sequence[AuditedRecord] = (),
    no: Sequence[AuditedRecord] = (),
    now_ms: int = NOW_MS,
) -> AuditReport:
    return join(origins, out, no, now_ms=now_ms, default_targets={DELAY: TARGET})


FAN_OUT: tuple[Header, ...] = (AFTER, ("deliver-to", b"t"), ("deliver-to", b"u"))


def test_a_record_released_once_is_fine() -> None:
    origin = sent(0, AFTER)
    report = audited([origin], [released(origin)])
    assert counts(report) == {"sent": 1, "released_once": 1}
    assert report.ok
    assert list(report.lateness_ms) == [3]
    assert report.summary() == "sent 1, released once 1, rejected 0, duplicated 0, early 0, lost 0"


def test_in_a_burst_a_record_is_judged_by_the_time_that_it_was_given() -> None:
    origin = sent(0, AFTER)
    copy = released(origin)
    told = copy._replace(headers=[*copy.headers, ("delay-spread", b"2")])
    assert list(audited([origin], [told]).lateness_ms) == [1]
    before = told._replace(headers=[*copy.headers, ("delay-spread", b"5")])
    assert counts(audited([origin], [before])) == {"sent": 1, "released_once": 1, "early": 1}
    assert check_order([origin], [told]) == []


def test_a_record_that_is_nowhere_is_lost_once_it_is_due_and_pending_before() -> None:
    origin = sent(0, AFTER)
    lost = audited([origin], now_ms=SENT_MS + 1000)
    assert counts(lost) == {"sent": 1, "lost": 1}
    assert not lost.ok
    assert "d/0/0" in lost.samples["lost"][0]
    pending = audited([origin], now_ms=SENT_MS + 999)
    assert counts(pending) == {"sent": 1, "pending": 1}
    assert pending.ok
    assert pending.summary().endswith("lost 0, pending 1")


def test_a_record_without_a_time_is_due_after_the_delay_of_its_topic() -> None:
    def waiting(*headers: Header, now_ms: int) -> str:
        found = join([sent(0, *headers)], [], [], now_ms=now_ms, default_delays_ms={DELAY: 1_000})
        return "lost" if found.lost else "pending"

    assert waiting(now_ms=SENT_MS + 999) == "pending"
    assert waiting(now_ms=SENT_MS + 1_000) == "lost"
    assert waiting(("deliver-after", None), now_ms=SENT_MS + 999) == "pending"
    assert waiting(("deliver-after", b"5"), now_ms=SENT_MS + 5) == "lost"
    assert waiting(("deliver-cron", b"* * * * *"), now_ms=SENT_MS) == "lost"


RETRY = AttemptRules(1_000, Fraction(2), 3_000, Fraction(1, 10), 3, OTHER, frozenset({"v"}))


def attempted(origin: AuditedRecord, *copies: AuditedRecord, now_ms: int = NOW_MS) -> AuditReport:
    return join([origin], copies, [], now_ms=now_ms, default_targets={DELAY: TARGET}, retries={DELAY: RETRY})


def copied(origin: AuditedRecord, due_ms: int, *told: Header, topic: str = TARGET, late_ms: int = 0) -> AuditedRecord:
    kept = [each for each in origin.headers if not each[0].lower().startswith(("deliver-", "delay-"))]
    source: Header = ("delay-source", origin.place.encode())
    headers = [*kept, ("delay-due", b"%d" % due_ms), source, *told]
    return AuditedRecord(topic, 0, 0, origin.key, origin.value, headers, due_ms + late_ms)


@pytest.mark.parametrize(
    ("headers", "waits_ms", "number", "target"),
    [
        ([], range(900, 1_001), 1, TARGET),
        ([("trace", b"1"), ("delay-attempt", b"1"), ("delay-target", TARGET.encode())], range(1_800, 2_001), 2, TARGET),
        ([("Delay-Attempt", b"2"), ("delay-target", b"v")], range(2_700, 3_001), 3, "v"),
        ([("delay-attempt", b"2"), ("delay-target", b"elsewhere")], range(2_700, 3_001), 3, TARGET),
        ([("delay-attempt", b"2"), ("delay-target", b"v"), ("deliver-to", b"w")], range(2_700, 3_001), 3, "w"),
        ([("delay-attempt", b"2"), ("deliver-after", b"5")], range(5, 6), 3, TARGET),
        ([("delay-attempt", b"7"), ("deliver-attempts-max", b"9")], range(2_700, 3_001), 8, TARGET),
    ],
)
def test_an_attempt_is_due_within_its_wait_and_tells_its_number_and_target(
    headers: list[Header], waits_ms: range, number: int, target: str
) -> None:
    origin = sent(0, *headers)
    told: list[Header] = [("delay-attempt", b"%d" % number), ("delay-target", target.encode())]
    for waited_ms in (waits_ms[0], waits_ms[-1]):
        copy = copied(origin, SENT_MS + waited_ms, *told, topic=target, late_ms=3)
        assert counts(attempted(origin, copy)) == {"sent": 1, "released_once": 1}
    early = copied(origin, SENT_MS + waits_ms[-1], *told, topic=target, late_ms=-1)
    assert attempted(origin, early).early == 1
    sooner = copied(origin, SENT_MS + waits_ms[0] - 1, *told, topic=target)
    assert attempted(origin, sooner).early == 1
    assert attempted(origin, now_ms=SENT_MS + waits_ms[-1] - 1).pending == 1
    assert attempted(origin, now_ms=SENT_MS + waits_ms[-1]).lost == 1
    for wrong in ([], [("delay-attempt", b"%d" % (number + 1)), told[1]], [told[0], ("delay-target", b"x")]):
        assert attempted(origin, copied(origin, SENT_MS + waits_ms[-1], *wrong, topic=target)).altered == 1


def test_an_exhausted_record_goes_to_the_dead_letter_topic_with_its_count() -> None:
    came: list[Header] = [("delay-attempt", b"3"), ("delay-target", b"v")]
    origin, spent = sent(0, *came, ("deliver-at", b"soon")), ("delay-attempts-exhausted", b"3")
    assert attempted(origin, copied(origin, SENT_MS, *came, spent, topic=OTHER)).ok
    assert attempted(origin, copied(origin, SENT_MS, *came, topic=OTHER)).altered == 1
    assert attempted(origin, copied(origin, SENT_MS, spent, topic=OTHER)).altered == 1
    assert attempted(origin, copied(origin, SENT_MS, *came, spent, topic="v")).wrong_target == 1
    assert attempted(origin, now_ms=SENT_MS).lost == 1


@pytest.mark.parametrize("raw", [b"1001", b"x", b"", None, b"9" * 30])
def test_a_count_that_no_router_writes_must_not_be_released(raw: bytes | None) -> None:
    origin = sent(0, ("delay-attempt", raw))
    assert attempted(origin, copied(origin, SENT_MS)).unreadable == 1
    assert join([origin], [], [refused(origin)], now_ms=NOW_MS, retries={DELAY: RETRY}).rejected == 1


def test_a_record_without_any_target_known_that_is_nowhere_is_lost() -> None:
    assert counts(join([sent(0, AFTER)], [], [], now_ms=NOW_MS)) == {"sent": 1, "lost": 1}


def test_a_record_without_any_target_known_may_be_in_one_topic_only() -> None:
    origin = sent(0, AFTER)
    assert join([origin], [released(origin)], [], now_ms=NOW_MS).released_once == 1
    both = join([origin], [released(origin), released(origin, topic=OTHER)], [], now_ms=NOW_MS)
    assert counts(both) == {"sent": 1, "duplicated": 1}


@pytest.mark.parametrize("copies", [2, 3])
def test_more_than_one_copy_is_a_duplicate(copies: int) -> None:
    origin = sent(0, AFTER)
    report = audited([origin], [released(origin, offset=n) for n in range(copies)])
    assert counts(report) == {"sent": 1, "duplicated": 1}
    assert not report.ok


def test_released_and_rejected_or_rejected_twice_is_a_duplicate() -> None:
    origin = sent(0, AFTER)
    assert counts(audited([origin], [released(origin)], [refused(origin)])) == {"sent": 1, "duplicated": 1}
    assert counts(audited([origin], [], [refused(origin), refused(origin)])) == {"sent": 1, "duplicated": 1}


@pytest.mark.parametrize(("late_ms", "early"), [(-1, 1), (0, 0)])
def test_a_copy_appended_before_the_due_time_is_early(late_ms: int, early: int) -> None:
    origin = sent(0, AFTER)
    report = audited([origin], [released(origin, late_ms)])
    assert report.early == early
    assert report.ok == (not early)
    assert list(report.lateness_ms) == [late_ms]


def test_due_is_worked_out_from_what_was_sent_not_from_what_the_router_says() -> None:
    origin = sent(0, AFTER)
    lie = released(origin, -500)
    lie = lie._replace(headers=[("delay-due", b"%d" % SENT_MS), *lie.headers[1:]])
    assert audited([origin], [lie]).early == 1


def test_a_target_without_append_times_is_named() -> None:
    origin = sent(0, AFTER)
    report = audited([origin], [released(origin, appended=False)])
    assert report.create_time == 1
    assert "create time 1" in report.summary()


def test_lateness_counts_from_sending_where_that_was_after_the_due_time() -> None:
    overdue = sent(0, ("deliver-at", b"%d" % (SENT_MS - 60_000)))
    assert list(audited([overdue], [released(overdue, 7)]).lateness_ms) == [7]
    at_once = sent(0)
    assert list(audited([at_once], [released(at_once, 7)]).lateness_ms) == [7]


def test_a_clock_of_a_producer_that_runs_ahead_makes_nothing_early() -> None:
    origin = sent(0, at_ms=SENT_MS + 60_000)
    out = released(origin)._replace(timestamp_ms=SENT_MS)
    report = audited([origin], [out])
    assert report.ok
    assert list(report.lateness_ms) == [0]


HEADERS: tuple[Header, ...] = (("a", b"1"), ("b", b""), ("a", None), ("a", b"1"))


@pytest.mark.parametrize(
    "change",
    [
        {"key": None},
        {"key": b""},
        {"value": None},
        {"value": b"w"},
        {"headers": HEADERS[1:]},
        {"headers": (*HEADERS, ("new", b"x"))},
        {"headers": (HEADERS[1], HEADERS[0], *HEADERS[2:])},
        {"headers": (HEADERS[0], ("b", None), *HEADERS[2:])},
        {"headers": (*HEADERS[:2], ("a", b""), HEADERS[3])},
    ],
    ids=str,
)
def test_any_change_of_key_value_or_headers_shows(change: dict[str, object]) -> None:
    origin = sent(0, *HEADERS, AFTER)
    good = released(origin)
    assert audited([origin], [good]).ok
    provenance = good.headers[-3:]
    fields = {name: (*item, *provenance) if isinstance(item, tuple) else item for name, item in change.items()}
    bad = AuditedRecord(**{**good._asdict(), **fields})
    report = audited([origin], [bad])
    assert counts(report) == {"sent": 1, "released_once": 1, "altered": 1}
    assert not report.ok


@pytest.mark.parametrize("parts", [((b"ab", b"c"), (b"a", b"bc")), ((b"1:a", b""), (b"1", b"a"))])
def test_bytes_do_not_move_between_key_and_value(
    parts: tuple[tuple[bytes, bytes], tuple[bytes, bytes]],
) -> None:
    (key, value), (other_key, other_value) = parts
    origin = sent(0, AFTER, key=key, value=value)
    moved = released(origin)._replace(key=other_key, value=other_value)
    assert audited([origin], [moved]).altered == 1


@pytest.mark.parametrize("key", [b"new", b"", None])
def test_the_key_may_be_overridden(key: bytes | None) -> None:
    origin = sent(0, AFTER, ("deliver-key", key))
    assert audited([origin], [released(origin)._replace(key=key)]).ok
    assert audited([origin], [released(origin)]).altered == 1


def test_inbound_provenance_is_not_compared_and_not_believed() -> None:
    origin = sent(1, ("delay-source", b"d/0/0"), AFTER)
    out = released(origin)
    without = out._replace(headers=out.headers[1:])
    assert counts(audited([origin], [without])) == {"sent": 1, "released_once": 1}


def test_a_rejected_record_keeps_every_header_and_its_key() -> None:
    origin = sent(0, ("deliver-at", b"soon"), ("deliver-key", b"z"), ("delay-source", b"x/0/0"), *HEADERS)
    copy = refused(origin)
    assert counts(audited([origin], [], [copy])) == {"sent": 1, "rejected": 1}
    for changed in (
        copy._replace(headers=copy.headers[1:]),
        copy._replace(key=b"z"),
        copy._replace(headers=[*copy.headers[:-3], *copy.headers[-2:]]),
    ):
        assert counts(audited([origin], [], [changed])) == {"sent": 1, "rejected": 1, "altered": 1}


def test_fan_out_is_once_when_each_target_has_it_once() -> None:
    origin = sent(0, *FAN_OUT)
    here, there = released(origin), released(origin, topic=OTHER)
    assert counts(audited([origin], [here, there])) == {"sent": 1, "released_once": 1}
    assert counts(audited([origin], [there, here])) == {"sent": 1, "released_once": 1}
    assert counts(audited([origin], [here])) == {"sent": 1, "lost": 1}
    assert counts(audited([origin], [here, there, there])) == {"sent": 1, "duplicated": 1}
    assert counts(audited([origin], [here, here])) == {"sent": 1, "duplicated": 1}


def test_a_topic_the_record_did_not_name_is_the_wrong_one() -> None:
    origin = sent(0, AFTER)
    astray = released(origin, topic=OTHER)
    assert counts(audited([origin], [astray])) == {"sent": 1, "lost": 1, "wrong_target": 1}
    assert counts(audited([origin], [released(origin), astray])) == {
        "sent": 1,
        "duplicated": 1,
        "wrong_target": 1,
    }


def test_a_record_from_nowhere_is_foreign_and_one_of_somebody_else_is_not_ours() -> None:
    ghost = released(sent(99, AFTER))
    report = audited([], [ghost, AuditedRecord(TARGET, 0, 1, None, b"x", [], SENT_MS)], [refused(sent(98))])
    assert counts(report) == {"foreign": 2}
    assert not report.ok


@pytest.mark.parametrize(
    ("headers", "due"),
    [
        ((), AT_ONCE),
        ([("deliver-at", b"1767225600123")], 1767225600123),
        ([("deliver-at", b"2026-01-01T00:00:00Z")], SENT_MS),
        ([("deliver-at", b"2026-01-01T02:00:00.0001+02:00")], SENT_MS + 1),
        ([("deliver-at", b"1969-12-31T23:59:59Z")], 0),
        ([("deliver-after", b"250")], SENT_MS + 250),
        ([("deliver-after", b"PT15M")], SENT_MS + 900_000),
        ([("deliver-after", b"P1W2DT3H4M5.0005S")], SENT_MS + 788_645_001),
        ([("deliver-after", b"PT0,5S")], SENT_MS + 500),
        ([("deliver-after", b"5"), ("deliver-at", b"1767225600123")], 1767225600123),
        ([("deliver-at", b"1"), ("deliver-at", b"1")], UNREADABLE),
        ([("deliver-at", b"2026-01-01T00:00:00")], UNREADABLE),
        ([("deliver-at", b"soon")], UNREADABLE),
        ([("deliver-at", b"-5")], UNREADABLE),
        ([("deliver-at", "٣".encode())], UNREADABLE),
        ([("deliver-at", b"")], UNREADABLE),
        ([("deliver-at", None)], AT_ONCE),
        ([("deliver-at", None), ("Deliver-At", b"5")], 5),
        ([("deliver-at", b"1"), ("Deliver-At", b"1")], UNREADABLE),
        ([("DELIVER-AFTER", b"15m")], SENT_MS + 900_000),
        ([("deliver-after", b"500ms")], SENT_MS + 500),
        ([("deliver-after", b"1h30m")], UNREADABLE),
        ([("deliver-after", b"P")], UNREADABLE),
        ([("deliver-after", b"PT")], UNREADABLE),
        ([("deliver-after", b"P1Y")], UNREADABLE),
    ],
)
def test_due_times(headers: Sequence[Header], due: int) -> None:
    assert due_ms(sent(0, *headers)) == due


def test_an_unreadable_schedule_is_to_be_rejected() -> None:
    origin = sent(0, ("deliver-at", b"soon"))
    assert counts(audited([origin])) == {"sent": 1, "lost": 1}
    assert counts(audited([origin], [released(origin)])) == {"sent": 1, "released_once": 1, "unreadable": 1}


def test_order_is_by_due_time_then_offset_within_a_delay_and_a_target_partition() -> None:
    first, second = sent(0, ("deliver-after", b"10")), sent(1, ("deliver-after", b"10"))
    sooner = sent(2, ("deliver-after", b"5"))
    elsewhere = sent(3, ("deliver-after", b"1"))._replace(partition=1)
    origins = [first, second, sooner, elsewhere]
    in_order = [released(record, offset=n) for n, record in enumerate([sooner, first, elsewhere, second])]
    assert check_order(origins, in_order) == []
    for wrong in ([first, sooner], [second, first], [first, first]):
        assert len(check_order(origins, [released(record, offset=n) for n, record in enumerate(wrong)])) == 1
    assert check_order(origins, [released(first), released(sooner, topic=OTHER)]) == []


def test_samples_are_capped_and_counts_are_not() -> None:
    report = audited([sent(offset, AFTER) for offset in range(500)])
    assert report.lost == 500
    assert len(report.samples["lost"]) == 20


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    origins = [sent(offset, AFTER) for offset in range(100)]
    report = audited(origins, [released(origin, origin.offset + 1) for origin in reversed(origins)])
    assert [report.percentile_ms(percent) for percent in (0, 50, 99, 100)] == [1, 50, 99, 100]
    assert audited([]).percentile_ms(50) == 0


def test_the_command_wants_its_topics(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--bootstrap", "localhost:1"])
    assert caught.value.code == 2
    assert "--delay" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["--bootstrap", "localhost:1", "--delay", "d", "--targets", "t", "--delays-ms", "d=5s"])
    assert caught.value.code == 2
    assert "'5s': write TOPIC=MS" in capsys.readouterr().err
    with pytest.raises(SystemExit) as caught:
        main(["--bootstrap", "localhost:1", "--delay", "d", "--targets", "t", "--retries", "d=1s,2,1h,0,8,dead"])
    assert caught.value.code == 2
    assert "--retries: write TOPIC=FIRST_MS,FACTOR" in capsys.readouterr().err


def test_a_retry_is_read_from_the_shell() -> None:
    assert _retry("d=1000,1.5,60000,0.1,8,dead,a,b") == (
        "d",
        AttemptRules(1_000, Fraction(3, 2), 60_000, Fraction(1, 10), 8, "dead", frozenset({"a", "b"})),
    )


def occurrence(offset: int, number: int, due: int, *, first: int = 0) -> AuditedRecord:
    series = b"%d %d %d %s" % (first, number, due, b"0" * 32)
    return sent(offset, ("deliver-every", b"10s"), ("a", b"b"), ("deliver-series", series))


def test_occurrences_are_due_as_the_router_has_written() -> None:
    first = sent(0, ("deliver-every", b"10s"), ("a", b"b"))
    second = occurrence(5, 2, SENT_MS + 20_000)
    assert (due_ms(first), due_ms(second)) == (SENT_MS + 10_000, SENT_MS + 20_000)
    out = [
        each._replace(headers=[*each.headers, ("delay-occurrence", b"1"), ("delay-series", b"d/0/0")])
        for each in (released(first), released(second, offset=1))
    ]
    assert counts(audited([first, second], out)) == {"sent": 2, "released_once": 2}
    assert counts(audited([first, second], [out[0]])) == {"sent": 2, "released_once": 1, "lost": 1}


def test_what_begins_a_series_is_released_as_its_first_occurrence() -> None:
    begins = sent(0, ("deliver-cron", b"* * * * *"))
    assert counts(audited([begins])) == {"sent": 1, "lost": 1}
    first = occurrence(5, 1, SENT_MS + 60_000)
    assert counts(audited([begins, first], [released(first)])) == {"sent": 2, "released_once": 2}


def test_a_rejected_occurrence_says_which_one_it_is_and_is_not_altered() -> None:
    second = occurrence(5, 2, SENT_MS)
    found = refused(second)
    told: list[Header] = [("delay-occurrence", b"2"), ("delay-series", b"d/0/0")]
    marked = found._replace(headers=[*found.headers[:-3], *told, *found.headers[-3:]])
    assert counts(audited([second], no=[marked])) == {"sent": 1, "rejected": 1}
