"""Tests of an outage of the only broker, for a moment and for longer.

A broker that starts may forget a transaction (KAFKA-20734). An operator then ends it.
"""

import time
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException, Producer

from sidecar.kafka.client.errors import Verdict, classify, error_of
from sidecar.kafka.writing.transactions import fence
from tests.conftest import StartCluster
from tests.faults.operating import end_forgotten
from tests.integration.scenario import TIMEOUT_S, Load, Stage, wait_until

BACK_WITHIN_S = 15
"""Time in which a broker that starts again answers, and a client has found it."""


@pytest.mark.timeout(400)
def test_the_broker_goes_away_and_comes_back(
    kafka_factory: StartCluster, tmp_path: Path, rng: Random, request: pytest.FixtureRequest
) -> None:
    cluster = kafka_factory(1)
    stage = Stage(cluster.bootstrap, tmp_path)
    request.addfinalizer(stage.print_logs)
    out = stage.target("out", 2)
    delay = stage.delay("delay", 2, default_target=out)
    (node,) = cluster.nodes
    with stage.router(transaction_timeout="15s") as router:
        router.start_and_wait()
        with Load(stage, [delay], rng, partitions=2, delays_ms=(0, 8_000)) as load:
            time.sleep(2)
            node.kill()
            node.start()
            time.sleep(3)
            load.finish()
        end_forgotten(stage, [delay], [out], router)
        stage.settle()

        # During a longer outage the router reports it, stays alive, and goes on when the broker is back.
        stage.send_many(delay, [[("deliver-after", b"%d" % after_ms)] for after_ms in range(0, 20_000, 50)])
        before = router.pid
        node.kill()
        down_s = time.monotonic()
        wait_until(lambda: router.http("/readyz")[0] == 503, "a router that reports it cannot work")
        assert '"why"' in router.http("/readyz")[1]
        assert router.http("/livez")[0] == 200
        time.sleep(max(0.0, 20 - (time.monotonic() - down_s)))
        node.start()
        end_forgotten(stage, [delay], [out], router)
        assert router.pid == before
        stage.send(delay, value=b"after")
        report = stage.settle()
        assert report.sent > 300
        assert router.stop() == 0


def test_a_producer_that_could_not_fence_another_one_goes_on_in_the_background(
    kafka_factory: StartCluster, tmp_path: Path
) -> None:
    """A lane relies on that whose process has given up its transactional id, because a coordinator was away."""
    cluster = kafka_factory(1)
    stage = Stage(cluster.bootstrap, tmp_path)
    out = stage.target("out")
    (node,) = cluster.nodes
    settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": stage.word}
    former, later = Producer(settings), Producer(settings)
    former.init_transactions(TIMEOUT_S)
    former.begin_transaction()
    former.produce(out, b"open")
    former.flush(TIMEOUT_S)
    node.kill()
    with pytest.raises(KafkaException):
        fence(later, lambda: False, "", within_s=2)
    node.start()
    time.sleep(BACK_WITHIN_S)
    with pytest.raises(KafkaException) as raised:
        former.commit_transaction(TIMEOUT_S)
    assert classify(error_of(raised.value)) is Verdict.FENCED
    later.init_transactions(TIMEOUT_S)
