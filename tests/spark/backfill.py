"""Reads back the staged buckets of a job by position, and decides the same log by the rules."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from index.buckets.bucket import Manifest
from index.protocol.record import Record
from index.protocol.schedule import Rejection, due_ms_of
from index.rules.rules import Rules
from sidecar.dev.demo.router import config_text
from sidecar.kafka.client.admin import log_range, uncommitted_end
from snapshots.segments.segment import StoredEntry, decode_segment
from snapshots.state.staged import Intent, StagedBucket, fold_staged
from spark_backfill import cluster, settings
from spark_backfill.buckets.job import Job
from spark_backfill.build import index_job, rebuild_job, scope
from spark_backfill.build.index_job import IndexOutcome, Options
from spark_backfill.build.scope import Asked
from spark_backfill.source import OffsetRange
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, wait_until

COMPACT = {"cleanup.policy": "compact"}
SMALL = Options(bucket_records=500, task_records=250)


def delay_topic(stage: Stage, partitions: int = 1, **options: Any) -> str:
    """Create a delay topic of the stage with its backfill topic."""
    delay = stage.delay(partitions=partitions, **options)
    if f"{delay}.delay-backfill" not in stage.admin.list_topics(timeout=10).topics:
        stage.create([NewTopic(f"{delay}.delay-backfill", partitions, 1, config=COMPACT)])
    return delay


def config_file(stage: Stage, directory: Path) -> Path:
    """Write the configuration of the stage, as its routers get it. Return the file."""
    file = directory / "jobs.toml"
    tables: dict[str, Any] = {
        "kafka": stage.kafka,
        "router": {"group_id": stage.group_id},
        "delay_topics": list(stage.delays.values()),
    }
    file.write_text(config_text(tables))
    return file


def settings_of(stage: Stage, directory: Path) -> settings.Settings:
    """Return the configuration of the stage as the jobs read it."""
    return settings.load(config_file(stage, directory), {})


class Wanted(NamedTuple):
    """An expected entry: its due time, its record, and the record's content in the segment (None: no content)."""

    due_ms: int
    offset: int
    record: Record | None


def wanted(stage: Stage, delay: str, rules: Rules, partition: int, start: int, end: int) -> list[Wanted]:
    """Return the entries of [start, end) in release order, from a decision on every record as the router makes it."""
    found = []
    for each in stage.records(delay):
        if each.partition != partition or not start <= each.offset < end:
            continue
        record = Record(each.key, each.value, list(each.headers), each.timestamp_ms)
        decision = rules.decide(record.headers, record.timestamp_ms)
        rejected = isinstance(decision, Rejection)
        found.append(Wanted(due_ms_of(decision), each.offset, None if rejected else record))
    return sorted(found, key=lambda entry: entry[:2])


def staged(stage: Stage, delay: str, partition: int = 0) -> tuple[list[StagedBucket], list[Intent]]:
    """Return the staged buckets and open intents in the backfill topic, once all committed records are visible."""
    backfill = f"{delay}.delay-backfill"
    # A coordinator answers a commit before its markers are written; transactions that began earlier may be open, too.
    wait_until(
        lambda: log_range(stage.admin, backfill, partition)[1] == uncommitted_end(stage.admin, backfill, partition),
        f"no transaction is open on {backfill}",
    )
    records = [each for each in stage.records(backfill) if each.partition == partition]
    return fold_staged([(each.key, each.value) for each in records])


def entries_of(stage: Stage, delay: str, manifest: Manifest, partition: int = 0) -> list[StoredEntry]:
    """Return the entries of all segments of a staged bucket, checked against its manifest."""
    snapshots = {each.offset: each for each in stage.records(f"{delay}.delay-snapshots") if each.partition == partition}
    found: list[StoredEntry] = []
    for ref in manifest.segments:
        value = snapshots[ref.record_offset].value
        assert value is not None, f"segment at {ref.record_offset} was removed"
        assert len(value) == ref.size_bytes
        entries = decode_segment(value)
        assert (entries[0][:2], entries[-1][:2], len(entries)) == (ref.first, ref.last, ref.entries)
        found += entries
    return found


def same(found: Sequence[StoredEntry], expected: Sequence[Wanted]) -> bool:
    """Say whether the entries are the expected ones in the expected order, inline."""
    return [_plain(entry) for entry in found] == [_plain(entry) for entry in expected]


def _plain(entry: tuple[int, int, Record | None]) -> tuple[int, int, Any]:
    due_ms, offset, record = entry
    return due_ms, offset, record and record._replace(headers=list(record.headers))


def prepared(stage: Stage, directory: Path, delay: str) -> tuple[Job, list[OffsetRange]]:
    """Return an index job over the whole log, before it has written anything, and its ranges."""
    settings = settings_of(stage, directory)
    admin, topic = cluster.connect(settings), settings.delay_topic(delay)
    known = scope.look(settings, topic, admin, Asked())
    ranges = scope.index_ranges(topic, known, Asked())
    return index_job.prepare(settings, topic, known.delay.topic_id, ranges, Options(task_records=1_500), admin), ranges


def adopted(router: RouterProcess, delay: str) -> float:
    """Return how many staged buckets a router has adopted."""
    return router.metric(f'backfills_total{{outcome="adopted",topic="{delay}"}}')


def index(
    spark: SparkSession, stage: Stage, directory: Path, delay: str, asked: Asked | None = None, options: Options = SMALL
) -> IndexOutcome:
    """Index a delay topic, or the offsets that are ``asked`` for."""
    settings = settings_of(stage, directory)
    return index_job.index(spark, settings, settings.delay_topic(delay), asked or Asked(), options, print)


def rebuild(
    spark: SparkSession,
    stage: Stage,
    directory: Path,
    delay: str,
    released_before_ms: int = -1,
    say: Callable[[str], None] = print,
) -> IndexOutcome:
    """Rebuild the whole delay topic in small buckets."""
    settings = settings_of(stage, directory)
    topic = settings.delay_topic(delay)
    options = Options("rebuild", bucket_records=400, task_records=200)
    return rebuild_job.rebuild(spark, settings, topic, Asked(), options, say, released_before_ms=released_before_ms)


def wait_for_end_of_session(stage: Stage, directory: Path) -> None:
    """Wait until a stopped router is no member of the group: a static member stays one until its session ends."""
    admin = cluster.connect(settings_of(stage, directory))
    wait_until(lambda: not cluster.group_members(admin, stage.group_id), "end of the router's session")


def lose_state(stage: Stage, delay: str) -> None:
    """Lose topics for good, and create them again as OPERATIONS says, under "A lost broker"."""
    stage.delete(*(f"{delay}.{name}" for name in ("delay-state", "delay-snapshots", "delay-backfill")))
    done = stage.router("init").command("init")
    assert (done.returncode, "the state was lost" in done.stdout) == (1, True), done.stdout


def pending_offsets(stage: Stage, delay: str) -> list[int]:
    """Return the offsets of the records that ``rebuild`` has staged."""
    found, intents = staged(stage, delay)
    assert intents == []
    assert all(each.restores for each in found)
    return sorted(offset for each in found for _, offset, _ in entries_of(stage, delay, each.manifest))
