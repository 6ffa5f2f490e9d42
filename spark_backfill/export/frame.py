"""The pending records as one DataFrame: held records, records in segments or named by them, and the log from S on."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from snapshots.state.pending import StoredPending
from spark_backfill import kernel
from spark_backfill.buckets.job import portable
from spark_backfill.export.moment import Moment
from spark_backfill.export.rows import (
    ABSENT_SCHEMA,
    NOTHING_MORE,
    READ_COLUMNS,
    ROW_SCHEMA,
    OptionalColumns,
    PendingRows,
    as_arrow,
    held_rows,
)
from spark_backfill.export.segments import SEGMENT_SCHEMA, Absent, Decoding, Reading, Segment, chosen
from spark_backfill.settings import DelayTopic, Settings
from spark_backfill.source import OffsetRange, connector_options, read_ranges


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """The content of the export, and the division of the work; ``kafka_options`` are KEY=VALUE for the connector."""

    partitions: tuple[int, ...] = ()
    wanted: OptionalColumns = NOTHING_MORE
    task_records: int = 250_000
    kafka_options: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ExportState:
    """The stored state of all partitions as of one moment."""

    moments: Mapping[int, Moment]
    pending: Mapping[int, StoredPending]

    @property
    def offsets(self) -> int:
        """Estimate of the number of records to read."""
        stored = sum(ref.entries for each in self.pending.values() for _, ref in each.segments())
        return stored + sum(each.span for each in self.tails)

    @property
    def tails(self) -> list[OffsetRange]:
        """The log from S on."""
        return [self._log(partition, each.state.progress.sealed_to) for partition, each in self.pending.items()]

    @property
    def pointed(self) -> list[OffsetRange]:
        """The parts of the log that segments point to."""
        found = []
        for partition, each in self.pending.items():
            needed = [bucket.needs_from for bucket, _ in each.segments() if bucket.needs_from is not None]
            if needed:
                log = self._log(partition, min(needed))
                found.append(log._replace(to_offset=max(log.from_offset, each.state.progress.sealed_to)))
        return found

    def _log(self, partition: int, from_offset: int) -> OffsetRange:
        log = self.moments[partition].log
        return OffsetRange(partition, min(max(from_offset, log.start), log.end), log.end)


def rows_of(
    spark: SparkSession, settings: Settings, topic: DelayTopic, standing: ExportState, request: ExportRequest
) -> DataFrame:
    """Return rows of ROW_SCHEMA for all records that may be pending, including controls that were not acted on."""
    sent = {partition: each.without_lists() for partition, each in standing.pending.items()}
    deciding = PendingRows(sent, request.wanted)
    told = kernel.asked(os.environ)
    reading = Reading(portable(settings.kafka), settings.group_id, topic.snapshots, sent, told)
    connector = connector_options(settings.kafka, request.kafka_options)
    inline, pointing = chosen(standing.pending)
    held = [row for partition, each in standing.pending.items() for row in held_rows(each, partition, request.wanted)]
    frames = [spark.createDataFrame(pa.Table.from_batches([as_arrow(held)]), ROW_SCHEMA)]
    if inline:
        segments = _segments(spark, inline, topic, request)
        frames.append(segments.mapInArrow(Decoding(reading, deciding), ROW_SCHEMA))
    if pointing:
        absent = _segments(spark, pointing, topic, request).mapInArrow(Absent(reading), ABSENT_SCHEMA)
        log = _log(spark, connector, topic, standing.pointed, request)
        joined = absent.join(log, ["partition", "offset"], "left").select(*READ_COLUMNS)
        frames.append(joined.mapInArrow(deciding, ROW_SCHEMA))
    if any(each.span for each in standing.tails):
        log = _log(spark, connector, topic, standing.tails, request)
        tail = log.withColumn("due_ms", f.lit(None).cast("bigint")).select(*READ_COLUMNS)
        frames.append(tail.mapInArrow(deciding, ROW_SCHEMA))
    frame = frames[0]
    for each in frames[1:]:
        frame = frame.unionAll(each)
    return frame


def tasks_for(segments: int, segment_records: int, task_records: int) -> int:
    """Return the number of tasks for so many segments: each gets about as many records as a task reads of the log.

    >>> tasks_for(1_000, segment_records=2_000, task_records=250_000), tasks_for(3, 100, 250_000), tasks_for(2, 9, 3)
    (8, 1, 2)
    """
    return max(1, min(segments, segments * segment_records // task_records))


def _segments(spark: SparkSession, segments: Sequence[Segment], topic: DelayTopic, request: ExportRequest) -> DataFrame:
    """Return rows of SEGMENT_SCHEMA in tasks of neighbours."""
    tasks = tasks_for(len(segments), topic.seal_rules.segment_entries, request.task_records)
    return spark.createDataFrame(
        spark.sparkContext.parallelize([each.row() for each in segments], tasks), SEGMENT_SCHEMA
    )


def _log(
    spark: SparkSession,
    connector: Mapping[str, str],
    topic: DelayTopic,
    ranges: Sequence[OffsetRange],
    request: ExportRequest,
) -> DataFrame:
    """Read records of the delay topic, as in READ_SCHEMA; values only if they are wanted."""
    value = f.col("value") if request.wanted.value else f.lit(None).cast("binary")
    return read_ranges(spark, connector, topic.name, ranges, request.task_records).select(
        "partition",
        "offset",
        f.unix_millis("timestamp").alias("timestamp_ms"),
        "key",
        value.alias("value"),
        "headers",
    )
