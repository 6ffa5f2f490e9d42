"""Provides a stage on the shared broker for each test, or one for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.dev import local_kafka
from tests.integration.scenario import Stage


@pytest.fixture
def stage(kafka: local_kafka.Cluster, tmp_path: Path) -> Iterator[Stage]:
    """Yield a new stage for the test."""
    stage = Stage(kafka.bootstrap, tmp_path)
    yield stage
    stage.print_logs()


@pytest.fixture(scope="module")
def module_stage(kafka: local_kafka.Cluster, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """Return one stage for a module whose tests share a running router."""
    return Stage(kafka.bootstrap, tmp_path_factory.mktemp("stage"))
