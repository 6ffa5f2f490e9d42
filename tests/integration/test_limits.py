"""Tests with more payload than memory, and with a log that has lost pending records."""

from tests.integration.scenario import Header, Stage, header, now_ms, wait_until
from tests.integration.serving import serving
from tests.integration.stored_buckets import delete_records

MIB = 1 << 20


def test_pending_records_removed_while_the_router_runs(stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    with stage.router(payload_memory="1B") as router:
        router.start_and_wait()
        at: Header = ("deliver-at", b"%d" % (now_ms() + 5_000))
        stage.send_many(delay, [[at]] * 20)
        wait_until(lambda: router.metric(f'pending_records{{topic="{delay}"}}') == 20, "all are indexed")
        delete_records(stage, delay, 0, 10)
        assert [record.value for record in stage.wait_records(out, 10)] == [b"%d" % number for number in range(10, 20)]
        wait_until(lambda: router.metric(f'records_lost_total{{topic="{delay}"}}') == 10, "ten are counted as lost")
        (event,) = router.events("records_lost")
        assert (event["first_offset"], event["last_offset"], event["count"]) == (0, 9, 10)
        stage.send(delay, value=b"next")
        assert stage.wait_records(out, 11)[-1].value == b"next"
        assert router.stop() == 0


def test_pending_records_removed_while_the_router_is_down(stage: Stage) -> None:
    with serving(stage) as (router, delay, out):
        at: Header = ("deliver-at", b"%d" % (now_ms() + 5_000))
        stage.send_many(delay, [[at]] * 20)
        stage.send(delay, value=b"commits the cursor")
        stage.wait_records(out, 1)
        router.kill()
        delete_records(stage, delay, 0, 15)
        router.start_and_wait()
        assert router.metric(f'records_lost_total{{topic="{delay}"}}') == 15
        (event,) = router.events("records_lost")
        assert (event["needed_from"], event["log_starts_at"]) == (0, 15)
        assert "retention" in event["remedy"]
        found = stage.wait_records(out, 6)
        assert sorted(header(record, "delay-source") or b"" for record in found[1:]) == [
            f"{delay}/0/{offset}".encode() for offset in range(15, 20)
        ]
        assert router.stop() == 0


def test_records_removed_before_they_were_ever_looked_at(stage: Stage) -> None:
    with serving(stage) as (router, delay, out):
        stage.send(delay)
        stage.wait_records(out, 1)
        assert router.stop() == 0
        stage.send_many(delay, [[]] * 10)
        delete_records(stage, delay, 0, 6)
        router.start_and_wait()
        assert router.metric(f'records_lost_total{{topic="{delay}"}}') == 5
        assert len(stage.wait_records(out, 6)) == 6
        assert router.stop() == 0
