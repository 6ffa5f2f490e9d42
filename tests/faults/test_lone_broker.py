"""A broker alone is killed with -9 under load, again and again: it loses markers of transactions (KAFKA-20734).

``KILLS=100`` in the environment makes it a longer campaign; half of the kills take the router, too.
"""

import os
import time
from collections import Counter
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.conftest import StartCluster
from tests.faults.stage import SMALL_BUCKETS
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, wait_until

KILLS = int(os.environ.get("KILLS") or 30)
PARTITIONS = 2
READY_WITHIN_S = 120
"""On a machine that is busy with other things half a minute was seen, of which the process takes a quarter to start; a
partition waits for up to 10 s between two attempts. What stands still does so for ever."""

BUSY = {"transaction_timeout": "10s", "tick": "1ms", "session_timeout": "6s"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 40 * KILLS)]


def test_nothing_is_lost_or_doubled_and_nothing_stands_still(
    kafka_factory: StartCluster, tmp_path: Path, rng: Random
) -> None:
    cluster = kafka_factory()
    (node,) = cluster.nodes
    stage = Stage(cluster.bootstrap, tmp_path)
    outs = [stage.target(f"out{number}", 2) for number in range(2)]
    delay = stage.delay("delay", PARTITIONS, default_target=outs[0], allowed_targets=outs, **SMALL_BUCKETS)
    twice = stage.delay("twice", PARTITIONS, default_target=outs[1], **SMALL_BUCKETS)
    load = Load(stage, [delay, twice], rng, partitions=PARTITIONS, a_second=200, delays_ms=(0, 4_000))
    slowest_s = 0.0
    with stage.router(**BUSY) as router, load:
        router.start_and_wait()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.5, 2.5))
            node.kill()
            if rng.random() < 0.5:
                router.kill()
            node.start()
            began_s = time.monotonic()
            wait_until(partial(_is_ready, router), "a router that is ready again", READY_WITHIN_S)
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        load.finish()
        try:
            report = stage.settle(timeout_s=120)
        finally:
            found = Counter(event["outcome"] for event in router.events("orphan_found"))
            waited = Counter(event["why"].split(" on ")[0] for event in router.events("partition_waits"))
            print(
                f"{KILLS} kills: orphans {dict(found)}, ready again within {slowest_s:.1f} s, waited for {dict(waited)}"
            )
        print(report.summary())
        assert router.stop() == 0


def _is_ready(router: RouterProcess) -> bool:
    """As a supervisor sees it, which starts one again that was killed, or found no broker."""
    if not router.running:
        router.start()
        return False
    return router.ready()
