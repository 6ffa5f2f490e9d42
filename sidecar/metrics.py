"""All metrics of the router, under stable names: in base units, with `_total` on counters.

A counter is raised once per transaction, never once per record: at 150 k records/s even a counter would cost time. For
the same reason lateness has a histogram of its own, filled from a batch that is already sorted by due time.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from confluent_kafka import libversion
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sidecar import __version__
from sidecar.commit import built_from
from sidecar.lateness import LATENESS_BOUNDS_MS, released_within

# The creation times of series are of no use here, and would double the number of samples of counters.
disable_created_metrics()  # type: ignore[no-untyped-call]

PREFIX = "delay_router_"
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class LatenessHistogram(Collector):
    """Histogram of release lateness."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, list[int]] = {}
        self._sums_ms: dict[str, int] = {}

    def observe(self, topic: str, due_times_ms: Sequence[int], released_ms: int) -> list[int]:
        """Count a batch of ascending due times that became visible at ``released_ms``, and return its counts."""
        counted = released_within(due_times_ms, released_ms)
        with self._lock:
            counts = self._counts.setdefault(topic, [0] * (len(LATENESS_BOUNDS_MS) + 1))
            for place, count in enumerate(counted):
                counts[place] += count
            self._sums_ms[topic] = self._sums_ms.get(topic, 0) + len(due_times_ms) * released_ms - sum(due_times_ms)
        return counted

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram, for one scrape."""
        family = HistogramMetricFamily(
            PREFIX + "release_lateness_seconds",
            "From due time to the commit that made the record visible; late-indexed records are not in it",
            labels=["topic"],
        )
        names = [*(str(bound / 1_000) for bound in LATENESS_BOUNDS_MS), "+Inf"]
        with self._lock:
            for topic, counts in self._counts.items():
                family.add_metric([topic], list(zip(names, counts, strict=True)), self._sums_ms[topic] / 1_000)
        yield family


class DroppedLines(Collector):
    """Exports the number of dropped log lines, which the writer of the log counts."""

    def __init__(self, count: Callable[[], float]) -> None:
        self._count = count

    def collect(self) -> Iterator[Metric]:
        """Yield the counter, for one scrape."""
        yield CounterMetricFamily(PREFIX + "log_lines_dropped", "Log lines that nobody took in time", self._count())


class Metrics:
    """The metrics of one process.

    ``kernel`` is the name of its kernel (:mod:`sidecar.kernel`), and ``memory_limit_bytes`` the limit of its container,
    0 without one.
    """

    def __init__(self, kernel: str = "python", memory_limit_bytes: int = 0) -> None:
        self.registry = CollectorRegistry()
        self.lateness = LatenessHistogram()
        self.registry.register(self.lateness)
        ProcessCollector(registry=self.registry)
        limit = Gauge(PREFIX + "memory_limit_bytes", "Memory limit of the container; 0: none", registry=self.registry)
        limit.set(memory_limit_bytes)
        counter, histogram = self._counter, self._histogram
        self.indexed = counter("records_indexed", "Records accepted and indexed", "topic")
        self.released = counter("records_released", "Records written to a target", "topic", "target")
        self.rejected = counter("records_rejected", "Records written to the rejected topic", "topic", "reason")
        self.both_times = counter(
            "records_both_times", "Records with deliver-at and deliver-after; deliver-at won", "topic"
        )
        self.without_time = counter(
            "records_without_time", "Accepted records that name no time; they are released at once", "topic"
        )
        self.attempts = counter("attempts", "Records released in an attempt, by its number", "topic", "attempt")
        self.attempts_exhausted = counter(
            "attempts_exhausted", "Records without an attempt left, released to the dead-letter topic", "topic"
        )
        self.receipts = counter(
            "receipts", "Receipts of records that cancel, replace or move others", "topic", "outcome"
        )
        self.cancelled = counter("records_cancelled", "Pending records that were cancelled, replaced or moved", "topic")
        self.occurrences_skipped = counter(
            "occurrences_skipped", "Occurrences of recurring schedules that were missed and skipped", "topic"
        )
        self.lost = counter(
            "records_lost", "Offsets that retention removed before they were indexed or released", "topic"
        )
        self.truncated = counter(
            "records_rejected_truncated", "Rejected records whose value the rejected topic refused", "topic"
        )
        self.seal_seconds = histogram("seal_seconds", "Time from freezing a bucket to its committed manifest", "topic")
        self.merge_seconds = histogram("merge_seconds", "Time from choosing buckets to the merged manifest", "topic")
        self.entries_merged = counter(
            "entries_merged", "Pending records that a merge wrote again; beside records_indexed: rewrites", "topic"
        )
        self.seal_failures = counter("seal_failures", "Seals and merges given up, to be tried again", "topic")
        self.trim_failures = counter("trim_failures", "DeleteRecords that failed, to be tried again", "topic")
        self.load_failures = counter("load_failures", "Loads of a segment that failed, to be tried again", "topic")
        self.backfills = counter("backfills", "Staged buckets: adopted, discarded or refused", "topic", "outcome")
        self.held = counter(
            "records_held", "Records that had to wait for their target beyond their due time", "topic", "target"
        )
        self.held_seconds = histogram(
            "held_seconds",
            "Time from due time to release, of records that had to wait for their target",
            "topic",
            "target",
        )
        self.recovery = histogram("recovery_seconds", "Time from assignment to active", "topic")
        self.renewals = counter(
            "renewals", "Take-overs because a connection was lost, over which a request may have been repeated", "topic"
        )
        self.transactions = counter(
            "transactions",
            "Commits of partitions by outcome; in lanes one transaction of Kafka has several",
            "topic",
            "outcome",
        )
        self.throttled = counter(
            "throttled_seconds", "Time for which brokers held writes back because of quotas", "topic"
        )
        self.transaction_seconds = histogram(
            "transaction_seconds",
            "Time from the plan of a commit to its end, with the waits for the lane and the processor",
            "topic",
        )
        build = Info(PREFIX + "build", "Versions", registry=self.registry)
        build.info(
            {
                "version": __version__,
                "commit": built_from(),
                "python": platform.python_version(),
                "librdkafka": libversion()[0],
                "kernel": kernel,
            }
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(PREFIX + name, text, labels, buckets=SECONDS, registry=self.registry)
