"""Kills a single broker with -9 under load, again and again: it loses markers of transactions (KAFKA-20734).

``KILLS=100`` in the environment makes it a longer campaign; half of the kills hit the router, too. If a partition stays
in doubt, the test runs ``end-transaction``, as an operator does.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from index.errors import DelayRouterError
from sidecar.config.model import load
from sidecar.engine.ports import Place
from sidecar.kafka.client.admin import connect, log_range, uncommitted_end
from sidecar.kafka.doubts.ending import EndTransaction
from tests.conftest import StartCluster
from tests.faults.stage import SMALL_BUCKETS
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage, wait_until
from tests.wire import Broker

KILLS = int(os.environ.get("KILLS") or 30)
PARTITIONS = 2
OPERATOR_AFTER_S = 20
READY_WITHIN_S = 120
"""Half a minute was seen on a busy machine, a quarter of it for the start of the process; a partition waits for up to
10 s between two attempts. A real standstill never ends.
"""

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
    slowest_s, ended = 0.0, list[str]()
    with stage.router(**BUSY) as router, load:
        router.start_and_wait()
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.5, 2.5))
            node.kill()
            if rng.random() < 0.5:
                router.kill()
            node.start()
            began_s = time.monotonic()
            wait_until(partial(_is_ready, router), "a router that answers", READY_WITHIN_S)
            ended += _end_forgotten(stage, [delay, twice], outs, router)
            slowest_s = max(slowest_s, time.monotonic() - began_s)
        load.finish()
        try:
            report = stage.settle(timeout_s=120)
        finally:
            print(f"{KILLS} kills: ended by hand {ended}, served again within {slowest_s:.1f} s")
        print(report.summary())
        assert router.stop() == 0


def _is_ready(router: RouterProcess) -> bool:
    """Return whether the router answers. Start it again, as a supervisor does, if it was killed or found no broker."""
    if not router.running:
        router.start()
        return False
    return bool(router.http("/metrics")[1])


def _end_forgotten(stage: Stage, delays: list[str], outs: list[str], router: RouterProcess) -> list[str]:
    """Wait until nothing is in doubt; end transactions that stay open for 20 s. Return their places."""
    ended: list[str] = []
    until_s = time.monotonic() + READY_WITHIN_S
    while not _is_served(router):
        assert time.monotonic() < until_s, "a partition stays in doubt"
        if time.monotonic() > until_s - READY_WITHIN_S + OPERATOR_AFTER_S:
            ended += (place for delay in delays for place in _operate(stage, delay, outs))
        time.sleep(0.5)
    return ended


def _is_served(router: RouterProcess) -> bool:
    if not _is_ready(router) or not router.ready():
        return False
    return not re.search(r"partitions_in_doubt{[^}]*} [1-9]", router.http("/metrics")[1])


def _operate(stage: Stage, delay: str, outs: list[str]) -> Iterator[str]:
    """End the open transactions of each partition of a delay topic, the state first."""
    config = load(stage.router("operator").config, {})
    topic = config.require_delay_topic(delay, "")
    admin = connect(config)
    for partition in range(PARTITIONS):
        own = [(name, partition) for name in (topic.state, topic.snapshots, topic.receipts, delay)]
        others = [(name, each) for name in (topic.rejected, *outs) for each in range(PARTITIONS)]
        for place in [*own, *others]:
            command = EndTransaction(config, admin, topic, partition, place)
            with suppress(DelayRouterError, KafkaException):
                # The command reads the log of the coordinator, which is long here.
                if not _is_open(admin, place):
                    continue
                shown = command.show()
                outcome = shown.by_state or shown.log_says
                if shown.is_open and outcome in ("committed", "aborted") and (shown.records or place in own):
                    with Broker(stage.bootstrap) as broker:
                        producer_id, _ = broker.init_producer_id(command.transactional_id)
                    command.end(producer_id, shown.from_offset, committed=outcome == "committed")
                    yield f"{place[0]}/{place[1]} as {outcome}"


def _is_open(admin: AdminClient, place: Place) -> bool:
    _, settled = log_range(admin, *place)
    return settled != uncommitted_end(admin, *place)
