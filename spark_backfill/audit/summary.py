"""Verdicts counted by topic, partition or hour, with percentiles of lateness; and the findings one by one.

The records that queries are said to have cancelled are counted first, and compared with the receipts of the queries.
A record that was due before the receipt is cancelled if the number of records is the number in the receipt. If it is
another number, or the receipt tells none, such a record may have been lost before, and no verdict is possible. If more
records are nowhere than the receipt says, or fewer, the control of the query is altered.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_backfill.audit.facts import NO_SLOT, Scene
from spark_backfill.audit.queries import AnsweredQuery
from spark_backfill.audit.table import ASIDE, FOREIGN, OUTCOMES, PERCENTILES, VIOLATIONS


def cells(verdicts: DataFrame) -> DataFrame:
    """Join equal verdicts to one row with their number ``n``; each finding is a row of its own.

    The result is small where findings are few, at any number of records, so that it can be kept and counted repeatedly.
    """
    aside = [f.col(name) for name in VIOLATIONS if name in ASIDE]
    wrong = reduce(or_, [f.col("outcome").isin(list(VIOLATIONS)), *aside])
    alike = ["slot", "hour_ms", "outcome", "query", "is_late", *ASIDE, "late_step"]
    known = ["late_ms", "due_ms", "sent_ms", "copies", "rejections", "receipts", "first_ms", "last_ms"]
    # A query may turn out to be a finding.
    single = f.when(wrong | f.col("queries"), f.col("offset")).alias("offset")
    return verdicts.groupBy(*alike, single).agg(
        f.count("*").alias("n"), *(f.max(name).alias(name) for name in known), f.max(wrong).alias("wrong")
    )


def with_place(cells: DataFrame, scene: Scene) -> DataFrame:
    """Add topic and partition of the delay topic; null where a copy names none."""
    places = scene.places()
    names = f.array(*(f.lit(name) for name, _ in places))
    numbers = f.array(*(f.lit(partition) for _, partition in places))
    known = f.col("slot") != NO_SLOT
    return cells.withColumns(
        {
            "topic": f.when(known, f.get(names, f.col("slot"))),
            "partition": f.when(known, f.get(numbers, f.col("slot"))),
        }
    )


def settle(cells: DataFrame, queries: Sequence[AnsweredQuery], scene: Scene) -> DataFrame:
    """Return the cells with the verdicts on the records of queries; ``cells`` are read twice, so they must be kept."""
    numbered = cells.where(f.col("query").isNotNull()).groupBy("query", "outcome").agg(f.sum("n").alias("n"))
    counts: dict[int, dict[str, int]] = {}
    for row in numbered.collect() if queries else ():
        counts.setdefault(row["query"], {})[row["outcome"]] = row["n"]
    proven = [number for number, each in counts.items() if sum(each.values()) == queries[number].cancelled]
    wrong = [query for number, query in enumerate(queries) if _differs(query, counts.get(number, {}), scene)]
    is_proven, is_late = f.col("query").isin(proven), f.col("is_late")
    outcome = f.when(is_proven, "cancelled").when(is_late & (f.col("outcome") == "cancelled"), "unprovable")
    settled = cells.withColumn("outcome", f.coalesce(outcome, f.col("outcome")))
    if not wrong:
        return settled
    topic, partition, offset = f.col("topic"), f.col("partition"), f.col("offset")
    places = [(topic == each.topic) & (partition == each.partition) & (offset == each.offset) for each in wrong]
    told = f.coalesce(reduce(or_, places), f.lit(False))
    return settled.withColumns({name: f.col(name) | told for name in ("altered", "wrong")})


def counted(cells: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Count by the values of the keys, in one row for each, or in all: counts, then maximum, p50 and p99 of lateness.

    A percentile is the least step that so many records kept within, not an interpolation. No rows give no row.
    """
    if not keys:
        # Not a constant: Spark would notice it, and warn of a window over everything, which is small here.
        return counted(cells.withColumn("all", f.col("slot") * 0), ["all"]).drop("all")
    counts = cells.groupBy(*keys).agg(
        _number(~_is(FOREIGN)).alias("sent"),
        *(_number(_is(name)).alias(name) for name in OUTCOMES),
        *(_number(f.col(name)).alias(name) for name in ASIDE),
        # Copies are counted, because nothing else is known of them.
        f.sum(f.when(_is(FOREIGN), f.col("copies") + f.col("rejections") + f.col("receipts"))).alias(FOREIGN),
        f.max("late_ms").alias("late_max_ms"),
    )
    steps = cells.where(f.col("late_step").isNotNull()).groupBy(*keys, "late_step").agg(f.sum("n").alias("n"))
    group = Window.partitionBy(*keys)
    ranked = steps.select(
        *keys,
        "late_step",
        f.sum("n").over(group.orderBy("late_step")).alias("within"),
        f.sum("n").over(group).alias("timed"),
    )
    # Both sides come from the same rows, so the keys of one get names of their own.
    percentiles = ranked.groupBy(*(f.col(key).alias(f"same_{key}") for key in keys)).agg(
        *(
            f.min(f.when(f.col("within") >= f.col("timed") * part, f.col("late_step"))).alias(name)
            for name, part in PERCENTILES.items()
        )
    )
    same: Column = reduce(and_, [f.col(key).eqNullSafe(f.col(f"same_{key}")) for key in keys])
    return counts.join(percentiles, same, "left").drop(*(f"same_{key}" for key in keys))


def findings(cells: DataFrame) -> DataFrame:
    """Select the records that violate a promise of the router, with all that is known of each."""
    place = f.concat_ws("/", "topic", "partition", "offset")
    return cells.where("wrong").select(
        f.when(f.col("topic").isNotNull(), place).otherwise("(no such place)").alias("source"),
        "topic",
        "partition",
        "offset",
        "outcome",
        *ASIDE,
        "due_ms",
        "sent_ms",
        "copies",
        "rejections",
        "receipts",
        f.col("first_ms").alias("first_append_ms"),
        f.col("last_ms").alias("last_append_ms"),
    )


def _number(condition: Column) -> Column:
    return f.sum(f.when(condition, f.col("n")).otherwise(0))


def _is(outcome: str) -> Column:
    return f.col("outcome") == outcome


def _differs(query: AnsweredQuery, found: Mapping[str, int], scene: Scene) -> bool:
    """Say whether another number of records is nowhere than the receipt says.

    A record whose copy may have been removed, or is in a topic that was not read, need not be nowhere. Records in front
    of the ones that are judged may match too.
    """
    if query.cancelled is None:
        return False
    judged = next((each for each in scene.judged if each.topic.name == query.topic), None)
    is_whole = judged is not None and judged.starts.get(query.partition) == 0
    is_whole = is_whole and judged is not None and query.offset < judged.ends[query.partition]
    return found.get("cancelled", 0) > query.cancelled or (is_whole and sum(found.values()) < query.cancelled)
