"""Tests the adoption of a job's buckets while schedules of the same ids are cancelled, replaced and moved.

The buckets are written without Spark, so that a router can be killed at each step of the adoption within seconds.
``tests/spark/test_adopted.py`` adopts the buckets of a real Spark job.
"""

from random import Random

import pytest

from index.protocol.control_headers import CANCEL, MOVE
from sidecar import failpoints
from sidecar.kafka.client.admin import log_range
from tests.faults.named_load import NAMES, RECURRING, NamedLoad, check_receipts
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.backfills import BackfillJob, with_backfill_topic
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Header, now_ms, wait_until
from tests.integration.stored_buckets import manifests_ever, state

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SCHEDULES = 600
CONTROLS = 40
PLACES = ("adopt.before", "adopt.after", "adopt.catching_up")


def _schedules(rng: Random) -> list[list[Header]]:
    """Return schedules of few ids, some of them due already, and the last in 20 s."""
    dues_ms = [now_ms() + rng.randint(-10_000, 20_000) for _ in range(SCHEDULES)]
    return [[("deliver-id", b"id-%d" % rng.randrange(NAMES)), ("deliver-at", b"%d" % due_ms)] for due_ms in dues_ms]


def _controls(rng: Random) -> list[list[Header]]:
    names = [b"id-%d" % rng.randrange(NAMES) for _ in range(CONTROLS)]
    after: Header = ("deliver-after", b"%d" % rng.randint(1_000, 20_000))
    return [[(MOVE, name), after] if rng.random() < 0.5 else [(CANCEL, name)] for name in names]


def test_controls_find_the_schedules_of_a_bucket_that_is_being_adopted(
    lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner is killed before, in and after the adoption of each of two buckets, the second of them under a load."""
    out = lone.target()
    delay = with_backfill_topic(lone, lone.delay(default_target=out, **SMALL_BUCKETS, **RECURRING))
    lone.alter(f"{delay}.receipts", APPEND_TIME)
    with lone.router(batch_records=50) as router:
        router.start_and_wait()
        lone.send_many(delay, _schedules(rng)[:50])
        _stage_bucket(lone, router, delay, "first", rng)
        _die_and_adopt(lone, router, delay, monkeypatch)
        _stage_bucket(lone, router, delay, "second", rng)
        with NamedLoad(lone, delay, rng) as load:
            _die_and_adopt(lone, router, delay, monkeypatch)
            load.finish()
        report = settled(lone)
        check_receipts(lone, delay, out)
        assert min(report.cancelled, report.replaced, report.moved) > 0, report.summary()
        adopted = [each for each in manifests_ever(lone, delay) if each.id_pages and each.entries >= SCHEDULES - 10]
        ranges = {(each.from_offset, each.to_offset) for each in adopted}
        # A merge that takes an adopted bucket in has a range around it.
        outer = {each for each in ranges for other in ranges - {each} if each[0] <= other[0] and other[1] <= each[1]}
        assert len(ranges - outer) == 2, f"a bucket was not adopted: {ranges}"
        for event in ("backfill_discarded", "backfill_refused", "id_page_damaged"):
            assert not router.events(event)
        assert router.stop() == 0


def _stage_bucket(stage: FaultStage, router: RouterProcess, delay: str, job: str, rng: Random) -> None:
    """Kill the router at the log end. Send schedules, make a bucket of them by a job, and send controls."""
    wait_until(lambda: state(stage, delay).progress.cursor == log_range(stage.admin, delay, 0)[1], "all is indexed")
    router.kill()
    stage.end_open(delay)
    _, start = log_range(stage.admin, delay, 0)
    stage.send_many(delay, _schedules(rng))
    end = stage.records(delay)[-1].offset + 1
    BackfillJob(stage, router.config, delay).run(job, [(start, end)])
    stage.send_many(delay, _controls(rng))


def _die_and_adopt(stage: FaultStage, router: RouterProcess, delay: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the router die at each failpoint of the adoption, and then read the controls behind the bucket."""
    _, end = log_range(stage.admin, delay, 0)
    for place in PLACES:
        with monkeypatch.context() as environ:
            environ.setenv(failpoints.VARIABLE, place)
            router.start()
        wait_until(lambda: not router.running, f"it dies at {place}", 60)
    router.start_and_wait()
    wait_until(lambda: state(stage, delay).progress.cursor >= end, "the controls behind the bucket are read")
