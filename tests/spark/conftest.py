"""Provides one Spark session for all tests, and a stage on the shared broker for each."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sidecar.dev import local_kafka
from spark_backfill import session
from tests.integration.scenario import Stage

CONF = (
    "spark.master=local[2]",
    "spark.driver.memory=1g",
    "spark.ui.enabled=false",
    "spark.sql.shuffle.partitions=4",
    # Queries run once: the optimising compiler takes twice the CPU time that it saves.
    "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    # A reused worker keeps its imported modules; a new import takes a second.
    "spark.python.worker.reuse=true",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let PySpark leave sockets to the garbage collector, as it does with the socket of every ``collect()``."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(autouse=True)
def sockets_collected() -> Iterator[None]:
    """Collect the sockets here, and not during another package's test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a small session, started as a job starts it."""
    started = session.start("tests", CONF, print)
    yield started
    started.stop()


@pytest.fixture
def stage(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    """Yield a stage of the test's own."""
    stage = Stage(kafka.bootstrap, tmp_path)
    yield stage
    stage.print_logs()
