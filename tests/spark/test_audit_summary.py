"""Tests of counts and percentiles by Spark against plain arithmetic."""

from math import ceil
from random import Random
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from spark_backfill.audit.summary import cells, counted, findings
from spark_backfill.audit.table import ASIDE, COUNTS, LATENESS, OUTCOMES, tally
from spark_backfill.audit.verdicts import step_of

KEYS = ("topic", "partition")
SCHEMA = (
    "slot int, topic string, part int, offset bigint, outcome string, due_ms bigint, sent_ms bigint, copies int,"
    " rejections int, receipts int, first_ms bigint, last_ms bigint, late_ms bigint, query int,"
    " is_late boolean, queries boolean, "
) + ", ".join(f"{name} boolean" for name in ASIDE)


def test_counts_and_percentiles_of_each_group_and_of_all(spark: SparkSession, rng: Random) -> None:
    rows: list[Any] = []
    for offset in range(3_000):
        partition = rng.choice([0, 0, 0, 1])
        outcome = rng.choice([*OUTCOMES, "released", "foreign"])
        late_ms = int(10 ** rng.uniform(0, 8)) if outcome == "released" else None
        flags = [rng.random() < 0.1 for _ in ASIDE]
        rows.append(
            (partition, "d", partition, offset, outcome, 1, 1, 2, 1, 1, 1, 1, late_ms, None, False, False, *flags)
        )
    made = spark.createDataFrame(rows, SCHEMA)
    alike = cells(made.withColumns({"late_step": step_of(f.col("late_ms")), "hour_ms": f.col("due_ms")}))
    verdicts = alike.withColumns({"topic": f.lit("d"), "partition": f.col("slot")})
    groups = [[row for row in rows if row[2] == partition] for partition in (0, 1)]
    found = [tally(row.asDict(), KEYS) for row in counted(verdicts, KEYS).orderBy(*KEYS).collect()]
    total = [tally(row.asDict(), ()) for row in counted(verdicts, ()).collect()]
    assert [dict(each.keys) for each in found] == [{"topic": "d", "partition": 0}, {"topic": "d", "partition": 1}]
    for each, group in zip([*found, *total], [*groups, rows], strict=True):
        expected = {name: sum(row[4] == name for row in group) for name in OUTCOMES}
        expected |= {name: sum(row[-len(ASIDE) + place] for row in group) for place, name in enumerate(ASIDE)}
        expected["foreign"] = 4 * sum(row[4] == "foreign" for row in group)
        expected["sent"] = sum(row[4] != "foreign" for row in group)
        assert each.counts == {name: expected[name] for name in COUNTS}
        late = sorted(row[12] for row in group if row[12] is not None)
        assert each.lateness["late_max_ms"] == late[-1]
        for name, part in zip(LATENESS, (0.5, 0.99), strict=False):
            exact, told = late[ceil(len(late) * part) - 1], each.lateness[name]
            assert told is not None
            assert exact <= told <= exact * 1.002, name
    wrong = {row[3] for row in rows if row[4] in {"lost", "doubled", "foreign"} or any(row[-len(ASIDE) :][:3])}
    assert {row["offset"] for row in findings(verdicts).collect()} == wrong


def test_short_lateness_is_exact(spark: SparkSession) -> None:
    found = spark.range(1_200).select(f.col("id"), step_of(f.col("id")).alias("step")).collect()
    assert all(row["step"] == row["id"] for row in found[:1_024])
    assert all(row["id"] <= row["step"] <= row["id"] + 1 for row in found)


def test_nothing_is_no_row(spark: SparkSession) -> None:
    alike = cells(spark.createDataFrame([], f"{SCHEMA}, late_step bigint, hour_ms bigint"))
    verdicts = alike.withColumns({"topic": f.lit("d"), "partition": f.col("slot")})
    assert counted(verdicts, ()).collect() == counted(verdicts, KEYS).collect() == []
