"""SIGSTOP at every named place: another router takes over, and the one that was stopped goes on from there."""

import time
from random import Random

import psutil
import pytest

from sidecar import failpoints
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.scenario import Load, wait_until

SESSION = {"session_timeout": "2s"}
REACHED_WITHIN_S = 60.0
# Those of adopting are passed only where a job has staged something.
PLACES = [place for place in failpoints.PLACES if not place.startswith("adopt.")]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_it_goes_on_where_it_was_stopped_and_owns_nothing(
    place: str, lone: FaultStage, rng: Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = lone.target()
    delay = lone.delay(default_target=out, **SMALL_BUCKETS)
    first, second = (lone.router(name, instance_id=name, **SESSION) for name in ("first", "second"))
    with first, second, Load(lone, [delay], rng, a_second=150, delays_ms=(0, 8_000)) as load:
        # So that there are buckets to be loaded, merged and removed.
        first.start_and_wait()
        time.sleep(4)
        first.kill()
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
        load.finish()
        settled(lone)
        # What an owner refers to never goes; from one who is not the owner any more it may be gone.
        assert not second.events("segment_damaged")
        for router in (first, second):
            assert not router.events("partition_failed")
            assert not router.events("partition_refused")
            assert router.stop() == 0
