"""Tests of many controls for one id, and of one control for an idle partition: due records do not wait."""

import json
import time
from statistics import median

from tests.integration.scenario import Header, Stage, now_ms, wait_until
from tests.integration.stored_buckets import state

HOUR_MS = 3_600_000
IN_TIME_S = 20.0
"""The time within which a due record leaves behind all the controls. A busy machine needs some seconds for that; it
took a minute when a control looked at each schedule of its id, or each move took a transaction.
"""


def at(due_ms: int) -> Header:
    return "deliver-at", b"%d" % due_ms


def released_after_s(stage: Stage, delay: str, out: str, controls: list[list[Header]]) -> float:
    """Send these controls, then a record that is due at once. Return the seconds until that record arrives."""
    stage.send_many(delay, controls)
    began_s = time.monotonic()
    stage.send(delay, value=b"due at once")
    stage.wait_records(out, 1, timeout_s=180)
    return time.monotonic() - began_s


def test_controls_about_an_id_with_many_schedules_do_not_hold_up_what_is_due(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        customer: Header = ("deliver-id", b"customer-7")
        stage.send_many(delay, [(customer, at(far_ms + number)) for number in range(20_000)])
        cancel: Header = ("deliver-cancel", b"customer-7")
        # Every other control names a due time that no schedule has.
        wanted_ms = [far_ms + number if number % 2 else far_ms - 1 - number for number in range(4_000)]
        controls = [[cancel, ("deliver-if-due", b"%d" % due_ms)] for due_ms in wanted_ms]
        assert released_after_s(stage, delay, out, controls) < IN_TIME_S
        receipts = stage.wait_records(f"{delay}.receipts", len(controls))
        assert router.stop() == 0
    outcomes = [json.loads(each.value or b"")["outcome"] for each in receipts]
    assert outcomes == ["changed", "cancelled"] * 2_000
    report = stage.audit()
    assert report.ok, report.samples
    assert (report.cancelled, report.answered, report.pending) == (2_000, 4_000, 18_000)


def test_moves_of_one_schedule_do_not_hold_up_what_is_due(stage: Stage) -> None:
    out, later = stage.target(), stage.target("later")
    delay = stage.delay(default_target=out, allowed_targets=[later])
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        stage.send(delay, ("deliver-id", b"timeout"), ("deliver-to", later.encode()), at(far_ms), value=b"timed out")
        moves: list[list[Header]] = [[("deliver-move", b"timeout"), at(far_ms + number)] for number in range(1, 3_001)]
        assert released_after_s(stage, delay, out, moves) < IN_TIME_S
        stage.send(delay, ("deliver-move", b"timeout"), at(now_ms() + 500))
        (moved,) = stage.wait_records(later, 1)
        receipts = stage.wait_records(f"{delay}.receipts", 3_001)
        assert router.stop() == 0
    assert moved.value == b"timed out"
    assert {json.loads(each.value or b"")["outcome"] for each in receipts} == {"moved"}
    report = stage.audit()
    assert report.ok, report.samples
    assert (report.answered, report.released_once) == (3_001, 2)


def test_a_control_to_an_idle_partition_with_buckets_is_answered_as_soon_as_the_ids_are_read(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, seal_age="1s", seal_beyond="0ms", seal_records=10_000)
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        stage.send_many(delay, [(("deliver-id", b"order-%d" % n), at(far_ms + n)) for n in range(20_000)])
        wait_until(
            lambda: sum(each.to_offset - each.from_offset for each in state(stage, delay).buckets) >= 20_000, "sealed"
        )
        for number in range(21):
            stage.send(delay, ("deliver-cancel", b"order-%d" % (900 * number)))
            time.sleep(0.3)
        receipts = stage.wait_records(f"{delay}.receipts", 21)
        assert router.stop() == 0
    sent_ms = {each.offset: each.timestamp_ms for each in stage.records(delay)}
    controls = [int((dict(each.headers)["delay-source"] or b"").rpartition(b"/")[2]) for each in receipts]
    # The first control waits for the clients of a new reader.
    waited_ms = [each.timestamp_ms - sent_ms[offset] for each, offset in zip(receipts, controls, strict=True)][1:]
    assert all(json.loads(each.value or b"")["outcome"] == "cancelled" for each in receipts)
    assert median(waited_ms) < 150, waited_ms
    print(f"waited for receipts: {sorted(waited_ms)} ms")
