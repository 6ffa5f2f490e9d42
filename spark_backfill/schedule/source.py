"""A table of schedules as a DataFrame with one schema, whatever file it comes from."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from index.errors import ConfigError
from spark_backfill.schedule.columns import DAMAGE, ID
from spark_backfill.schedule.row import Row

if TYPE_CHECKING:
    import pyarrow as pa

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_CSV: Final = {
    "header": "true",
    "enforceSchema": "false",
    "escape": '"',
    "multiLine": "true",
    # Told apart by nothing else: an empty field is null, a quoted one is an empty string.
    "nullValue": "\0",
}


def table(spark: SparkSession, source: str, kind: str, options: Mapping[str, str]) -> DataFrame:
    """The table as it is: a path of Parquet, CSV or JSON lines, or the name of a table; ``options`` are Spark's.

    Columns of CSV and JSON are strings, and a line that does not fit them is kept in DAMAGE.
    """
    if kind == "table":
        return spark.table(source)
    _require_there(spark, source)
    if kind == "parquet":
        return spark.read.options(**options).parquet(source)
    given = {**(_CSV if kind == "csv" else {}), **options}
    named = spark.read.options(**given | {"primitivesAsString": "true"}).format(kind).load(source)
    names = [name for name in named.columns if name != "_corrupt_record"]
    fields = [StructField(name, StringType()) for name in [*names, DAMAGE]]
    given |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": DAMAGE}
    return spark.read.options(**given).schema(StructType(fields)).format(kind).load(source)


def _require_there(spark: SparkSession, source: str) -> None:
    """ConfigError when there is nothing; Spark finds that out, too, and logs a stack trace first."""
    # PySpark has no other way to ask whether there is a file, wherever it lies.
    jvm, session = spark._jvm, spark._jsparkSession  # noqa: SLF001
    assert jvm is not None, "a session has a JVM until it is stopped"
    path = jvm.org.apache.hadoop.fs.Path(source)
    files = path.getFileSystem(session.sessionState().newHadoopConf())
    if not files.globStatus(path):
        raise ConfigError(f"{source}: there is no such file or directory ({files.makeQualified(path).toString()})")


def types(frame: DataFrame) -> dict[str, str]:
    """Columns of a table and their types, as :func:`spark_backfill.schedule.columns.checked` takes them."""
    return {name: kind for name, kind in frame.dtypes if name != DAMAGE}


def rows(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """The columns of a Row; ``columns`` are those that were checked."""
    kinds = dict(frame.dtypes)
    found = {name: f.col(f"`{column}`") for name, column in columns.items()}
    headers = found.get("headers")
    as_json = headers is not None and kinds[columns["headers"]] == "string"
    null = f.lit(None)
    return frame.select(
        _due(found["due"], kinds[columns["due"]]).alias("due"),
        found.get("target", null).cast("string").alias("target"),
        found.get("key", null).cast("binary").alias("key"),
        found["value"].cast("binary").alias("value"),
        (null if headers is None or as_json else _pairs(headers, kinds[columns["headers"]]))
        .cast(_HEADERS)
        .alias("pairs"),
        (headers if headers is not None and as_json else null).cast("string").alias("json"),
        found.get(ID, null).cast("string").alias("row_id"),
        (f.col(DAMAGE) if DAMAGE in frame.columns else null).cast("string").alias("damage"),
    )


def read_rows(batch: "pa.RecordBatch") -> Iterator[Row]:
    """The rows of an Arrow batch with the columns above."""
    due, target, key, value, pairs, text, row_id, damage = (column.to_pylist() for column in batch.columns)
    for at in range(batch.num_rows):
        headers = text[at] if pairs[at] is None else [(each["key"], each["value"]) for each in pairs[at]]
        yield Row(due[at], target[at], key[at], value[at], headers, row_id[at], damage[at])


def _due(column: Column, kind: str) -> Column:
    if kind == "timestamp":
        micros = f.unix_micros(column)
        # Rounded up: a time between two milliseconds must not be early.
        rounded = micros + f.pmod(-micros, f.lit(1000).cast("bigint"))
        return f.call_function("div", rounded, f.lit(1000).cast("bigint")).cast("string")
    return column.cast("string")


def _pairs(column: Column, kind: str) -> Column:
    if not kind.startswith("map"):
        return column
    # A map has no order; one of our own makes a row the same whenever it is read.
    return f.array_sort(f.map_entries(column))
