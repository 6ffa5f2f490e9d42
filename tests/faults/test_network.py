"""Tests of the line between router and broker: lost answers, cut connections, a slow, silent or refusing line."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

import pytest

from tests.faults.proxy import ApiKey, Way
from tests.faults.stage import SMALL_BUCKETS, FaultStage, Proxied, settled, wait_until_lost
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Load, Stage

QUICK = [pytest.param(ApiKey.END_TXN)]
THOROUGH = [
    pytest.param(key, marks=pytest.mark.slow) for key in (ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.FETCH)
]
LOSSES = 6


@pytest.mark.parametrize("key", QUICK + THOROUGH)
def test_the_broker_has_done_it_and_the_router_never_hears(
    key: ApiKey, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    """A commit whose answer is lost may be repeated over another connection (notes on Kafka, 2.6)."""
    (proxy,) = one_node.proxies
    with _loaded(lone, rng):
        for number in range(1, LOSSES + 1):
            proxy.lose_answers([key], 1)
            wait_until_lost(one_node, key, number)
            time.sleep(rng.uniform(0.2, 1.5))


@pytest.mark.slow
def test_the_answer_that_fences_the_old_owner_is_lost(one_node: Proxied, lone: FaultStage, rng: Random) -> None:
    (proxy,) = one_node.proxies
    with _loaded(lone, rng) as router:
        for number in range(1, 4):
            router.kill()
            proxy.lose_answers([ApiKey.INIT_PRODUCER_ID], 1)
            router.start()
            wait_until_lost(one_node, ApiKey.INIT_PRODUCER_ID, number)
            router.wait_ready()


@pytest.mark.slow
def test_every_connection_is_cut_again_and_again(one_node: Proxied, lone: FaultStage, rng: Random) -> None:
    (proxy,) = one_node.proxies
    with _loaded(lone, rng):
        for _ in range(12):
            time.sleep(rng.uniform(0.05, 1.5))
            proxy.cut()
    assert one_node.effects["cut"] >= 12, one_node.effects


@pytest.mark.slow
def test_the_line_is_long(one_node: Proxied, lone: FaultStage, rng: Random) -> None:
    (proxy,) = one_node.proxies
    with _loaded(lone, rng):
        for delay_s in (0.05, 0.3, 1.0):
            proxy.delay_s = delay_s
            time.sleep(6)
        proxy.heal()
    assert one_node.effects["delayed"] >= 50, one_node.effects


@pytest.mark.slow
@pytest.mark.parametrize("silent_s", [5, 25])
def test_nothing_is_heard_for_a_while(silent_s: int, one_node: Proxied, lone: FaultStage, rng: Random) -> None:
    """The longer silence outlasts the session and every transaction: the broker aborts the open ones."""
    (proxy,) = one_node.proxies
    with _loaded(lone, rng):
        time.sleep(1)
        proxy.fall_silent()
        time.sleep(silent_s)
        proxy.heal()
        time.sleep(2)
    assert one_node.effects["held in silence"] > 0, one_node.effects


@pytest.mark.slow
@pytest.mark.parametrize("silent_s", [5, 20])
@pytest.mark.parametrize("way", list(Way))
def test_one_direction_is_dead_and_another_router_is_there(
    way: Way, silent_s: int, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    """A router that is not heard writes on into the silence; a deaf one has committed without knowing it."""
    (proxy,) = one_node.proxies
    with (
        _loaded(lone, rng) as router,
        Stage.router(lone, "other", instance_id="other", transaction_timeout="15s") as other,
    ):
        other.start_and_wait()
        time.sleep(3)
        proxy.fall_silent(way)
        time.sleep(silent_s)
        proxy.heal()
        time.sleep(2)
        for each in (router, other):
            each.wait_ready()
        assert one_node.effects[f"held {way.value}"] > 0, one_node.effects
        for each in (router, other):
            assert not each.events("partition_refused")
        assert other.stop() == 0


@pytest.mark.slow
def test_no_connection_is_had_for_a_while(one_node: Proxied, lone: FaultStage, rng: Random) -> None:
    (proxy,) = one_node.proxies
    with _loaded(lone, rng):
        proxy.refusing = True
        proxy.cut()
        time.sleep(12)
        proxy.heal()
        time.sleep(2)
    assert one_node.effects["refused"] > 0, one_node.effects


@contextmanager
def _loaded(stage: FaultStage, rng: Random) -> Iterator[RouterProcess]:
    """Run a router under a steady load; in the end every record must have arrived once."""
    out = stage.target("out", 2)
    delay = stage.delay("delay", 2, default_target=out, **SMALL_BUCKETS)
    with stage.router() as router, Load(stage, [delay], rng, partitions=2, delays_ms=(0, 6_000)) as load:
        router.start_and_wait()
        yield router
        load.finish()
        router.wait_ready()
        settled(stage)
        assert router.stop() == 0
