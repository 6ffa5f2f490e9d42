"""Lateness counted in bulk, against a count of one record at a time; and the gauges of partitions."""

import math
import random
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sidecar.commit import built_from
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.lateness import LATENESS_BOUNDS_MS
from sidecar.metrics import LatenessHistogram, Metrics
from sidecar.process.partition_collector import PartitionCollector

NAME = "delay_router_release_lateness_seconds"


def _registry(histogram: LatenessHistogram) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(histogram)
    return registry


def _buckets(histogram: LatenessHistogram, topic: str) -> list[float | None]:
    registry = _registry(histogram)
    bounds = [*(str(bound_ms / 1_000) for bound_ms in LATENESS_BOUNDS_MS), "+Inf"]
    return [registry.get_sample_value(f"{NAME}_bucket", {"topic": topic, "le": bound}) for bound in bounds]


@pytest.mark.parametrize("seed", range(30))
def test_lateness_against_one_record_at_a_time(seed: int) -> None:
    rng = random.Random(seed)
    histogram = LatenessHistogram()
    naive = [0] * (len(LATENESS_BOUNDS_MS) + 1)
    sum_ms = 0
    for _ in range(rng.randint(1, 8)):
        released_ms = 1_800_000_000_000 + rng.randint(0, 10_000)
        longest_ms = rng.choice([3, 100, 10_000, 10_000_000])
        # Many values lie on the bounds themselves, more than by chance.
        late = [rng.choice([rng.randint(0, longest_ms), *LATENESS_BOUNDS_MS]) for _ in range(rng.randint(1, 50))]
        histogram.observe("d", sorted(released_ms - late_ms for late_ms in late), released_ms)
        for late_ms in late:
            sum_ms += late_ms
            for place, bound_ms in enumerate((*LATENESS_BOUNDS_MS, float("inf"))):
                naive[place] += late_ms <= bound_ms
    assert _buckets(histogram, "d") == naive
    registry = _registry(histogram)
    assert registry.get_sample_value(f"{NAME}_count", {"topic": "d"}) == naive[-1]
    assert registry.get_sample_value(f"{NAME}_sum", {"topic": "d"}) == pytest.approx(sum_ms / 1_000)


def test_topics_are_counted_apart() -> None:
    histogram = LatenessHistogram()
    histogram.observe("a", [100], 100)
    histogram.observe("b", [90, 100], 102)
    assert _buckets(histogram, "a") == [1] * 17
    assert _buckets(histogram, "b") == [0, 1, 1, 1, 1, 1] + [2] * 11


def test_before_the_first_release_the_histogram_is_there_and_empty() -> None:
    text = generate_latest(_registry(LatenessHistogram())).decode()
    assert f"# TYPE {NAME} histogram" in text
    assert f"{NAME}_bucket" not in text


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("records_indexed", "counter"),
        ("records_released", "counter"),
        ("records_rejected", "counter"),
        ("release_lateness_seconds", "histogram"),
        ("recovery_seconds", "histogram"),
        ("transactions", "counter"),
        ("renewals", "counter"),
        ("transaction_seconds", "histogram"),
        ("seal_seconds", "histogram"),
        ("merge_seconds", "histogram"),
        ("entries_merged", "counter"),
        ("seal_failures", "counter"),
        ("load_failures", "counter"),
        ("trim_failures", "counter"),
        ("records_lost", "counter"),
        ("backfills", "counter"),
        ("build_info", "gauge"),
        ("memory_limit_bytes", "gauge"),
    ],
)
def test_the_names_of_the_contract(name: str, kind: str) -> None:
    total = "_total" if kind == "counter" else ""
    assert f"# TYPE delay_router_{name}{total} {kind}" in generate_latest(Metrics().registry).decode()


def test_the_build_tells_its_commit() -> None:
    assert f'commit="{built_from()}"' in generate_latest(Metrics().registry).decode()


def _gauges(*statuses: PartitionStatus, payload_bytes: int = 0) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(PartitionCollector(lambda: list(statuses), lambda: payload_bytes))
    return registry


A0 = PartitionStatus(
    "a",
    0,
    PartitionState.ACTIVE,
    pending=3,
    next_due_ms=2_000,
    furthest_due_ms=9_500,
    lag=1,
    buckets=2,
    snapshot_bytes=700,
    by_due=(0, 2, 0, 0, 0, 0, 0, 0, 0, 1),
    needed_from=17,
    needed_since_ms=1_500,
    retention_ms=60_000,
)
A1 = PartitionStatus(
    "a",
    1,
    PartitionState.REPLAYING,
    pending=4,
    next_due_ms=1_500,
    furthest_due_ms=3_000,
    lag=70,
    buckets=1,
    snapshot_bytes=300,
    by_due=(1, 0, 2, 0, 0, 0, 0, 0, 0, 0),
    needed_from=3,
    retention_ms=60_000,
)
A2 = PartitionStatus("a", 2, PartitionState.WAITING, why="broker away")
B0 = PartitionStatus("b", 0, PartitionState.ACTIVE, retention_ms=-1)


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("pending_records", {"topic": "a"}, 7),
        ("pending_records", {"topic": "b"}, 0),
        ("next_due_timestamp_seconds", {"topic": "a"}, 1.5),
        ("furthest_due_timestamp_seconds", {"topic": "a"}, 9.5),
        ("next_due_timestamp_seconds", {"topic": "b"}, None),
        ("furthest_due_timestamp_seconds", {"topic": "b"}, None),
        ("index_lag_records", {"topic": "a", "partition": "1"}, 70),
        ("partition_state", {"topic": "a", "partition": "1", "state": "replaying"}, 1),
        ("partition_state", {"topic": "a", "partition": "1", "state": "active"}, 0),
        ("payload_bytes", {}, 512),
        ("buckets", {"topic": "a"}, 3),
        ("buckets", {"topic": "b"}, 0),
        ("snapshot_bytes", {"topic": "a"}, 1_000),
        ("pending_by_due", {"topic": "a", "within": "0"}, 1),
        ("pending_by_due", {"topic": "a", "within": "1"}, 3),
        ("pending_by_due", {"topic": "a", "within": "604800"}, 5),
        ("pending_by_due", {"topic": "a", "within": "+Inf"}, 6),
        ("pending_by_due", {"topic": "b", "within": "+Inf"}, None),
        ("needed_from_offset", {"topic": "a", "partition": "0"}, 17),
        ("needed_from_offset", {"topic": "a", "partition": "2"}, None),
        ("needed_from_timestamp_seconds", {"topic": "a", "partition": "0"}, 1.5),
        ("needed_from_timestamp_seconds", {"topic": "a", "partition": "1"}, None),
        ("delay_topic_retention_seconds", {"topic": "a"}, 60),
        ("delay_topic_retention_seconds", {"topic": "b"}, math.inf),
    ],
)
def test_gauges_of_partitions(name: str, labels: dict[str, str], value: float | None) -> None:
    assert _gauges(A0, A1, A2, B0, payload_bytes=512).get_sample_value(f"delay_router_{name}", labels) == value


def test_each_partition_is_in_one_state() -> None:
    samples = list(_samples(_gauges(A0, A1, A2, B0), "delay_router_partition_state"))
    assert len(samples) == 4 * len(PartitionState)
    assert sum(samples) == 4


def _samples(registry: CollectorRegistry, name: str) -> Iterator[float]:
    for family in registry.collect():
        yield from (sample.value for sample in family.samples if sample.name == name)


def test_a_process_without_partitions_says_so_by_absence() -> None:
    assert list(_samples(_gauges(), "delay_router_pending_records")) == []


def test_a_partition_is_ready_when_it_does_what_it_is_to_do() -> None:
    ready = [state for state in PartitionState if PartitionStatus("a", 0, state).ready]
    assert ready == [PartitionState.ACTIVE, PartitionState.PAUSED, PartitionState.DRAINED]


def test_what_readyz_says_of_a_partition() -> None:
    assert A2.as_json() == {
        "state": "waiting",
        "why": "broker away",
        "pending": 0,
        "next_due_ms": None,
        "furthest_due_ms": None,
        "lag": 0,
        "cursor": 0,
        "sealed_to": 0,
        "buckets": 0,
        "held": 0,
        "held_since_ms": None,
        "needed_from": None,
        "needed_since_ms": None,
        "retention_ms": None,
    }
