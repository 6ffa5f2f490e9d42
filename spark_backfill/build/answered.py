"""The effects of controls, by their receipts, so that no cancelled schedule becomes pending again.

A receipt and its effects were committed together, so the receipts of a partition say how far its controls were acted
on. A schedule that a receipt names does not leave. A control with a receipt is only the schedule that replaces the
cancelled ones, if it is a schedule at all. The first control without a receipt has not been read yet, nor have the
records behind it: the router goes on there. In the receipts topic, where only the router may write, ``delay-source``
names the control.

Receipts may be missing: retention has removed them, or the topic is not there, or not visible. Then the caller has to
name an instant before which every control was acted on: controls up to it count as answered, and the schedules that
they cancelled by an id are pending again. Schedules that were cancelled by a predicate are found by that
(:mod:`spark_backfill.build.queried`).

A receipts topic that was created again looks whole. Records behind the first control without a receipt betray it, if a
router has acted on them: they would leave again, so the job ends.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from index.rules.rules import Rules
from spark_backfill.buckets.controls import controls_of
from spark_backfill.build.released import about
from spark_backfill.cluster import LogRange
from spark_backfill.errors import JobError
from spark_backfill.settings import DelayTopic
from spark_backfill.source import OffsetRange, read_ranges

_SAID: Final = "action string, due bigint, cancelled array<struct<offset:bigint>>, omitted struct<cancelled:bigint>"
_PLACE: Final = ["partition", "offset"]


class Answers(NamedTuple):
    """Rows of ``partition`` and ``offset`` from receipts.

    * ``controls``: controls with a receipt, and ``schedules``, whether each is a schedule itself.
    * ``named``: schedules that receipts name.
    """

    controls: DataFrame
    named: DataFrame


def answers(
    spark: SparkSession,
    connector: Mapping[str, str],
    topic: str,
    receipts: str,
    logs: Mapping[int, LogRange],
    split_records: int,
) -> Answers | None:
    """Read the receipts of a delay topic; None when there are none. Raise JobError for a list that was left out."""
    ranges = [OffsetRange(partition, *log) for partition, log in logs.items() if log.start < log.end]
    if not ranges:
        return None
    records = read_ranges(spark, connector, receipts, ranges, split_records)
    told = about(records, topic).select(
        f.col("source_partition").alias("partition"),
        f.col("source_offset").alias("offset"),
        f.from_json(f.col("value").cast("string"), _SAID).alias("said"),
    )
    for row in told.where("said.omitted.cancelled > 0").take(1):
        raise JobError(
            f"{receipts}: the receipt of {topic}/{row.partition}/{row.offset} was too large to name the"
            f" {row.said.omitted.cancelled} schedules that it tells of; they would be pending again"
        )
    is_schedule = (f.col("said.action") == "replace") & f.col("said.due").isNotNull()
    return Answers(
        told.select("partition", "offset", is_schedule.alias("schedules")),
        told.select("partition", f.explode("said.cancelled.offset").alias("offset")),
    )


def missing(name: str, partitions: Collection[int], logs: Mapping[int, LogRange]) -> list[str]:
    """Describe the partitions that a topic lacks, or the topic if none is visible; ``logs`` are the visible ones."""
    if not logs:
        return [f"{name} does not exist, or the job may not see it (its rights: check --acls --job rebuild)"]
    return [f"{name} has no partition {number}" for number in partitions if number not in logs]


def first_unanswered(
    left: DataFrame, rules: Rules, said: Answers | None, known_ms: int, gone: Sequence[str]
) -> dict[int, int]:
    """Return the offset of the first control that was not acted on, for each partition that has one.

    ``left`` are the records that have not left. Controls written by ``known_ms`` have been acted on. JobError asks for
    that time when it is missing and receipts are ``gone``, which describes them in words.
    """
    controls = controls_of(left, rules).where(f.col("timestamp_ms") > known_ms)
    if said is not None:
        controls = controls.join(said.controls.select(_PLACE), _PLACE, "left_anti")
    found = {
        row.partition: row.first for row in controls.groupBy("partition").agg(f.min("offset").alias("first")).collect()
    }
    if found and gone and known_ms < 0:
        partition, offset = min(found.items())
        raise JobError(
            f"not every receipt can be seen any more: {', '.join(gone[:5])}. Whether the control at {rules.topic}/"
            f"{partition}/{offset} was acted on cannot be told; say until when all that were written have been, and all"
            " that was due has left: --released-before INSTANT"
        )
    return found


def require_unread(
    records: DataFrame, left: DataFrame, topic: DelayTopic, said: Answers | None, unanswered: Mapping[int, int]
) -> None:
    """Raise JobError if a router has acted on a record behind the first ``unanswered`` control of its partition.

    ``records`` are those of the delay topic, and ``left`` those that have not left. A record was acted on if it has
    left, if it is a control with a receipt, or if a schedule behind it names it as the control that moved it.
    """
    if not unanswered:
        return
    is_behind = reduce(
        Column.__or__,
        [(f.col("partition") == partition) & (f.col("offset") >= at) for partition, at in unanswered.items()],
    )
    behind = records.where(is_behind)
    movers = about(behind, topic.name).where(
        (f.col("source_partition") == f.col("partition")) & (f.col("source_offset") < f.col("offset"))
    )
    acted_on = behind.join(left.select(_PLACE), _PLACE, "left_anti").select(_PLACE)
    acted_on = acted_on.unionAll(movers.select("partition", f.col("source_offset").alias("offset")).where(is_behind))
    if said is not None:
        acted_on = acted_on.unionAll(said.controls.select(_PLACE).where(is_behind))
    for row in acted_on.take(1):
        at = unanswered[row.partition]
        raise JobError(
            f"a router has acted on {topic.name}/{row.partition}/{row.offset}, so it has read the control at"
            f" {topic.name}/{row.partition}/{at}, of which {topic.receipts} has no receipt: receipts are lost, as after"
            " the topic was created again. The records behind that control would leave again; say until when all"
            " controls that were written have been acted on, and all that was due has left:"
            " --released-before INSTANT, and not before that control"
        )


def without_answered(left: DataFrame, rules: Rules, said: Answers | None, known_ms: int) -> DataFrame:
    """Remove the records that receipts name, and answered controls that are no schedules.

    A replacement without a receipt counts as a schedule: better that it comes beside the schedule it was to replace
    than not at all.
    """
    known = controls_of(left, rules).where(f.col("timestamp_ms") <= known_ms)
    gone = known.where(~f.col("replaces")).select(_PLACE)
    if said is not None:
        mute = said.controls.where(~f.col("schedules")).select(_PLACE)
        gone = gone.unionAll(mute).unionAll(said.named)
    return left.join(gone, _PLACE, "left_anti")


def named_behind(said: Answers | None, unanswered: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return the places that receipts name and no router has read: they were cancelled in transit."""
    if said is None or not unanswered:
        return []
    behind = [(f.col("partition") == partition) & (f.col("offset") >= at) for partition, at in unanswered.items()]
    return [tuple(row) for row in said.named.where(reduce(Column.__or__, behind)).collect()]
