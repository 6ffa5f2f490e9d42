"""A stage on the shared broker for each test, or one for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar import local_kafka
from tests.integration.scenario import Stage


@pytest.fixture
def stage(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    """A stage of the test's own."""
    stage = Stage(kafka.bootstrap, tmp_path)
    yield stage
    stage.print_logs()


@pytest.fixture(scope="module")
def module_stage(kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """One stage for a module whose tests share a running router."""
    return Stage(kafka.bootstrap, tmp_path_factory.mktemp("stage"))
