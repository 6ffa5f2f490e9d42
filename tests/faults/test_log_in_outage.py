"""Tests a router's log while its brokers are away: the error once, then a line a minute, and a line at the end.

A broker that starts may forget a transaction (KAFKA-20734). An operator then ends it.
"""

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.conftest import StartCluster
from tests.faults.operating import end_forgotten
from tests.integration.scenario import Load, Stage

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

OUTAGE_S = 45.0
PARTITIONS = 4


def test_an_outage_is_told_in_few_lines(
    kafka_factory: StartCluster, tmp_path: Path, rng: Random, request: pytest.FixtureRequest
) -> None:
    cluster = kafka_factory(1)
    stage = Stage(cluster.bootstrap, tmp_path)
    request.addfinalizer(stage.print_logs)
    out = stage.target()
    delay = stage.delay("delay", PARTITIONS, default_target=out)
    with stage.router(group_id=stage.group_id) as router:
        router.start_and_wait()
        with Load(stage, [delay], rng, partitions=PARTITIONS, delays_ms=(0, 60_000)) as load:
            time.sleep(3)
            load.finish()
        before = len(router.events())
        cluster.nodes[0].kill()
        time.sleep(OUTAGE_S)
        during = router.events()[before:]
        cluster.nodes[0].start()
        cluster.wait_ready()
        end_forgotten(stage, [delay], [out], router)
        stage.settle(timeout_s=120)
        after = router.events()[before + len(during) :]
        assert router.stop() == 0
    print(*during, *after, sep="\n")
    written = Counter(event["event"] for event in (*during, *after))
    # A kind for each role and partition, and one line a minute; it was 4,900 lines once.
    assert sum(written.values()) <= 40 + 4 * PARTITIONS, written
    assert any("Connection refused" in event.get("message", "") for event in during[:20]), "what is wrong, at once"
    assert {event["partition"] for event in after if event["event"] == "partition_active"} == set(range(PARTITIONS))
