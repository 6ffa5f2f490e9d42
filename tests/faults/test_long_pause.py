"""Tests a router that stops for longer than its session and transaction timeouts, like on a suspended machine."""

import time
from random import Random

import pytest

from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.scenario import Load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAUSES = 2
# Brokers look every 10 s for transactions that have timed out, and abort them.
PAUSED_S = 20.0
SHORT = {"session_timeout": "3s", "transaction_timeout": "5s"}


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "beside-another"])
def test_a_pause_that_outlasts_session_and_transaction(alone: bool, lone: FaultStage, rng: Random) -> None:
    out = lone.target("out", 2)
    delay = lone.delay("delay", 2, default_target=out, **SMALL_BUCKETS)
    router, other = (lone.router(name, instance_id=name, **SHORT) for name in ("router", "other"))
    with router, other, Load(lone, [delay], rng, partitions=2, a_second=150, delays_ms=(0, 6_000)) as load:
        router.start_and_wait()
        if not alone:
            other.start_and_wait()
        for _ in range(PAUSES):
            time.sleep(rng.uniform(2, 4))
            router.pause()
            time.sleep(PAUSED_S)
            router.resume()
        load.finish()
        router.wait_ready()
        settled(lone)
        for each in [router] if alone else [router, other]:
            assert not each.events("partition_refused")
            assert not each.events("partition_failed")
            assert each.stop() == 0
