"""Tests of broker limits below the configured values: ``check`` reports them, and the router refuses at once."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.config.model import Config, load
from sidecar.dev import local_kafka
from sidecar.engine.ownership.status import PartitionState
from tests.integration.one_worker import one_worker
from tests.integration.scenario import Stage, wait_until

LONGEST_MS = 30_000


@pytest.fixture(scope="module")
def strict() -> Iterator[local_kafka.Cluster]:
    """Yield a broker that accepts short transactions only."""
    try:
        with local_kafka.cluster(own_nodes=True, properties={"transaction.max.timeout.ms": str(LONGEST_MS)}) as running:
            yield running
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs a broker of its own: {error}")


def test_a_transaction_timeout_above_the_brokers_maximum(strict: local_kafka.Cluster, tmp_path: Path) -> None:
    stage = Stage(strict.bootstrap, tmp_path)
    stage.delay(default_target=stage.target())
    with stage.router("long", transaction_timeout="31s") as router:
        checked = router.command("check", "--json")
        assert checked.returncode == 1
        (finding,) = [each for each in json.loads(checked.stdout) if each["level"] == "error"]
        assert finding["thing"] == "router.transaction_timeout"
        assert "broker 1 allows 30s (transaction.max.timeout.ms=30000)" in finding["message"]
        assert 'lower router.transaction_timeout to "30s"' in finding["remedy"]
        refused = router.command("run")
        assert refused.returncode == 1, refused.stderr
        assert "transaction.max.timeout.ms=30000" in refused.stderr
    with stage.router("short", transaction_timeout="30s") as router:
        assert router.command("check").returncode == 0
        router.start_and_wait()
        assert router.stop() == 0


def test_a_partition_refuses_where_the_brokers_may_not_be_asked(strict: local_kafka.Cluster, tmp_path: Path) -> None:
    stage = Stage(strict.bootstrap, tmp_path)
    stage.delay(default_target=stage.target())
    config: Config = load(stage.router(transaction_timeout="31s").config, {})
    with one_worker(config) as worker:
        wait_until(lambda: worker.status.state is PartitionState.REFUSED, "a refusal")
        assert "transaction.max.timeout.ms" in worker.status.why
        assert "lower router.transaction_timeout" in worker.status.why
