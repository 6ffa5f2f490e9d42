"""Tests of schedules with ids, their controls, and series, while routers die, stop, or lose answers to commits."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random

import pytest

from tests.faults.named_load import RECURRING, NamedLoad, check_receipts
from tests.faults.proxy import ApiKey
from tests.faults.stage import SMALL_BUCKETS, FaultStage, Proxied, settled, wait_until_lost
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, wait_until

KILLS = 6
PAUSES = 3
LOSSES = 6


@pytest.mark.parametrize("lanes", [0, 1])
def test_kill_9_between_control_receipt_and_release(lanes: int, lone: FaultStage, rng: Random) -> None:
    with _loaded(lone, rng, "one", lanes=lanes) as (router,):
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.3, 2.0))
            router.kill()
            router.start_and_wait()


def test_an_owner_that_stands_still_and_goes_on_when_another_has_its_partition(lone: FaultStage, rng: Random) -> None:
    """The next owner aborts its open transaction, with the occurrences and receipts in it."""
    with _loaded(lone, rng, "one", "two") as routers:
        for _ in range(PAUSES):
            time.sleep(rng.uniform(0.5, 2.0))
            other, owner = sorted(routers, key=_last_active)
            owner.pause()
            _wait_until_active(other, _last_active(owner))
            time.sleep(rng.uniform(0.2, 1.5))
            owner.resume()


@pytest.mark.parametrize("lanes", [0, 1])
@pytest.mark.parametrize("key", [ApiKey.END_TXN, pytest.param(ApiKey.PRODUCE, marks=pytest.mark.slow)])
def test_answers_are_lost_around_occurrences_and_receipts(
    key: ApiKey, lanes: int, one_node: Proxied, lone: FaultStage, rng: Random
) -> None:
    (proxy,) = one_node.proxies
    with _loaded(lone, rng, "one", lanes=lanes):
        for number in range(1, LOSSES + 1):
            proxy.lose_answers([key], 1)
            wait_until_lost(one_node, key, number)
            time.sleep(rng.uniform(0.2, 1.5))


@contextmanager
def _loaded(stage: FaultStage, rng: Random, *names: str, lanes: int = 0) -> Iterator[list[RouterProcess]]:
    """Run these routers under a load of schedules and controls; in the end check the receipts against all records.

    With a lane, a second partition shares their transactions.
    """
    out = stage.target()
    delay = stage.delay(partitions=1 + lanes, default_target=out, **SMALL_BUCKETS, **RECURRING)
    # Only the write time of a receipt shows which records it must not have missed.
    stage.alter(f"{delay}.receipts", APPEND_TIME)
    routers = [stage.router(name, instance_id=name, session_timeout="2s", lanes=lanes) for name in names]
    with ExitStack() as stack, NamedLoad(stage, delay, rng, 1 + lanes) as load:
        for router in routers:
            stack.enter_context(router).start_and_wait()
        yield routers
        load.finish()
        report = settled(stage)
        check_receipts(stage, delay, out)
        assert min(report.cancelled, report.replaced, report.moved) > 0, report.summary()
        assert [router.stop() for router in routers] == [0] * len(routers)


def _last_active(router: RouterProcess) -> str:
    """Return the time of its last take-over, or an empty text."""
    return max((str(event["timestamp"]) for event in router.events("partition_active")), default="")


def _wait_until_active(router: RouterProcess, after: str) -> None:
    wait_until(lambda: _last_active(router) > after, "the other one has taken over")
