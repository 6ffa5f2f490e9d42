"""Provides one cluster behind proxies for the modules that share it, and a stage on it for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.dev import local_kafka
from tests.faults.stage import FaultStage, Proxied, proxied
from tests.integration.scenario import Stage

_HERE = "tests/faults/"


def pytest_unconfigure(config: pytest.Config) -> None:
    """Print a closing line like ``make simulate``, ``make mutants`` and ``make soak``."""
    reporter: pytest.TerminalReporter | None = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        passed, failed = (
            sum(report.nodeid.startswith(_HERE) for outcome in outcomes for report in reporter.stats.get(outcome, []))
            for outcomes in (("passed",), ("failed", "error"))
        )
        reporter.write_line(f"faults on real brokers: {passed} passed, {failed} failed")


def _own_nodes_or_skip() -> None:
    try:
        local_kafka.check_available(own_nodes=True)
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs brokers that it may kill: {error}")


@pytest.fixture(scope="module")
def one_node() -> Iterator[Proxied]:
    """Yield a broker behind a proxy."""
    _own_nodes_or_skip()
    with proxied(1) as running:
        yield running


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[Proxied]:
    """Yield three brokers, each behind a proxy; topics have a replica on each."""
    _own_nodes_or_skip()
    with proxied(3) as running:
        yield running


@pytest.fixture
def stage(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage of the test's own, without proxies."""
    made = Stage(kafka.bootstrap, tmp_path)
    yield made
    made.print_logs()


@pytest.fixture
def lone(one_node: Proxied, tmp_path: Path) -> Iterator[FaultStage]:
    """Yield a stage on the single broker, and heal its faults afterwards."""
    yield from _staged(one_node, tmp_path)


@pytest.fixture
def replicated(three_nodes: Proxied, tmp_path: Path) -> Iterator[FaultStage]:
    """Yield a stage on three brokers, and make sure afterwards that all of them run."""
    yield from _staged(three_nodes, tmp_path)
    for node in three_nodes.cluster.nodes:
        node.resume()
        if not node.running:
            node.start()


def _staged(running: Proxied, directory: Path) -> Iterator[FaultStage]:
    running.heal()
    for proxy in running.proxies:
        proxy.effects.clear()
    stage = FaultStage(running, directory)
    yield stage
    running.heal()
    stage.print_logs()
