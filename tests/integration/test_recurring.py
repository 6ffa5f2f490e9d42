"""Tests of recurring schedules with a router that is killed: each occurrence once, in order, none early."""

import json
import time
from itertools import pairwise
from random import Random

from sidecar.dev.audit import AuditedRecord
from tests.integration.scenario import CREATE_TIME, Header, Stage, header, now_ms, released_due_ms, wait_until

KILLS = 3
TIMES = 12
PERIOD_MS = 500
SERIES = 12
TIMES_AFTER = 3


def test_a_series_neither_skips_nor_doubles_when_its_router_is_killed(stage: Stage, rng: Random) -> None:
    out = stage.target("out")
    delay = stage.delay("delay", default_target=out, recurring=True, min_period="100ms")
    own: list[Header] = [("a", None), ("a", b""), ("trace", b"1")]
    recurs: list[Header] = [("deliver-every", b"%dms" % PERIOD_MS), ("deliver-times", b"%d" % TIMES)]
    minute_ms = now_ms() // 60_000 * 60_000
    begins: Header = ("deliver-at", b"%d" % minute_ms)
    with stage.router() as router:
        router.start_and_wait()
        each = stage.send(delay, *own, *recurs, ("deliver-missed", b"all"), value=b"each")
        cron = stage.send(delay, ("deliver-cron", b"* * * * *"), begins, ("deliver-times", b"1"), value=b"cron")
        forged = b"0 2 %d %s" % (now_ms(), b"0" * 32)
        stage.send(delay, ("deliver-every", b"1s"), ("deliver-series", forged), value=b"forged")
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.2, 1.5))
            router.kill()
            router.start()
        router.wait_ready()
        released = stage.wait_records(out, TIMES + 1)
        # A second copy would have followed by now: the router has read its whole state.
        assert router.stop() == 0

    series = [record for record in stage.records(out) if record.value == b"each"]
    assert [header(record, "delay-occurrence") for record in series] == [b"%d" % n for n in range(1, TIMES + 1)]
    assert {header(record, "delay-series") for record in series} == {each.encode()}
    dues_ms = [released_due_ms(record) for record in series]
    assert [due_ms - dues_ms[0] for due_ms in dues_ms] == [n * PERIOD_MS for n in range(TIMES)]
    assert all(record.timestamp_ms >= due_ms for record, due_ms in zip(series, dues_ms, strict=True))
    assert all(list(record.headers[: len(own)]) == own and record.key == b"k" for record in series)
    assert len(released) == TIMES + 1

    (only,) = [record for record in stage.records(out) if record.value == b"cron"]
    assert (header(only, "delay-occurrence"), header(only, "delay-series")) == (b"1", cron.encode())
    assert header(only, "delay-due") == b"%d" % minute_ms
    assert _reasons(stage.records(f"{delay}.rejected")) == [(b"forged", b"INVALID_SCHEDULE")]


def test_what_the_delay_topic_does_not_take_ends_a_series_loudly_and_holds_up_no_other(
    stage: Stage, rng: Random
) -> None:
    out = stage.target("out")
    delay = stage.delay("delay", default_target=out, recurring=True, config={"max.message.bytes": "2000"})
    with stage.router() as router:
        router.start_and_wait()
        # The header of the router makes the record slightly larger than the topic accepts.
        for recurs in (("deliver-every", b"1s"), ("deliver-cron", b"* * * * *")):
            stage.send(delay, recurs, ("deliver-after", b"0"), value=rng.randbytes(1_870))
        stage.send(delay, ("deliver-every", b"1s"), ("deliver-times", b"2"), value=b"small")
        assert len(stage.wait_records(out, 2)) == 2
        ended = stage.wait_records(f"{delay}.rejected", 2)
        assert router.stop() == 0
    assert [record.value for record in stage.records(out)] == [b"small"] * 2
    assert {header(record, "delay-error") for record in ended} == {b"RECORD_TOO_LARGE"}
    assert all(
        b"the record that follows it cannot be written" in (header(each, "delay-error-message") or b"")
        for each in ended
    )


def test_a_series_that_is_cancelled_has_no_further_occurrence_wherever_the_next_one_is(
    stage: Stage, rng: Random
) -> None:
    """The next occurrence is pending, or was written by a killed router and not read since; one series replaces
    another.
    """
    out = stage.target("out")
    delay = stage.delay("delay", default_target=out, recurring=True, min_period="50ms", max_delay="1h")
    every: Header = ("deliver-every", b"100ms")
    names = [b"series-%d" % number for number in range(SERIES)]
    with stage.router() as router:
        router.start_and_wait()
        for name in names:
            stage.send(delay, ("deliver-id", name), every, value=name)
        stage.send(delay, ("deliver-id", b"changed"), every, value=b"before")
        stage.wait_records(out, 3 * SERIES)
        for name in names:
            stage.send(delay, ("deliver-cancel", name))
            if rng.random() < 0.4:
                router.kill()
                router.start()
        replaces: Header = ("deliver-replace", b"true")
        stage.send(
            delay, ("deliver-id", b"changed"), replaces, every, ("deliver-times", b"%d" % TIMES_AFTER), value=b"after"
        )
        router.wait_ready()
        receipts = stage.wait_records(f"{delay}.receipts", SERIES + 1)
        wait_until(
            lambda: len([each for each in stage.records(out) if each.value == b"after"]) == TIMES_AFTER,
            "its three times",
        )
        time.sleep(1)
        assert router.stop() == 0
    told = [json.loads(record.value or b"") for record in receipts]
    assert any((record.key or b"").startswith(b"transit/") for record in stage.records(f"{delay}.delay-state"))
    assert [each["outcome"] for each in told] == ["cancelled"] * SERIES + ["replaced"]
    assert all(len(each["cancelled"]) == 1 for each in told)
    after = [record for record in stage.records(out) if record.value == b"after"]
    assert [header(record, "delay-occurrence") for record in after] == [b"1", b"2", b"3"]
    report = stage.audit()
    assert report.ok, report.samples
    assert (report.pending, report.cancelled, report.replaced, report.answered) == (0, SERIES, 1, SERIES)


def test_no_occurrence_is_skipped_that_fell_due_while_no_router_ran(stage: Stage) -> None:
    """Both series have ``deliver-missed = all``: one by cron was sent in the meantime, one was moved meanwhile."""
    out = stage.target("out")
    delay = stage.delay("delay", default_target=out, recurring=True, max_delay="1h", config=CREATE_TIME)
    every_missed: Header = ("deliver-missed", b"all")
    with stage.router() as router:
        router.start_and_wait()
        every: Header = ("deliver-every", b"2s")
        stage.send(delay, ("deliver-id", b"m"), every, every_missed, ("deliver-times", b"8"), value=b"m")
        stage.wait_records(out, 1)
        router.kill()
    sent_ms = now_ms() - 130_000
    stage.send(
        delay,
        ("deliver-cron", b"* * * * *"),
        every_missed,
        ("deliver-until", b"%d" % (now_ms() + 1_000)),
        value=b"cron",
        timestamp_ms=sent_ms,
    )
    stage.send(delay, ("deliver-move", b"m"), ("deliver-after", b"PT15S"), timestamp_ms=now_ms() - 139_000)
    with stage.router() as router:
        router.start_and_wait()
        stage.wait_records(out, 8 + 2)
        assert router.stop() == 0
    minutes = _dues_ms(stage.records(out), b"cron")
    first_ms = -(-sent_ms // 60_000) * 60_000
    assert minutes[:2] == [first_ms, first_ms + 60_000]
    assert all(two - one == 60_000 for one, two in pairwise(minutes))
    moved = _dues_ms(stage.records(out), b"m")[1:]
    assert [due_ms - moved[0] for due_ms in moved] == [n * 2_000 for n in range(7)]


def _dues_ms(records: list[AuditedRecord], value: bytes) -> list[int]:
    return [released_due_ms(record) for record in records if record.value == value]


def _reasons(records: list[AuditedRecord]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.value, header(record, "delay-error")) for record in records]
