"""The table as it is written: its columns in the types that a format takes."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from index.errors import ConfigError
from spark_backfill.errors import JobError
from spark_backfill.export.rows import OptionalColumns
from spark_backfill.formats import OF_FILES, FormatOptions

COLUMNS: Final = ("topic", "partition", "offset", "due", "state", "targets", "id", "series", "key")

_FLAT: Final = frozenset({"csv", "jdbc"})
"""Formats without lists: targets are joined by commas, which no topic's name has, and headers are JSON."""

_CSV: Final = {"header": "true"}


def shaped(rows: DataFrame, topic: str, kind: str, wanted: OptionalColumns) -> DataFrame:
    """Select the columns of the table from rows of :mod:`spark_backfill.export.rows`."""
    names = [*COLUMNS, *(["value"] if wanted.value else []), *(["headers"] if wanted.headers else [])]
    frame = rows.withColumn("topic", f.lit(topic))
    if kind not in _FLAT:
        return frame.select(*names)
    return frame.select(*(_flat(name, is_text=kind == "csv").alias(name) for name in names))


def _flat(name: str, *, is_text: bool) -> Column:
    column = f.col(name)
    if name == "targets":
        return f.array_join(column, ",")
    if name == "headers":
        # Bytes are base64, as Spark writes them into JSON. A header whose value is null keeps the field, so it is not
        # lost.
        return f.to_json(column, {"ignoreNullFields": "false"})
    return f.base64(column) if is_text and name in ("key", "value") else column


def check(output: str | None, kind: str, options: FormatOptions) -> None:
    """Raise ConfigError where the place to write to is missing."""
    if kind == "jdbc" and "url" not in options.values:
        raise ConfigError("--format jdbc: say which database: --option url=jdbc:..., or --option-file url=FILE")
    if output is None and (kind in OF_FILES or kind == "table" or (kind == "jdbc" and "dbtable" not in options.values)):
        raise ConfigError(f"--format {kind}: OUTPUT is missing, {'a path' if kind in OF_FILES else 'a name'}")


def save(table: DataFrame, output: str | None, kind: str, options: FormatOptions, mode: str) -> None:
    """Write the table to ``output``, a path or a name; for a database an option may name the table."""
    given = {**(_CSV if kind == "csv" else {}), **options.values}
    if kind == "table":
        table.write.options(**given).mode(mode).saveAsTable(str(output))
    elif kind == "jdbc":
        table.write.format(kind).options(**given | ({} if output is None else {"dbtable": output})).mode(mode).save()
    else:
        table.write.format(kind).options(**given).mode(mode).save(output)


def mode_again(kind: str, mode: str) -> str:
    """Return the mode of an attempt after a failed one; raise JobError where that may have left rows behind.

    Files of a failed attempt are never seen, but their folder exists then.
    """
    if kind == "jdbc":
        raise JobError("rows of an attempt that failed may be in the database; empty the table, and run the job again")
    return "overwrite" if mode == "error" else mode
