"""Provides a Kafka for the tests that need one, unique names, and reproducible random numbers."""

import gc
import logging
import os
import random
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import Any

import hypothesis
import pytest
import structlog
from confluent_kafka.admin import AdminClient

from sidecar.dev import local_kafka
from tests.support.topics import create_topic

# A test that uses one of these runs against a broker.
_KAFKA_FIXTURES = frozenset({"kafka", "needs_own_nodes"})
_REQUEST_TIMEOUT_S = 30.0

StartCluster = Callable[..., local_kafka.Cluster]
MakeTopic = Callable[..., str]

# No deadline for one example: on a machine shared with brokers it says nothing about the code.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
# For a second run of the same tests, which looks at the place that the code is in: --hypothesis-profile=few.
hypothesis.settings.register_profile("few", hypothesis.settings.get_profile("default"), max_examples=10)
hypothesis.settings.load_profile("default")

_failed_items = pytest.StashKey[set[str]]()
_kept_logs = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Create the sets of failed items and kept logs."""
    config.stash[_failed_items] = set()
    config.stash[_kept_logs] = []


def pytest_collection_finish(session: pytest.Session) -> None:
    """End the run with one line, and not with an error per test, if tests need a Kafka and there is none."""
    wanting = [item for item in session.items if _uses_kafka(item)]
    # One of several processes cannot end the run of all, so `make` checks first in that case.
    if not wanting or session.config.option.collectonly or hasattr(session.config, "workerinput"):
        return
    try:
        local_kafka.check_available()
    except local_kafka.KafkaUnavailable as error:
        pytest.exit(f"{len(wanting)} of {len(session.items)} tests need Kafka: {error}", returncode=1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember the failed tests that use a Kafka, so that its logs are kept."""
    report = yield
    if report.failed and _uses_kafka(item):
        item.config.stash[_failed_items].add(item.nodeid)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hand the paths of kept logs to the process that prints the summary, if tests run in several ones (``-n``)."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["kept_logs"] = session.config.stash[_kept_logs]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take the paths of kept logs from a process that ran tests."""
    node.config.stash[_kept_logs].extend(getattr(node, "workeroutput", {}).get("kept_logs", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the paths of the logs of brokers that took part in a failure."""
    for place in config.stash[_kept_logs]:
        terminalreporter.write_line(f"logs of the local Kafka kept in {place}")


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Reset the logging that a command within the test process has configured: its level, its form and its stream."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """Switch garbage collection off, as a router does while records are pending; reference cycles then remain."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[local_kafka.Cluster]:
    """Yield one node shared by the whole run, or the given cluster; every test has its own topics and groups."""
    with local_kafka.cluster() as running:
        yield running
        _keep_logs(request.config, running, failed=bool(request.config.stash[_failed_items]))


@pytest.fixture
def needs_own_nodes() -> None:
    """Skip with a message if the only Kafka is one whose processes must not be killed."""
    try:
        local_kafka.check_available(own_nodes=True)
    except local_kafka.KafkaUnavailable as error:
        pytest.skip(f"needs brokers that it may kill: {error}")


@pytest.fixture
def kafka_factory(needs_own_nodes: None, request: pytest.FixtureRequest) -> Iterator[StartCluster]:
    """Yield a function that starts a cluster for one test; its ``nodes`` may be killed, paused and restarted.

    The function has the parameters of :func:`sidecar.dev.local_kafka.cluster`.
    """
    started: list[local_kafka.Cluster] = []
    with ExitStack() as stack:

        def start(nodes: int = 1, **options: Any) -> local_kafka.Cluster:
            started.append(stack.enter_context(local_kafka.cluster(nodes, own_nodes=True, **options)))
            return started[-1]

        yield start
        for running in started:
            _keep_logs(request.config, running, failed=request.node.nodeid in request.config.stash[_failed_items])


@pytest.fixture(scope="session")
def kafka_admin(kafka: local_kafka.Cluster) -> AdminClient:
    """Return an admin client of the shared cluster."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap})


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    """Return a function that makes a unique name: ``<prefix>-<8 hex digits>``."""

    def name(prefix: str = "t") -> str:
        return f"{prefix}-{secrets.token_hex(4)}"

    return name


@pytest.fixture
def make_topic(
    kafka: local_kafka.Cluster, kafka_admin: AdminClient, unique_name: Callable[[str], str]
) -> Iterator[MakeTopic]:
    """Yield a function that creates a topic in the shared cluster and returns its name.

    ``make_topic("orders", partitions=3, config={"cleanup.policy": "compact"})`` gives ``orders-1f2e3d4c``;
    ``exact=True`` keeps the name as it is. Topics in a given cluster are deleted after the test.
    """
    made: list[str] = []

    def make(
        prefix: str = "t", partitions: int = 1, config: dict[str, str] | None = None, *, exact: bool = False
    ) -> str:
        name = prefix if exact else unique_name(prefix)
        create_topic(kafka_admin, name, partitions=partitions, config=config)
        made.append(name)
        return name

    yield make
    if made and kafka.origin == "given":
        for future in kafka_admin.delete_topics(made).values():
            future.result(_REQUEST_TIMEOUT_S)


@pytest.fixture
def rng() -> random.Random:
    """Return a random generator whose seed is printed with a failure; ``TEST_SEED=n`` sets the seed."""
    seed = int(os.environ.get("TEST_SEED") or secrets.randbits(32))
    print(f"TEST_SEED={seed}")
    return random.Random(seed)


def _uses_kafka(item: pytest.Item) -> bool:
    return bool(_KAFKA_FIXTURES & set(getattr(item, "fixturenames", ())))


def _keep_logs(config: pytest.Config, cluster: local_kafka.Cluster, *, failed: bool) -> None:
    cluster.keep_logs = failed
    if failed and cluster.logs_dir is not None:
        config.stash[_kept_logs].append(str(cluster.logs_dir))
