"""Stops routers at every failpoint: another router takes over, and the stopped one goes on from there."""

import time
from random import Random

import psutil
import pytest

from sidecar import failpoints
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.backfills import BackfillJob, some_records, with_backfill_topic
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, wait_until

SESSION = {"session_timeout": "2s"}
REACHED_WITHIN_S = 60.0
# Routers pass the failpoints of adoption only if a job has staged buckets.
ADOPTING = [place for place in failpoints.PLACES if place.startswith("adopt.")]
# The command end-transaction passes some others (test_forgotten.py), and a router that gives partitions up the
# last one (test_ownership.py).
PLACES = [place for place in failpoints.PLACES if not place.startswith(("adopt.", "ending.", "group."))]
NOTED = "recovery.noted"
# In a lane, the places of a take-over, and those before and after a commit that the next owner builds on.
IN_LANE = [place for place in PLACES if place.startswith(("recovery.", "seal.", "removal."))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "lanes"), [(place, 0) for place in PLACES if place != NOTED] + [(place, 1) for place in IN_LANE]
)
def test_it_goes_on_where_it_was_stopped_and_owns_nothing(
    place: str, lanes: int, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = 1 + lanes
    delay = lone.delay(partitions=partitions, default_target=lone.target(), **SMALL_BUCKETS)
    first, second = (lone.router(name, instance_id=name, lanes=lanes, **SESSION) for name in ("first", "second"))
    load = Load(lone, [delay], rng, partitions=partitions, a_second=150 * partitions, delays_ms=(0, 8_000))
    with first, second, load:
        # This run makes buckets that can be loaded, merged and removed.
        first.start_and_wait()
        time.sleep(4)
        first.kill()
        _stop_while_the_other_takes_over(place, first, second, rng, monkeypatch)
        load.finish()
        settled(lone)
        _both_are_well(first, second)


@pytest.mark.slow
@pytest.mark.parametrize("place", ADOPTING)
def test_it_goes_on_with_adopting_what_the_other_has_adopted(
    place: str, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = lone.target()
    delay = with_backfill_topic(lone, lone.delay(default_target=out, **SMALL_BUCKETS))
    first, second = (lone.router(name, instance_id=name, batch_records=400, **SESSION) for name in ("first", "second"))
    with first, second:
        first.start_and_wait()
        lone.send_many(delay, list(some_records(rng, 300)))
        # A watermark then lies in front of the adopted buckets, so that they have to catch up.
        wait_until(lambda: len(lone.records(out)) > 0, "the first ones are released")
        first.kill()
        lone.send_many(delay, list(some_records(rng, 3_000)))
        end = lone.records(delay)[-1].offset + 1
        BackfillJob(lone, first.config, delay).run("nightly", [(200, 1_500), (1_500, end)])
        _stop_while_the_other_takes_over(place, first, second, rng, monkeypatch)
        settled(lone)
        assert sum(len(router.events("backfill_adopted")) for router in (first, second)) >= 1
        _both_are_well(first, second)


def _stop_while_the_other_takes_over(
    place: str, first: RouterProcess, second: RouterProcess, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as environ:
        environ.setenv(failpoints.VARIABLE, f"{failpoints.STOP}{place}")
        first.start()
    process = psutil.Process(first.pid)
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED, f"it is at {place}", REACHED_WITHIN_S)
    second.start_and_wait()
    wait_until(lambda: bool(second.events("partition_active")), "the other one has taken over")
    time.sleep(rng.uniform(0, 2))
    assert process.status() == psutil.STATUS_STOPPED
    first.resume()
    time.sleep(2)


def _both_are_well(first: RouterProcess, second: RouterProcess) -> None:
    # A segment that an owner refers to never disappears; a former owner may find that segments are gone.
    assert not second.events("segment_damaged")
    for router in (first, second):
        assert not router.events("partition_failed")
        assert not router.events("partition_refused")
        assert router.stop() == 0
