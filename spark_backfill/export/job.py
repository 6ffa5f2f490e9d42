"""``export``: writes the pending records of a delay topic, as of one moment, as a table.

1. An *intent* keeps routers from trimming segments; no later state needs the segments that they had decided to trim
   before (``sidecar/engine/buckets/trimming.py``).
2. A moment of each partition is found, and its state read (:mod:`spark_backfill.export.moment`).
3. Spark reads segments and log, decides, and writes the table; the driver has states, and no records but held ones.

Routers go on meanwhile. Compaction of merged segments and trimming of the delay topic may remove inputs of step 3. A
segment that is missing ends the attempt, and the export starts once more, as of a later moment. A record that its
segment names and the delay topic does not have becomes a row that says so: it has left since, or retention has removed
it, which the router will count as lost.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from index.errors import FormatError
from index.pending.progress import start_of
from index.rules.rule_history import RuleHistory
from snapshots.state.pending import StoredPending
from snapshots.state.state import StoredState, fold_state
from spark_backfill import cluster
from spark_backfill.buckets.job import producing
from spark_backfill.buckets.staging import Intents
from spark_backfill.build import scope
from spark_backfill.build.progress import ProgressReport
from spark_backfill.cluster import Topic
from spark_backfill.errors import GoneError, JobError, is_data_loss, said_by_task
from spark_backfill.export.frame import ExportRequest, ExportState, rows_of
from spark_backfill.export.moment import Moment, asking, moments
from spark_backfill.export.rows import CONTROL, GONE, HELD, INDEXED, NOT_INDEXED
from spark_backfill.settings import DelayTopic, Settings

ATTEMPTS: Final = 3
STATES: Final = (HELD, INDEXED, NOT_INDEXED, GONE)

Say = Callable[[str], None]
Write = Callable[[DataFrame, bool], None]
"""Writes rows into the table; True if an earlier attempt has begun to."""


@dataclass(frozen=True, slots=True)
class ExportOutcome:
    """Rows by their state, and how many controls behind the cursors no router has acted on yet."""

    rows: Mapping[str, int]
    controls: int

    def as_json(self) -> dict[str, int]:
        """Return a flat object."""
        return {**self.rows, "controls_not_indexed": self.controls}


@dataclass(frozen=True, slots=True)
class _Export:
    """One run of the job."""

    settings: Settings
    topic: DelayTopic
    delay: Topic
    partitions: Sequence[int]
    admin: AdminClient
    say: Say

    def intents(self, run: str) -> Intents:
        """Return the intents of this run, which begin at the first segment in the log."""
        logs = cluster.log_ranges(self.admin, self.topic.snapshots, self.partitions)
        producer = producing(self.settings.kafka, self.settings.group_id)
        return Intents(run, self.topic.backfill, producer, {number: log.start for number, log in logs.items()})

    def standing(self) -> ExportState:
        """Read the state of all partitions as of now; raise GoneError when a part of it was removed meanwhile."""
        found = moments(asking(self.admin, self.topic), self.partitions, self.say)
        return ExportState(found, {number: self._pending(number, moment) for number, moment in found.items()})

    def _pending(self, partition: int, moment: Moment) -> StoredPending:
        records = cluster.records_of(self.settings, self.topic.state, partition, moment.state_end)
        place = f"{self.topic.name}/{partition}"
        try:
            state = fold_state(records)
        except FormatError as error:
            # Compaction may have removed a value that was replaced since; the next moment has a whole state then.
            raise GoneError(f"{place}: the state cannot be understood: {error}") from error
        if state is None:
            history = RuleHistory.beginning(0, self.topic.rules)
            state = StoredState(start_of(moment.log.start), self.delay.topic_id, history)
        if state.delay_topic_id != self.delay.topic_id:
            raise JobError(
                f"{place}: the topic was deleted and created again, and the router's state is about the old one; to"
                f" forget that: delay-router start-over {place}"
            )
        return StoredPending.of(state)


def export(
    spark: SparkSession, settings: Settings, topic: DelayTopic, request: ExportRequest, write: Write, say: Say
) -> ExportOutcome:
    """Write the pending records; raise JobError when a topic is missing, or stored state cannot be read."""
    admin = cluster.connect(settings)
    delay = scope.there(settings, topic, admin)
    partitions = scope.chosen(scope.Asked(request.partitions), delay)
    job = _Export(settings, topic, delay, partitions, admin, say)
    run = f"export-{secrets.token_hex(6)}"
    intents = job.intents(run)
    intents.write()
    spark.sparkContext.setJobGroup(run, f"export of {topic.name}", interruptOnCancel=False)
    try:
        for attempt in range(ATTEMPTS):
            try:
                standing = job.standing()
                say(f"{topic.name}: {len(partitions)} partitions, about {standing.offsets:,} records to look at")
                frame = rows_of(spark, settings, topic, standing, request)
                with ProgressReport(spark.sparkContext, run, standing.offsets, say, intents):
                    return _written(frame, write, again=attempt > 0)
            except GoneError as gone:
                if attempt + 1 == ATTEMPTS:
                    raise
                say(f"{gone}; once more, as of now")
        raise AssertionError("the last attempt has returned or raised")
    finally:
        _cancel(intents, say)


def _cancel(intents: Intents, say: Say) -> None:
    try:
        intents.cancel()
    except KafkaException as exception:
        say(f"the intents of this job stay until they expire: {exception.args[0].str()}")


def _written(frame: DataFrame, write: Write, *, again: bool) -> ExportOutcome:
    seen = Observation("pending")
    counts = [f.count(f.when(f.col("state") == name, True)).alias(name) for name in (*STATES, CONTROL)]
    counted = frame.observe(seen, *counts)
    try:
        write(counted.where(f.col("state") != CONTROL), again)
    except (PySparkException, Py4JJavaError) as error:
        text = str(error)
        if (said := said_by_task(text)) is not None:
            raise (GoneError if said.name == GoneError.__name__ else JobError)(said.message) from error
        if is_data_loss(text):
            raise GoneError("retention has removed records of the delay topic while they were read") from error
        raise
    found = seen.get
    return ExportOutcome({name: int(found[name]) for name in STATES}, int(found[CONTROL]))
