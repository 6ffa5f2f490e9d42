"""The memory limit of a container, compared with the memory that a router may take."""

from pathlib import Path
from typing import Any

import pytest

from sidecar.cluster.topics.findings import Level
from sidecar.config.model import Config
from sidecar.kafka.client.admin import TopicFacts
from sidecar.operations.sizing.container_memory import fetch_bytes, finding, limit_bytes
from sidecar.operations.sizing.memory import MIB, PARTITION_BYTES, PROCESS_BYTES

CHART_LIMIT = 2_048 * MIB
"""The default of the chart, which tests/helm/test_memory_limit.py reads."""

BATCH_BYTES = 1_048_588


def config(**kafka: Any) -> Config:
    topics = [{"name": "a.delay", "default_target": "a"}, {"name": "b.delay", "default_target": "b"}]
    return Config.model_validate({"kafka": {"bootstrap.servers": "b:9092", **kafka}, "delay_topics": topics})


def facts(name: str = "a.delay", partitions: int = 1, settings: dict[str, str] | None = None) -> TopicFacts:
    return TopicFacts(name, "id", partitions, 1, frozenset(), settings or {})


def test_the_defaults_fit_into_two_gibibytes() -> None:
    found = finding(config(), {"a.delay": facts(partitions=25)}, CHART_LIMIT)
    assert found is not None
    assert found.level is Level.OK, found


def test_nothing_is_said_without_a_limit_and_without_topics() -> None:
    assert finding(config(), {"a.delay": facts()}, None) is None
    assert finding(config(), {"a.delay": None}, CHART_LIMIT) is None


def test_what_does_not_fit_is_an_error_that_names_the_settings() -> None:
    answers = {"a.delay": facts(partitions=2), "b.delay": facts("b.delay", 3, {"max.message.bytes": "8000000"})}
    found = finding(config(), answers, CHART_LIMIT)
    assert found is not None
    assert found.is_error
    own = 512 * MIB + PROCESS_BYTES + 5 * PARTITION_BYTES
    assert "max.message.bytes=8000000" in found.message
    assert "a fetch of b.delay that unpacks" in found.message
    for setting in ("resources.limits.memory", "router.payload_memory", "--entity-name b.delay"):
        assert setting in found.remedy, found.remedy
    fitting = (CHART_LIMIT - own) // 1_032
    assert f"max.message.bytes={fitting}" in found.remedy
    answers["b.delay"] = facts("b.delay", 3, settings={"max.message.bytes": str(fitting)})
    answers["a.delay"] = facts(partitions=2, settings={"max.message.bytes": str(fitting)})
    mended = finding(config(), answers, CHART_LIMIT)
    assert mended is not None
    assert mended.level is Level.OK


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, BATCH_BYTES * 1_032),
        ({"compression.type": "producer"}, BATCH_BYTES * 1_032),
        ({"compression.type": "gzip"}, BATCH_BYTES * 1_032),
        ({"compression.type": "lz4"}, BATCH_BYTES * 255),
        ({"compression.type": "snappy"}, BATCH_BYTES * 21),
        ({"compression.type": "uncompressed"}, BATCH_BYTES),
        ({"compression.type": "zstd"}, 100_000_000),
        ({"max.message.bytes": "64000"}, 100_000_000),
    ],
)
def test_how_much_a_fetch_may_unpack_to(settings: dict[str, str], expected: int) -> None:
    assert fetch_bytes(config(), facts(settings=settings)) == expected


def test_the_limit_of_the_client_holds_for_zstd() -> None:
    zstd = facts(settings={"compression.type": "zstd"})
    assert fetch_bytes(config(**{"receive.message.max.bytes": 20_000_000}), zstd) == 20_000_000


def test_the_lowest_limit_of_the_groups_of_the_process_counts(tmp_path: Path) -> None:
    proc = tmp_path / "cgroup"
    proc.write_text("0::/pod/router\n")
    roots = ((str(tmp_path / "v2"), "memory.max"), (str(tmp_path / "v1"), "memory.limit_in_bytes"))
    assert limit_bytes(proc, roots) is None
    assert limit_bytes(tmp_path / "none", roots) is None
    own = tmp_path / "v2/pod/router"
    own.mkdir(parents=True)
    (own / "memory.max").write_text("max\n")
    assert limit_bytes(proc, roots) is None
    (own / "memory.max").write_text("1610612736\n")
    assert limit_bytes(proc, roots) == 1_536 * MIB
    (tmp_path / "v2/memory.max").write_text("1073741824\n")
    assert limit_bytes(proc, roots) == 1_024 * MIB
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert limit_bytes(proc, roots) == 1_024 * MIB
