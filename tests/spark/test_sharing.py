"""Tests that each slot gets its own task: the project's copy of Spark's hash against Spark's own."""

from pyspark.sql import SparkSession

from spark_backfill.buckets.sharing import partition_of, slot_keys


def test_the_hash_is_sparks(spark: SparkSession) -> None:
    for partitions in (1, 7, 64, 2_000):
        rows = (
            spark.range(500).selectExpr("cast(id * 40503 as int) n").selectExpr("n", f"pmod(hash(n), {partitions}) p")
        )
        assert [(row.n, row.p) for row in rows.collect()] == [
            (number * 40503, partition_of(number * 40503, partitions)) for number in range(500)
        ]


def test_every_slot_has_a_partition_to_itself(spark: SparkSession) -> None:
    for slots in (1, 2, 20, 300):
        keys = slot_keys(slots)
        rows = spark.createDataFrame([(key,) for key in keys], "n int").repartition(slots, "n")
        placed = rows.selectExpr("n", "spark_partition_id() p").collect()
        assert sorted((row.p, row.n) for row in placed) == list(enumerate(keys))
