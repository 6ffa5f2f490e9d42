"""Lists the exported metrics of a router with their labels, from the code that exports them."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from sidecar.config.model import Config
from sidecar.engine.ownership.status import PartitionState, PartitionStatus
from sidecar.metrics import DroppedLines, Metrics
from sidecar.policies.policy import DEFAULT, Policy
from sidecar.policies.table import PolicyTable
from sidecar.policies.watch import PolicyWatch
from sidecar.process.partition_collector import PartitionCollector, TopicCollector

BY_PROMETHEUS: Final = frozenset({"namespace", "job", "instance"})
"""Labels that a scrape adds."""

OUTCOMES: Final = frozenset({"committed", "aborted", "abandoned"})


_CONFIG: Final = Config.model_validate({"kafka": {"bootstrap.servers": "nobody.invalid:1"}})


class Series(NamedTuple):
    """A series name with the labels of its samples, and every value of labels that have few."""

    labels: frozenset[str]
    values: Mapping[str, frozenset[str]]


def catalogue() -> dict[str, Series]:
    """Return every series by the name under which it is queried."""
    found: dict[str, Series] = {}
    for family in registry().collect():
        for sample in family.samples:
            known = found.get(sample.name)
            labels = frozenset(sample.labels) | (known.labels if known else frozenset())
            found[sample.name] = Series(labels, {})
    states = frozenset(state.value for state in PartitionState)
    found["delay_router_partition_state"] = found["delay_router_partition_state"]._replace(values={"state": states})
    found["delay_router_transactions_total"] = found["delay_router_transactions_total"]._replace(
        values={"outcome": OUTCOMES}
    )
    return found


def registry() -> CollectorRegistry:
    """Return a registry with at least one sample of every metric."""
    metrics = Metrics()
    _fill(metrics)
    metrics.registry.register(DroppedLines(lambda: 0))
    metrics.registry.register(PartitionCollector(_statuses, lambda: 1))
    metrics.registry.register(TopicCollector({"t": 1}))
    # Never started, so it sends no requests.
    watch = PolicyWatch(_CONFIG, AdminClient({**_CONFIG.kafka}), metrics.registry)
    for policies in ({}, {DEFAULT: Policy(paused=True)}):
        watch._publish(PolicyTable(policies))
    return metrics.registry


def _fill(metrics: Metrics) -> None:
    """Give each metric a sample, since a metric with labels has none at first."""
    metrics.lateness.observe("t", [1], 2)
    for metric in vars(metrics).values():
        names: Sequence[str] = getattr(metric, "_labelnames", ())
        if names:
            metric.labels(*names)


def _statuses() -> list[PartitionStatus]:
    return [
        PartitionStatus(
            topic="t",
            partition=0,
            state=PartitionState.ACTIVE,
            next_due_ms=1,
            furthest_due_ms=2,
            by_due=(1, 2),
            held_by_target={"t": 1},
            needed_from=1,
            needed_since_ms=1,
            retention_ms=1,
        )
    ]
