"""Tests of cancellation and replacement by id: in memory, sealed, and across a crash; each control has a receipt."""

import json

from tests.integration.readiness import partitions
from tests.integration.scenario import Header, Stage, header, now_ms, wait_until
from tests.integration.stored_buckets import state

HOUR_MS = 3_600_000


def test_what_is_cancelled_or_replaced_never_leaves_and_each_control_has_a_receipt(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out, seal_age="1s", seal_beyond="0ms", seal_records=600)
    receipts = f"{delay}.receipts"
    with stage.router() as router:
        router.start_and_wait()
        far_ms = now_ms() + HOUR_MS
        for name in (b"sealed", b"other", b"replaced"):
            stage.send(delay, ("deliver-id", name), ("deliver-at", b"%d" % far_ms), value=b"first")
        wait_until(lambda: any(state(stage, delay).buckets), "they are in a bucket")
        router.kill()
        router.start_and_wait()
        due_ms = now_ms() + 5_000
        soon: Header = ("deliver-at", b"%d" % due_ms)
        stage.send(delay, ("deliver-id", b"memory"), soon, value=b"first")
        for name in (b"sealed", b"memory", b"nobody"):
            stage.send(delay, ("deliver-cancel", name), ("correlation", name))
        stage.send(delay, ("deliver-id", b"replaced"), ("deliver-replace", b"true"), soon, value=b"second")
        stage.send(delay, ("deliver-cancel", b"other"), ("deliver-if-due", b"%d" % due_ms))
        answers = {record.key: (record, json.loads(record.value or b"")) for record in stage.wait_records(receipts, 5)}
        outcomes = {name: answer["outcome"] for name, (_, answer) in answers.items()}
        assert outcomes == {
            b"sealed": "cancelled",
            b"memory": "cancelled",
            b"nobody": "not-pending",
            b"replaced": "replaced",
            b"other": "changed",
        }
        record, answer = answers[b"sealed"]
        assert answer["cancelled"] == [{"offset": 0, "due": far_ms}]
        assert header(record, "correlation") == b"sealed"
        assert answers[b"replaced"][1]["due"] == due_ms
        router.kill()
        router.start_and_wait()
        (released,) = stage.wait_records(out, 1)
        assert (released.value, header(released, "delay-id")) == (b"second", b"replaced")
        # The record has left, and with it every other record that could leave at the same time.
        stage.send(delay, ("deliver-cancel", b"replaced"))
        last = stage.wait_records(receipts, 6)[-1]
        assert json.loads(last.value or b"")["outcome"] == "not-pending"
        assert len(stage.records(out)) == 1
        assert router.stop() == 0
    report = stage.audit()
    assert report.ok, report.samples
    assert (report.sent, report.released_once, report.pending, report.answered) == (10, 1, 1, 5)
    assert (report.cancelled, report.replaced, report.lost) == (2, 1, 0)
    assert report.summary().endswith("lost 0, cancelled 2, replaced 1, answered 5, pending 1")


def test_what_was_cancelled_is_not_told_as_pending(stage: Stage) -> None:
    """A cancelled record stays in its bucket until it is due; a new owner knows of the cancellation from the state
    alone.
    """
    out = stage.target()
    delay = stage.delay(default_target=out, seal_age="1s", seal_beyond="0ms", seal_records=600, max_buckets=100)
    place = f"{delay}/0"
    with stage.router() as router:
        router.start_and_wait()
        far: Header = ("deliver-at", b"%d" % (now_ms() + HOUR_MS))
        stage.send_many(delay, [[("deliver-id", b"%d" % number), far] for number in range(2_000)])
        wait_until(lambda: sum(each.entries for each in state(stage, delay).buckets) == 2_000, "all are in buckets")
        stage.send_many(delay, [[("deliver-cancel", b"%d" % number)] for number in range(0, 2_000, 2)])
        stage.wait_records(f"{delay}.receipts", 1_000)
        wait_until(lambda: partitions(router)[place]["pending"] == 1_000, "half of them are pending")
        assert sum(each.entries for each in state(stage, delay).buckets) == 2_000
        router.kill()
        router.start_and_wait()
        assert partitions(router)[place]["pending"] == 1_000
        stage.send_many(delay, [[("deliver-cancel", b"%d" % number)] for number in range(1, 2_000, 2)])
        wait_until(lambda: partitions(router)[place]["pending"] == 0, "none is pending")
        assert router.metric(f'delay_router_pending_records{{topic="{delay}"}}') == 0
        assert router.stop() == 0
