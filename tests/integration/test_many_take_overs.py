"""Tests that a router which takes a partition over again and again keeps one index and the clients of one ownership."""

import gc
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from index.partition.partition import PartitionIndex
from sidecar.dev.local_kafka import Cluster
from sidecar.engine.ownership.status import PartitionState
from sidecar.kafka.client.clients import transactional_id
from sidecar.kernel.choice import Kernel
from sidecar.process.host.shared import Shared
from tests.integration import one_worker as workers
from tests.integration.command import command_for
from tests.integration.one_worker import RunningWorker, one_worker
from tests.integration.scenario import wait_until

TAKE_OVERS = 8
PARTS = (AdminClient, Consumer, Producer, PartitionIndex)


@pytest.mark.usefixtures("no_garbage_collection")
@pytest.mark.parametrize("environment", [{}, {"DELAY_ROUTER_KERNEL": "off"}], ids=["chosen kernel", "Python"])
@pytest.mark.parametrize("is_fenced", [False, True], ids=["orderly", "fenced"])
def test_the_clients_and_the_index_of_an_ownership_end_with_it(
    environment: dict[str, str],
    kafka: Cluster,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_fenced: bool,
) -> None:
    monkeypatch.setattr(workers, "Shared", partial(Shared, kernel=Kernel.chosen(environment)))
    command = command_for(tmp_path, kafka.bootstrap, unique_name)
    assert command("init", "--partitions", 1, "--create-targets").exit_code == 0
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    own_id = transactional_id(command.config, command.topic, 0)
    counts: list[int] = []
    with one_worker(command.config) as worker:
        admin_clients = _parts()["AdminClient"]
        for number in range(TAKE_OVERS):
            _is_active(worker, number)
            assert _parts()["AdminClient"] <= admin_clients, "a take-over has left its admin client behind"
            producer.produce(command.topic, b"v", headers=[("deliver-after", b"10ms")])
            assert producer.flush(30) == 0
            _is_active(worker, number + 1)
            counts.append(_parts().total())
            print(_parts())
            if is_fenced:
                # The next transaction ends with an error.
                Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": own_id}).init_transactions(30)
            else:
                worker.loop.take_over_again()
    # The first ownership creates clients for the whole process, and a reader may be created later.
    assert max(counts) <= counts[0] + 2, counts


def _is_active(worker: RunningWorker, records: int) -> None:
    def is_active() -> bool:
        return worker.status.state is PartitionState.ACTIVE and worker.status.cursor == records

    time.sleep(0.1)
    wait_until(is_active, "the partition is active")


def _parts() -> Counter[str]:
    """Count the clients and indexes of this process by type."""
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, PARTS))
