"""Queries that were answered, by the receipts topic, and the records that they have cancelled.

The receipt of a query has the headers of its control, so it tells the predicate. Every record in front of the control
that matches and is in no topic was cancelled. No code is shared with the router.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import AT_ONCE, Protocol, any_of, plain, source

QUERIED: Final = 4096
"""A query has cancelled the record, unless it had left before."""

_HEADER: Final = "deliver-cancel-where"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AnsweredQuery(NamedTuple):
    """The control of a query: its delay topic, partition and offset, and the fields of its predicate."""

    topic: str
    partition: int
    offset: int
    said: dict[str, Any]


def answered_queries(receipts: DataFrame) -> list[AnsweredQuery]:
    """Return the queries that have a receipt among these records of receipts topics."""
    own = f.filter("headers", lambda each: plain(each["key"]) == _HEADER)
    action = f.from_json(f.col("value").cast("string"), "action string")["action"]
    rows = receipts.where(action == "cancel-where").select(
        source(f.col("headers")).alias("parts"), f.get(own, f.lit(0))["value"].cast("string").alias("where")
    )
    return list(_parsed((row.parts, row.where) for row in rows.collect()))


def _parsed(rows: Iterable[tuple[list[str] | None, str | None]]) -> Iterator[AnsweredQuery]:
    """Yield the queries that can be read; the verdict on the receipt tells of others."""
    for parts, where in rows:
        try:
            topic, partition, offset = parts or []
            said = json.loads(where or "")
            yield AnsweredQuery(topic, int(partition), int(offset), dict(said))
        except (ValueError, TypeError, RecursionError):
            continue


def is_queried(
    queries: Iterable[AnsweredQuery],
    protocol: Protocol,
    names: Column,
    due_ms: Column,
    timestamp_ms: Column,
    control: Column,
    headers: Column,
) -> Column:
    """Return true if one of these queries, all of one delay topic, lies behind a record and is true of it.

    ``names`` are the targets of the record, and ``due_ms`` the requested due time, AT_ONCE without one.
    """
    at_ms = f.when(due_ms == AT_ONCE, f.greatest(timestamp_ms, f.lit(0))).otherwise(due_ms)
    deliver_id = protocol.id_of(control)
    return any_of(
        (f.col("partition") == query.partition)
        & (f.col("offset") < query.offset)
        & _matches(query.said, names, at_ms, deliver_id, headers)
        for query in queries
    )


def _matches(said: dict[str, Any], names: Column, at_ms: Column, deliver_id: Column, headers: Column) -> Column:
    found = f.lit(True)
    if "target" in said:
        found = found & f.array_contains(names, str(said["target"]))
    if "due_from" in said:
        found = found & (at_ms >= _instant_ms(said["due_from"]))
    if "due_to" in said:
        found = found & (at_ms < _instant_ms(said["due_to"]))
    if "id_prefix" in said:
        prefix = str(said["id_prefix"]).encode()
        found = found & f.coalesce(f.substring(deliver_id, 1, len(prefix)) == f.lit(prefix), f.lit(False))
    if "header" in said:
        name, value = str(said["header"]["name"]), str(said["header"]["value"]).encode()
        is_there = f.exists(
            headers, lambda each: (each["key"] == name) & f.coalesce(each["value"] == f.lit(value), f.lit(False))
        )
        found = found & is_there
    return found


def _instant_ms(value: object) -> int:
    text = str(value)
    if text.isdigit():
        return int(text)
    return max(0, -((_EPOCH - datetime.fromisoformat(text.upper())) // timedelta(milliseconds=1)))
