"""Tests of three brokers with replicas of every topic, one of which is killed, stopped with SIGSTOP, or restarted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from sidecar.dev.local_kafka import Node
from tests.faults.stage import FENCED_S, SMALL_BUCKETS, FaultStage, Proxied, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def test_a_broker_is_killed_and_comes_back(three_nodes: Proxied, replicated: FaultStage, rng: Random) -> None:
    """Each broker in turn, so that the kills include leaders and the coordinators of group and transactions."""
    with _loaded(replicated, rng):
        for node in _shuffled(three_nodes, rng):
            node.kill()
            time.sleep(FENCED_S + rng.uniform(0, 3))
            node.start()
            three_nodes.cluster.wait_ready()
            time.sleep(2)


def test_a_broker_stands_still_for_longer_than_its_session(
    three_nodes: Proxied, replicated: FaultStage, rng: Random
) -> None:
    """The broker still believes to be the leader when it goes on."""
    with _loaded(replicated, rng):
        for node in _shuffled(three_nodes, rng):
            node.pause()
            time.sleep(9)
            node.resume()
            three_nodes.cluster.wait_ready()
            time.sleep(2)


def test_brokers_are_restarted_one_after_the_other(three_nodes: Proxied, replicated: FaultStage, rng: Random) -> None:
    with _loaded(replicated, rng):
        for node in three_nodes.cluster.nodes:
            node.stop()
            node.start()
            three_nodes.cluster.wait_ready()


def test_a_broker_and_the_router_die_together(three_nodes: Proxied, replicated: FaultStage, rng: Random) -> None:
    with _loaded(replicated, rng) as router:
        for node in _shuffled(three_nodes, rng)[:2]:
            time.sleep(rng.uniform(0.5, 2))
            node.kill()
            router.kill()
            router.start()
            time.sleep(FENCED_S + rng.uniform(0, 3))
            node.start()
            three_nodes.cluster.wait_ready()
            router.wait_ready(90)


@contextmanager
def _loaded(stage: FaultStage, rng: Random) -> Iterator[RouterProcess]:
    """Run a router under a steady load; in the end every record must have arrived once."""
    out = stage.target("out", 3)
    delay = stage.delay("delay", 3, default_target=out, **SMALL_BUCKETS)
    load = Load(stage, [delay], rng, partitions=3, a_second=150, delays_ms=(0, 6_000))
    with stage.router(transaction_timeout="20s", session_timeout="6s") as router, load:
        router.start_and_wait()
        yield router
        load.finish()
        settled(stage, timeout_s=150)
        assert router.stop() == 0


def _shuffled(running: Proxied, rng: Random) -> list[Node]:
    return rng.sample(running.cluster.nodes, len(running.cluster.nodes))
