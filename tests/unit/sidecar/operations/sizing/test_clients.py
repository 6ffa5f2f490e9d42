"""The threads and connections of a process, beside those that librdkafka has with a mock cluster of as many brokers."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from sidecar.config.model import Config
from sidecar.kafka.client import admin, clients
from sidecar.operations.sizing.clients import (
    LANES,
    LANES_FROM,
    POOL_THREADS,
    READERS,
    SHARED_CONSUMERS,
    client_threads,
    connections,
    recommended_lanes,
    threads,
)
from sidecar.operations.sizing.clients import clients as count_of_clients
from sidecar.process.host import pool
from tests.support.mock_broker import MockBroker

TIMEOUT_S: Final = 20.0
STEADY_S: Final = 1.0


def _of_process(config: Config, lanes: int) -> Iterator[Any]:
    """Yield the clients of a process that has lanes and uses both consumers of each thread that reads."""
    yield admin.connect(config)
    yield clients.policy_reader(config)
    yield clients.report_writer(config, TIMEOUT_S)
    yield clients.staging_reader(config)
    yield clients.group_member(config, ["delay"], lambda *_: None, lambda _: None, "")
    yield from (clients.tail(config, 1_048_576, 1_048_576) for _ in range(SHARED_CONSUMERS))
    for _ in range(READERS // 2):
        yield from (clients.reader(config), clients.bulk_reader(config))
    for number in range(lanes):
        producer = clients.producer(config, f"lane.{number}")
        producer.init_transactions(TIMEOUT_S)
        yield producer


def _settled(count: Callable[[], int], expected: int) -> int:
    """Wait until a count is as expected, or for some time: librdkafka ends the thread of a bootstrap server late."""
    until_s = time.monotonic() + TIMEOUT_S
    while (now := count()) != expected and time.monotonic() < until_s:
        time.sleep(0.02)
    return now


def _steady() -> set[int]:
    """Return the threads once the cluster's own clients have theirs: after a second without a change."""
    last, since_s = _threads(), time.monotonic()
    while time.monotonic() - since_s < STEADY_S:
        time.sleep(0.02)
        if (now := _threads()) != last:
            last, since_s = now, time.monotonic()
    return last


def _threads() -> set[int]:
    return {int(each.name) for each in Path("/proc/self/task").iterdir()}


def _connections() -> set[int]:
    """Return the ports that the clients have opened; the mock cluster of this process has the other ends."""
    found = psutil.Process().net_connections("tcp")
    listening = {each.laddr.port for each in found if each.status == psutil.CONN_LISTEN}
    return {each.laddr.port for each in found if each.status == psutil.CONN_ESTABLISHED} - listening


@pytest.mark.parametrize("brokers", [1, 3, 20, 30])
def test_clients_have_as_many_threads_as_the_formula_says(brokers: int) -> None:
    with MockBroker(**{"test.mock.num.brokers": brokers}) as cluster, ExitStack() as closing:
        config = Config.model_validate(
            {
                "kafka": {"bootstrap.servers": cluster.bootstrap},
                "delay_topics": [{"name": "delay", "default_target": "out"}],
            }
        )
        # The consumer of the cluster gets its threads now, and not while the others are counted.
        assert len(cluster._consumer.list_topics(timeout=TIMEOUT_S).brokers) == brokers
        threads_before, connections_before = _steady(), _connections()
        made = list(_of_process(config, LANES))
        for client in made:
            closing.callback(getattr(client, "close", lambda: None))
            # The clients learn of all brokers.
            assert len(client.list_topics(timeout=TIMEOUT_S).brokers) == brokers
        assert len(made) == count_of_clients(LANES_FROM, LANES)
        # The producer of reports has no coordinator.
        expected = client_threads(len(made), brokers) - 1
        assert _settled(lambda: len(_threads() - threads_before), expected) == expected
        assert len(_connections() - connections_before) <= connections(LANES_FROM, LANES, brokers)


@pytest.mark.parametrize(("partitions", "lanes"), [(1, 0), (LANES_FROM - 1, 0), (LANES_FROM, LANES), (300, LANES)])
def test_lanes_pay_from_some_partitions_on(partitions: int, lanes: int) -> None:
    assert recommended_lanes(partitions) == lanes


def test_lanes_make_threads_independent_of_the_product_of_partitions_and_brokers() -> None:
    assert threads(100, 8, 30) == 2 * 100 + 14 + (8 + 15) * 33
    assert threads(100, 0, 30) == 2 * 100 + 14 + (100 + 15) * 33
    assert threads(100, 8, 30) - threads(99, 8, 30) == 2


def test_the_pool_has_as_many_threads_as_are_counted() -> None:
    reading = pool.LOADERS + pool.MERGERS + pool.FETCHERS
    assert (reading + pool.ENCODERS + pool.ASKERS, 2 * reading) == (POOL_THREADS, READERS)
