"""A table of schedules from any source as a DataFrame with one schema."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from index.errors import ConfigError
from spark_backfill.formats import OF_FILES, FormatOptions, in_a_sentence, require_there
from spark_backfill.schedule.columns import DAMAGE, ID
from spark_backfill.schedule.row import InputRow

if TYPE_CHECKING:
    import pyarrow as pa

_HEADERS: Final = "array<struct<key:string,value:binary>>"
_OF_STRINGS: Final[Mapping[str, Mapping[str, str]]] = {
    "csv": {
        "header": "true",
        "enforceSchema": "false",
        "escape": '"',
        "multiLine": "true",
        # An empty field is null and a quoted one is an empty string; no other setting tells them apart.
        "nullValue": "\0",
    },
    "json": {},
    "xml": {"inferSchema": "false"},
}
"""Formats whose files have no types, with their first options."""


def table(spark: SparkSession, source: str | None, kind: str, options: FormatOptions) -> DataFrame:
    """Load the unchanged table with Spark's reader of that format from ``source``, a path or a name.

    ``kind`` is the name of any format, or ``table`` for one in Spark's catalog. For JDBC the source is the name of a
    table, unless an option names it or has a query. Columns of CSV, JSON and XML are strings, and a line of CSV or JSON
    that does not fit them is kept in DAMAGE. Raises ConfigError for a missing source.
    """
    options.redact(spark)
    with in_a_sentence(source or "the source", kind, options):
        return _loaded(spark, source, kind, options)


def _loaded(spark: SparkSession, source: str | None, kind: str, options: FormatOptions) -> DataFrame:
    given = dict(options.values)
    if kind == "jdbc":
        return spark.read.format(kind).options(**_of_database(source, given)).load()
    if source is None:
        if kind == "table" or kind in OF_FILES:
            what = "the name of a table" if kind == "table" else "a path"
            raise ConfigError(f"--format {kind}: SOURCE is missing, {what}")
        return spark.read.format(kind).options(**given).load()
    if kind == "table":
        return spark.table(source)
    if kind in OF_FILES:
        require_there(spark, source)
    if kind not in _OF_STRINGS:
        return spark.read.format(kind).options(**given).load(source)
    given = {**_OF_STRINGS[kind], **given}
    if kind == "xml":
        return spark.read.options(**given).format(kind).load(source)
    named = spark.read.options(**given | {"primitivesAsString": "true"}).format(kind).load(source)
    names = [name for name in named.columns if name != "_corrupt_record"]
    fields = [StructField(name, StringType()) for name in [*names, DAMAGE]]
    given |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": DAMAGE}
    return spark.read.options(**given).schema(StructType(fields)).format(kind).load(source)


def _of_database(source: str | None, options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of JDBC, whose source is an option like any other."""
    if "url" not in options:
        raise ConfigError("--format jdbc: say which database: --option url=jdbc:..., or --option-file url=FILE")
    told = sorted({"dbtable", "query"} & options.keys())
    if source is not None and told:
        raise ConfigError(f"--format jdbc: SOURCE and --option {told[0]} both name the source; give one")
    if source is None and not told:
        raise ConfigError("--format jdbc: SOURCE is missing, the name of a table; or --option query=SELECT...")
    return {**options, **({} if source is None else {"dbtable": source})}


def types(frame: DataFrame) -> dict[str, str]:
    """Return the columns of a table and their types, for :func:`spark_backfill.schedule.columns.checked`."""
    return {name: kind for name, kind in frame.dtypes if name != DAMAGE}


def rows(frame: DataFrame, columns: Mapping[str, str]) -> DataFrame:
    """Return the columns of a Row; ``columns`` are the checked ones."""
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


def read_rows(batch: "pa.RecordBatch") -> Iterator[InputRow]:
    """Yield the rows of an Arrow batch with the columns above."""
    due, target, key, value, pairs, text, row_id, damage = (column.to_pylist() for column in batch.columns)
    for at in range(batch.num_rows):
        headers = text[at] if pairs[at] is None else [(each["key"], each["value"]) for each in pairs[at]]
        yield InputRow(due[at], target[at], key[at], value[at], headers, row_id[at], damage[at])


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
    # A map has no order; sorting makes a row the same at every read.
    return f.array_sort(f.map_entries(column))
