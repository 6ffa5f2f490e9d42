"""Tests of a spread burst with a router that is killed in the middle of it: even, once, never early, in order."""

import json

from tests.integration.scenario import Header, Stage, header, now_ms, released_due_ms

RECORDS = 400
SPREAD_MS = 6_000
PERIOD_MS = 1_000
TIMES = 4


def test_a_burst_leaves_evenly_over_its_span_whatever_crashes(stage: Stage) -> None:
    out = stage.target("out")
    delay = stage.delay("delay", default_target=out, spread="6s", seal_age="500ms", seal_beyond="1s", recurring=True)
    with stage.router() as router:
        router.start_and_wait()
        due_ms = now_ms() + 4_000
        at: Header = ("deliver-at", b"%d" % due_ms)
        for number in range(RECORDS):
            stage.send(delay, at, ("deliver-id", b"%d" % number))
        # The condition refers to the due time that was asked for, without the shift.
        stage.send(delay, ("deliver-cancel", b"7"), ("deliver-if-due", b"%d" % due_ms))
        stage.send(delay, ("deliver-cancel", b"8"), ("deliver-if-due", b"%d" % (due_ms + 1)))
        stage.send(delay, at, ("deliver-every", b"1s"), ("deliver-times", b"%d" % TIMES), ("deliver-missed", b"all"))
        past = stage.send(delay, ("deliver-at", b"%d" % (due_ms - 3_600_000)))
        receipts = [json.loads(each.value or b"") for each in stage.wait_records(f"{delay}.receipts", 2)]
        listed = json.loads(router.command("schedules", delay, "--json", "--limit", "50").stdout)["schedules"]
        assert {each["due_ms"] - each["spread_ms"] for each in listed if each["id"]} == {due_ms}
        stage.wait_records(out, RECORDS // 3)
        router.kill()
        router.start_and_wait()
        released = stage.wait_records(out, RECORDS - 1 + TIMES + 1)
        assert router.stop() == 0
    assert [(each["outcome"], [it["due"] for it in each["cancelled"]]) for each in receipts] == [
        ("cancelled", [due_ms]),
        ("changed", []),
    ]
    spreads_ms = {header(each, "delay-source"): int(dict(each.headers).get("delay-spread") or 0) for each in released}
    assert spreads_ms[past.encode()] == 0
    for record in released:
        leaves_ms = released_due_ms(record) + spreads_ms[header(record, "delay-source")]
        assert record.timestamp_ms >= leaves_ms
    burst = [each for each in released if "delay-id" in dict(each.headers)]
    assert {header(each, "delay-due") for each in burst} == {b"%d" % due_ms}
    shares = [0] * 6
    for record in burst:
        shares[spreads_ms[header(record, "delay-source")] * 6 // SPREAD_MS] += 1
    assert max(shares) - min(shares) < 10, shares
    series = [each for each in released if "delay-occurrence" in dict(each.headers)]
    dues_ms = sorted(released_due_ms(each) for each in series)
    assert dues_ms == [due_ms + number * PERIOD_MS for number in range(TIMES)]
    report = stage.audit()
    assert report.ok, report.samples
    assert (report.released_once, report.cancelled, report.early) == (RECORDS + TIMES, 1, 0)
