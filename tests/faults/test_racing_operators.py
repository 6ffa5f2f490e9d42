"""Tests operators who change the same policies at once, through different routers, while records flow."""

import threading
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from sidecar.config import model as configuration
from sidecar.operations.desk import Operations
from sidecar.policies.policy import topic_scope
from tests.faults.stage import SMALL_BUCKETS, FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import APPEND_TIME, Load, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CHANGES = 25


def test_operators_who_race_each_other_leave_one_policy_and_lose_nothing(lone: FaultStage, rng: Random) -> None:
    out = lone.target("out", 2)
    delay = lone.delay("delay", 2, default_target=out, **SMALL_BUCKETS)
    policies = f"__{lone.word}.policies"
    lone.create([NewTopic(policies, 1, 1, config={"cleanup.policy": "compact", **APPEND_TIME})])
    one, two = (lone.router(name, instance_id=name, policies_topic=policies) for name in ("one", "two"))
    with one, two, Load(lone, [delay], rng, partitions=2, a_second=120, delays_ms=(0, 4_000)) as load:
        one.start_and_wait()
        two.start_and_wait()
        failures: list[BaseException] = []
        operators = [
            threading.Thread(target=_operate, args=(router, delay, Random(rng.random()), failures))
            for router in (one, two, one)
        ]
        for operator in operators:
            operator.start()
        for operator in operators:
            operator.join(200)
        assert failures == []
        _operations(one).remove_policy(topic_scope(delay))
        load.finish()
        settled(lone)
        changes = CHANGES * len(operators) + 1
        assert lone.records(policies)[-1].value is None
        for router in (one, two):
            wait_until(router.ready, "nothing is paused or drained any more")
            assert len(router.events("policy_changed")) > changes // 4
            assert not router.events("partition_failed")
            assert not router.events("partition_refused")
            assert router.stop() == 0


def _operations(router: RouterProcess) -> Operations:
    return Operations.for_command(configuration.load(router.config, {}))


def _operate(router: RouterProcess, delay: str, rng: Random, failures: list[BaseException]) -> None:
    operations, scope = _operations(router), topic_scope(delay)
    changes: list[dict[str, Any]] = [
        {"paused": True},
        {"paused": False},
        {"drained": True},
        {"drained": False},
        {"tick": "50ms"},
        {"max_delay": "1h"},
        {"max_delay": "2h"},
    ]
    try:
        for _ in range(CHANGES):
            operations.change_policy(scope, rng.choice(changes))
    except BaseException as error:  # noqa: BLE001 - told by the test
        failures.append(error)
