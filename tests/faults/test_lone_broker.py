"""Kills a single broker with -9 under load, again and again: it loses markers of transactions (KAFKA-20734).

``KILLS=100`` in the environment makes it a longer campaign; half of the kills hit the router, too. If a partition stays
in doubt, the test runs ``end-transaction``, as an operator does. A lane has a third of the kills: its transactions are
open on a dozen places, and the operator ends them on one after the other.
"""

import os
import time
from functools import partial
from pathlib import Path
from random import Random

import pytest

from tests.conftest import StartCluster
from tests.faults.operating import READY_WITHIN_S, end_forgotten, is_running_again
from tests.faults.stage import SMALL_BUCKETS
from tests.integration.scenario import Load, Stage, wait_until

KILLS = int(os.environ.get("KILLS") or 30)
PARTITIONS = 2

BUSY = {"transaction_timeout": "10s", "tick": "1ms", "session_timeout": "6s"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 60 * KILLS)]


@pytest.mark.parametrize(("lanes", "kills"), [(0, KILLS), (1, KILLS // 3)])
def test_nothing_is_lost_or_doubled_and_nothing_stands_still(
    lanes: int, kills: int, kafka_factory: StartCluster, tmp_path: Path, rng: Random
) -> None:
    cluster = kafka_factory()
    (node,) = cluster.nodes
    stage = Stage(cluster.bootstrap, tmp_path)
    outs = [stage.target(f"out{number}", 2) for number in range(2)]
    delay = stage.delay("delay", PARTITIONS, default_target=outs[0], allowed_targets=outs, **SMALL_BUCKETS)
    twice = stage.delay("twice", PARTITIONS, default_target=outs[1], **SMALL_BUCKETS)
    load = Load(stage, [delay, twice], rng, partitions=PARTITIONS, a_second=200, delays_ms=(0, 4_000))
    slowest_s, ended = 0.0, list[str]()
    with stage.router(lanes=lanes, **BUSY) as router, load:
        router.start_and_wait()
        for _ in range(kills):
            time.sleep(rng.uniform(0.5, 2.5))
            node.kill()
            if rng.random() < 0.5:
                router.kill()
            node.start()
            began_s = time.monotonic()
            wait_until(partial(is_running_again, router), "a router that answers", READY_WITHIN_S)
            ended += end_forgotten(stage, [delay, twice], outs, router)
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        load.finish()
        try:
            report = stage.settle(timeout_s=120)
        finally:
            print(f"{kills} kills: ended by hand {ended}, served again within {slowest_s:.1f} s")
        print(report.summary())
        assert router.stop() == 0
