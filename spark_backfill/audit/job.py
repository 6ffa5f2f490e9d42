"""The audit: reports from the topics alone the outcome of every record, at the size of a cluster.

The router is not asked. Beside constants (names of headers, units of aliases) and the configuration, the audit uses
none of its code: due times, targets and digests are computed again, in :mod:`spark_backfill.audit.protocol`. ``python
-m sidecar.dev.audit`` does the same in one process, without aliases.

First the scope is pinned (:mod:`spark_backfill.audit.scope`). Every record becomes a narrow row
(:mod:`spark_backfill.audit.facts`), rows meet by the place of the sent record (:mod:`spark_backfill.audit.verdicts`),
and verdicts are counted (:mod:`spark_backfill.audit.summary`). The driver sees counts and a few samples, never records.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka.admin import AdminClient
from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from index.errors import ConfigError
from spark_backfill import cluster
from spark_backfill.audit.facts import Scene, facts, queries_of
from spark_backfill.audit.history import horizons, read_from
from spark_backfill.audit.scope import AuditRequest, Judged, judged, receipts_of, targets_of
from spark_backfill.audit.summary import cells, counted, findings, settle, with_place
from spark_backfill.audit.table import GROUPS, NO_RECORDS, SAMPLES, Tally, tally
from spark_backfill.audit.verdicts import verdicts
from spark_backfill.settings import Settings
from spark_backfill.stages import Line, said, stages_of

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Pinned:
    """Step 1 of the audit: the judged records, and the moment when the audit began."""

    admin: AdminClient
    request: AuditRequest
    judged: tuple[Judged, ...]
    began_ms: int
    grace_ends_s: float


class Audited:
    """Verdicts that Spark keeps, to be counted and written."""

    def __init__(self, cells: DataFrame) -> None:
        self._cells = cells

    def total(self) -> Tally:
        """Count everything; zeros where there is nothing."""
        return (self.by(()) or [NO_RECORDS])[0]

    def by(self, keys: Sequence[str]) -> list[Tally]:
        """Count by topic, partition or hour (GROUPS), in order."""
        found = counted(self._cells, keys)
        rows = (found.orderBy(*keys) if keys else found).collect()
        return [tally(row.asDict(), keys) for row in rows]

    def samples(self, count: int = SAMPLES) -> list[dict[str, Any]]:
        """Return a few findings, ordered by kind."""
        ordered = findings(self._cells).orderBy("outcome", "topic", "partition", "offset")
        return [row.asDict() for row in ordered.limit(count).collect()]

    def write(self, path: str) -> None:
        """Write ``<path>/summary`` (by topic, partition and hour) and ``<path>/findings`` as Parquet."""
        summary = counted(self._cells, GROUPS["hour"])
        hour = f.timestamp_millis("hour_ms").alias("hour")
        summary.select(hour, "*").orderBy(*GROUPS["hour"]).coalesce(1).write.mode("errorifexists").parquet(
            f"{path}/summary"
        )
        findings(self._cells).write.mode("errorifexists").parquet(f"{path}/findings")


def pin(settings: Settings, request: AuditRequest) -> Pinned:
    """Pin the judged records before Spark starts, so that the grace period passes meanwhile."""
    admin = cluster.connect(settings)
    began_ms = time.time_ns() // 1_000_000
    found = tuple(judged(admin, topic, request.selection) for topic in request.topics)
    return Pinned(admin, request, found, began_ms, time.monotonic() + request.grace_ms / 1000)


@contextmanager
def audit(
    spark: SparkSession, settings: Settings, options: Mapping[str, str], pinned: Pinned, say: Say
) -> Iterator[Audited]:
    """Reach the verdicts, and keep them until the context ends; ``options`` configure Spark's Kafka source.

    Raises ConfigError for a target topic that does not exist, JobError when a transaction stays open.
    """
    scene, oldest = _scene(settings, pinned, say)
    reads = sum(
        scene.delay_ends[each.topic.name, p] - start for each in scene.judged for p, start in each.starts.items()
    )
    copies = sum(end - start for start, end in (*scene.outgoing.values(), *scene.receipts.values()))
    say(f"reading {reads:,} offsets of delay topics, and {copies:,} of target, rejected and receipts topics")
    began_s = time.monotonic()
    request = pinned.request
    queries = queries_of(spark, options, scene, request.split_records)
    rows = facts(spark, options, scene, queries, request.grace_ms, request.split_records)
    tasks = max(spark.sparkContext.defaultParallelism, -(-(reads + copies) // request.split_records))
    found = with_place(cells(verdicts(rows, scene, pinned.began_ms, oldest, tasks)), scene).coalesce(tasks)
    found.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        context = spark.sparkContext
        with said(context, "audit", partial(judging, context, reads + copies), say):
            judged_records = found.agg(f.sum("n")).collect()[0][0] or 0
        took_s = time.monotonic() - began_s
        say(f"{judged_records:,} records judged in {took_s:.1f} s ({(reads + copies) / took_s:,.0f} offsets/s)")
        yield Audited(settle(found, queries, scene))
    finally:
        found.unpersist()


def judging(context: SparkContext, offsets: int, group: str) -> Line:
    """Return a line about the audit: how much of the topics was read, then how many parts were judged."""

    def line() -> str:
        stages = stages_of(context, group)
        if not stages:
            return ""
        read = f"read {stages[0]} of the topics, about {offsets * stages[0].done // stages[0].tasks:,} offsets"
        return read if len(stages) == 1 else f"{read}; judged {stages[-1]}"

    return line


def _scene(settings: Settings, pinned: Pinned, say: Say) -> tuple[Scene, dict[str, int]]:
    """Pin the remainder of the scope (steps 2 to 4); return it with the horizons of the outgoing topics."""
    admin, request = pinned.admin, pinned.request
    left_s = pinned.grace_ends_s - time.monotonic()
    if left_s > 0:
        say(f"{left_s:.0f} s of grace for records that are on their way")
        time.sleep(left_s)
    existing = cluster.all_topics(admin)
    targets = _targets(request, existing)
    rejected = sorted({topic.rejected for topic in request.topics})
    receipts = receipts_of(request.topics, existing, say)
    found = cluster.topics(admin, [*targets, *rejected, *receipts])
    counts = {name: topic.partitions for name, topic in found.items()}
    ends = cluster.committed_ends(admin, counts, request.settle_s, say)
    starts = {
        (name, partition): log.start
        for name, count in counts.items()
        for partition, log in cluster.log_ranges(admin, name, range(count)).items()
    }
    topic_settings = cluster.topic_settings(admin, [*counts, *(each.topic.name for each in pinned.judged)])
    oldest = dict.fromkeys(rejected, 0) | horizons(settings, starts, ends, topic_settings, pinned.began_ms)
    delays = {each.topic.name: each.partitions for each in pinned.judged}
    chosen = read_from(admin, settings, pinned.judged, starts, ends, topic_settings)
    delay_ends = cluster.committed_ends(admin, delays, request.settle_s, say)
    configured = {topic.name for topic in settings.delay_topics}
    ranges = {place: (start, ends[place]) for place, start in chosen.items()}
    scene = Scene(
        judged=pinned.judged,
        delay_ends=delay_ends,
        targets=tuple(targets),
        unread=frozenset(existing) - set(targets),
        others=frozenset(configured - {each.topic.name for each in pinned.judged}),
        outgoing={place: each for place, each in ranges.items() if place[0] not in receipts},
        receipts={place: each for place, each in ranges.items() if place[0] in receipts},
    )
    return scene, oldest


def _targets(request: AuditRequest, existing: Iterable[str]) -> list[str]:
    existing = list(existing)
    if not request.targets:
        return sorted({name for topic in request.topics for name in targets_of(topic, existing)})
    missing = sorted(set(request.targets) - set(existing))
    if missing:
        raise ConfigError(f"--target {missing[0]}: no such topic in the cluster")
    return sorted(set(request.targets))
