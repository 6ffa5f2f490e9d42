"""``index``: builds the buckets of ranges of a delay topic and stages them for the router.

::

    connector ─► decide (Arrow) ─► shuffle by slot ─► sort, cut, encode, write (tasks) ─► stage (driver, at the end)
                                                      D.delay-snapshots                  D.delay-backfill
"""

import dataclasses
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from index.buckets.bucket_rules import SealRules
from index.rules.rules import Rules
from snapshots.segments.writing import record_size
from spark_backfill import cluster, kernel
from spark_backfill.buckets import controls
from spark_backfill.buckets.deciding import DecideTask
from spark_backfill.buckets.job import Job, portable
from spark_backfill.buckets.plan import BucketRange, Slots, buckets_of, planned, segments_of
from spark_backfill.buckets.runs import RUN_SCHEMA, InRuns
from spark_backfill.buckets.sampling import Sampled, sample
from spark_backfill.buckets.sharing import slot_keys
from spark_backfill.buckets.sink import FORMAT, data_source
from spark_backfill.buckets.staging import Intents, outcome_is_open
from spark_backfill.build import scope
from spark_backfill.build.progress import ProgressReport
from spark_backfill.errors import JobError, NeedsOwnerError, is_data_loss, said_by_task
from spark_backfill.settings import DelayTopic, Settings
from spark_backfill.source import OffsetRange, connector_options, read_ranges


@dataclass(frozen=True, slots=True)
class Options:
    """The division of the work; ``kafka_options`` are KEY=VALUE for the connector.

    * ``bucket_records``: most offsets in one bucket, which is adopted as a whole.
    * ``task_records``: about how many records one task reads, or sorts and encodes.
    * ``stretch_records``: fewest offsets without a control that are worth staging: about as many as a router indexes in
      a second.
    """

    job: str = "index"
    bucket_records: int = 5_000_000
    task_records: int = 250_000
    stretch_records: int = 50_000
    kafka_options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class IndexOutcome:
    """The staged buckets in numbers, all 0 when there was nothing to do."""

    buckets: int = 0
    entries: int = 0
    segments: int = 0
    bytes: int = 0
    kernel: str = field(default="", compare=False)
    """The kernel of the tasks, and the reason where it was not native."""


SEGMENTS_A_BUCKET = 5_000
"""Most full segments of a bucket; segments that end with their time step come on top, and a manifest holds 20,000."""

MOST_SEGMENTS = 10_000
"""Most segments of all kinds, as estimated by a sample: half of the most in a manifest, because a sample may be
wrong."""


def index(
    spark: SparkSession,
    settings: Settings,
    topic: DelayTopic,
    asked: scope.Asked,
    options: Options,
    say: Callable[[str], None],
) -> IndexOutcome:
    """Index the requested ranges; raise JobError before any work when that is impossible."""
    admin = cluster.connect(settings)
    known = scope.look(settings, topic, admin, asked)
    ranges = scope.index_ranges(topic, known, asked)
    if not ranges:
        say(f"{topic.name}: the router has indexed all there is; nothing to do")
        return IndexOutcome()
    connector = connector_options(settings.kafka, options.kafka_options)
    records = read_ranges(spark, connector, topic.name, ranges, options.task_records)
    try:
        return run(spark, prepare(settings, topic, known.delay.topic_id, ranges, options, admin), records, say)
    except NeedsOwnerError as found:
        # As a rule there are no controls in the offsets left to a job, so it looks for them only once it meets one.
        say(f"{found}; reading where there are others")
    spans = controls.spans(records, topic.rules, options.stretch_records)
    stretches = controls.stretches(ranges, spans, options.stretch_records)
    left = sum(each.span for each in ranges) - sum(each.span for each in stretches)
    say(
        f"{topic.name}: {len(stretches)} stretches of {options.stretch_records:,} offsets or more without a control are"
        f" staged; {left:,} offsets are left to the router"
    )
    if not stretches:
        return IndexOutcome()
    return run(spark, prepare(settings, topic, known.delay.topic_id, stretches, options, admin), records, say)


def prepare(
    settings: Settings,
    topic: DelayTopic,
    topic_id: str,
    ranges: Sequence[OffsetRange],
    options: Options,
    admin: AdminClient,
    *,
    restores: bool = False,
) -> Job:
    """Divide the work, which takes a sample of the records."""
    seal_rules = dataclasses.replace(topic.seal_rules, placement=scope.placement(admin, topic))
    slots = divided(settings, topic.rules, ranges, options, seal_rules)
    return Job(
        name=options.job,
        run=secrets.token_hex(6),
        kafka=portable(settings.kafka),
        group_id=settings.group_id,
        delay_topic=topic.name,
        delay_topic_id=topic_id,
        snapshots=topic.snapshots,
        backfill=topic.backfill,
        rules_json=topic.rules.to_json(),
        seal_rules=seal_rules,
        slots=slots,
        slot_keys=slot_keys(slots.count),
        restores=restores,
        report=str(Path(tempfile.gettempdir()) / f"delay-router-{secrets.token_hex(8)}.json"),
        kernel=kernel.asked(os.environ),
    )


def divided(
    settings: Settings, rules: Rules, ranges: Sequence[OffsetRange], options: Options, seal_rules: SealRules
) -> Slots:
    """Divide ranges into buckets of the requested size, or smaller: a manifest has no room for many small segments."""
    most = min(options.bucket_records, seal_rules.segment_entries * SEGMENTS_A_BUCKET)
    while True:
        buckets = buckets_of(ranges, most)
        seen = sample(settings, rules, buckets, options.task_records)
        segments = max((_segments(bucket, found, seal_rules) for bucket, found in seen.items()), default=0)
        if segments <= MOST_SEGMENTS or most <= MOST_SEGMENTS:
            break
        # A bucket of MOST_SEGMENTS offsets never has more segments.
        most = max(min(most, max(bucket.span for bucket in buckets)) * MOST_SEGMENTS // segments // 2, MOST_SEGMENTS)
    positions = {bucket: [each.position for each in found] for bucket, found in seen.items()}
    return planned(buckets, positions, options.task_records)


def _segments(bucket: BucketRange, found: Sequence[Sampled], seal_rules: SealRules) -> int:
    # Segments of pointers have the records in the delay topic.
    pointers = seal_rules.placement == "pointer"
    sizes_bytes = [record_size(None) if pointers else each.size_bytes for each in found]
    return segments_of(bucket.span, [each.position.due_ms for each in found], sizes_bytes, seal_rules)


def run(
    spark: SparkSession,
    job: Job,
    records: DataFrame,
    say: Callable[[str], None],
    *,
    gone_before_ms: int = -1,
    answered: bool = False,
) -> IndexOutcome:
    """Index ``records`` of the connector, without records whose due time and timestamp are up to ``gone_before_ms``.

    A control raises NeedsOwnerError, unless all controls have been ``answered``.
    """
    snapshots_from = cluster.appended_ends(cluster.connect(job), job.snapshots, job.partitions)
    intents = Intents(job.intent, job.backfill, job.producer(), snapshots_from)
    intents.write()
    offsets = sum(bucket.span for bucket in job.slots.buckets)
    say(f"{job.delay_topic}: {offsets:,} offsets of {len(job.partitions)} partitions, {len(job.slots.buckets)} buckets")
    context = spark.sparkContext
    group = f"{job.name}-{job.run}"
    context.setJobGroup(group, f"{job.name} of {job.delay_topic}", interruptOnCancel=False)
    try:
        with ProgressReport(context, group, offsets, say, intents):
            _write(spark, job, records, gone_before_ms, answered=answered)
        outcome = _outcome(job)
    except BaseException:
        if not outcome_is_open(job):
            _cancel(intents, say)
        raise
    finally:
        Path(job.report).unlink(missing_ok=True)
    say(f"kernel: {outcome.kernel}")
    return outcome


def _write(spark: SparkSession, job: Job, records: DataFrame, gone_before_ms: int, *, answered: bool) -> None:
    slots = job.slots
    keeps_payload = job.seal_rules.placement != "pointer"
    deciding = DecideTask(job.rules_json, slots, job.slot_keys, keeps_payload, answered, job.kernel)
    columns = ("partition", "offset", "timestamp", "key", "value", "headers")
    runs = records.select(*columns).mapInArrow(InRuns(deciding, gone_before_ms), RUN_SCHEMA)
    by_slot = runs.repartition(slots.count, "slot_key")
    spark.dataSource.register(data_source(job))
    try:
        by_slot.write.format(FORMAT).mode("append").save()
    except (PySparkException, Py4JJavaError) as error:
        if meant := _meant(job, str(error)):
            raise meant from error
        raise


def _meant(job: Job, text: str) -> JobError | None:
    """Translate an error of Spark to one of ours; None where Spark's own text says it best."""
    if said := said_by_task(text):
        return (NeedsOwnerError if said.name == NeedsOwnerError.__name__ else JobError)(said.message)
    if is_data_loss(text):
        return JobError(
            f"{job.delay_topic}: retention has removed records while the job read them, and nothing was staged; raise"
            " the topic's retention, or run the job again for what is left"
        )
    return None


def _outcome(job: Job) -> IndexOutcome:
    report: Mapping[str, Any] = json.loads(Path(job.report).read_text(encoding="utf-8"))
    return IndexOutcome(**report)


def _cancel(intents: Intents, say: Callable[[str], None]) -> None:
    try:
        intents.cancel()
    except KafkaException as exception:
        say(f"the intents of this job stay until they expire: {exception.args[0].str()}")
