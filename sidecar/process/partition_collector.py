"""Exports gauges over the partitions of a process to Prometheus."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar.engine.ownership.status import BOUND_NAMES, PartitionState, PartitionStatus
from sidecar.metrics import PREFIX


class PartitionCollector(Collector):
    """Gauges over the partitions of a process, computed on each scrape."""

    def __init__(self, statuses: Callable[[], list[PartitionStatus]], payload_bytes: Callable[[], int]) -> None:
        self._statuses = statuses
        self._payload_bytes = payload_bytes

    def collect(self) -> Iterator[Metric]:
        """Yield all gauges, for one scrape."""
        statuses = self._statuses()
        by_topic: dict[str, list[PartitionStatus]] = {}
        for status in statuses:
            by_topic.setdefault(status.topic, []).append(status)

        pending = _gauge("pending_records", "Indexed records not yet released", "topic")
        next_due = _gauge("next_due_timestamp_seconds", "Due time of the first pending record", "topic")
        furthest = _gauge("furthest_due_timestamp_seconds", "Due time of the last pending record", "topic")
        buckets = _gauge("buckets", "Immutable buckets", "topic")
        held = _gauge("held_records", "Pending records beyond their due time that wait for their target", "topic")
        held_for = _gauge("held_records_by_target", "Of these, those that wait for a target", "topic", "target")
        snapshot_bytes = _gauge("snapshot_bytes", "Bytes of segments not yet released", "topic")
        masked = _gauge("masked_records", "Cancelled records that are still in a bucket or in the log", "topic")
        by_due = _gauge("pending_by_due", "Pending records due within so many seconds; 0: overdue", "topic", "within")
        in_doubt = _gauge(
            "partitions_in_doubt",
            "Partitions of targets that records wait for, since the brokers may have forgotten a transaction there",
            "topic",
        )
        retention = _gauge("delay_topic_retention_seconds", "How long the delay topic keeps a record", "topic")
        for topic, own in by_topic.items():
            pending.add_metric([topic], sum(status.pending for status in own))
            _add_seconds(next_due, topic, min, (status.next_due_ms for status in own))
            _add_seconds(furthest, topic, max, (status.furthest_due_ms for status in own))
            buckets.add_metric([topic], sum(status.buckets for status in own))
            held.add_metric([topic], sum(status.held for status in own))
            waiting: Counter[str] = Counter()
            for status in own:
                waiting.update(status.held_by_target)
            for target, count in waiting.items():
                held_for.add_metric([topic, target], count)
            masked.add_metric([topic], sum(status.masked for status in own))
            in_doubt.add_metric([topic], max(status.in_doubt for status in own))
            snapshot_bytes.add_metric([topic], sum(status.snapshot_bytes for status in own))
            _add_retention(retention, topic, (status.retention_ms for status in own))
            for within, count in _cumulated(status.by_due for status in own):
                by_due.add_metric([topic, within], count)

        lag = _gauge("index_lag_records", "Offsets of the delay topic not yet indexed", "topic", "partition")
        state = _gauge("partition_state", "1 for the state that holds", "topic", "partition", "state")
        needed = _gauge("needed_from_offset", "First offset the delay topic must keep", "topic", "partition")
        needed_time = _gauge(
            "needed_from_timestamp_seconds",
            "When the first record was written that the delay topic must keep",
            "topic",
            "partition",
        )
        hidden = _gauge(
            "hidden_by_open_transaction_seconds",
            "How long an open transaction has hidden the end of the delay partition; 0: nothing is hidden",
            "topic",
            "partition",
        )
        for status in statuses:
            labels = [status.topic, str(status.partition)]
            if status.needed_from is not None:
                needed.add_metric(labels, status.needed_from)
            if status.needed_since_ms is not None:
                needed_time.add_metric(labels, status.needed_since_ms / 1_000)
            lag.add_metric(labels, status.lag)
            hidden.add_metric(labels, status.hidden_s)
            for each in PartitionState:
                state.add_metric([*labels, each.value], float(each is status.state))

        payload = _gauge("payload_bytes", "Payload of pending records held in memory")
        payload.add_metric([], self._payload_bytes())
        yield from (pending, by_due, next_due, furthest, buckets, held, held_for, masked, snapshot_bytes)
        yield from (lag, hidden, state, needed, needed_time, retention, payload, in_doubt)


class TopicCollector(Collector):
    """A gauge over the delay topics that a process helps to serve; a partition without an owner has no other sample."""

    def __init__(self, partitions: Mapping[str, int]) -> None:
        self._partitions = partitions

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge, for one scrape."""
        partitions = _gauge("delay_topic_partitions", "Partitions of the delay topic, served or not", "topic")
        for topic, count in dict(self._partitions).items():
            partitions.add_metric([topic], count)
        yield partitions


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(PREFIX + name, text, labels=labels)


def _cumulated(counts: Iterable[tuple[int, ...]]) -> Iterator[tuple[str, int]]:
    """Return pairs (upper bound in seconds, records due by then) as in a histogram, over the partitions with counts."""
    sums = [sum(column) for column in zip(*(each for each in counts if each), strict=True)]
    return zip(BOUND_NAMES, accumulate(sums), strict=False)


def _add_retention(family: GaugeMetricFamily, topic: str, retentions_ms: Iterable[int | None]) -> None:
    known = [math.inf if each < 0 else each / 1_000 for each in retentions_ms if each is not None]
    if known:
        family.add_metric([topic], min(known))


def _add_seconds(
    family: GaugeMetricFamily,
    topic: str,
    choose: Callable[[Iterable[int]], int],
    due_times_ms: Iterable[int | None],
) -> None:
    present = [due_ms for due_ms in due_times_ms if due_ms is not None]
    if present:
        family.add_metric([topic], choose(present) / 1_000)
