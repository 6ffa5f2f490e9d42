"""Queries that were answered, by the receipts topic, and the records that they have cancelled.

The receipt of a query has the headers of its control, so it tells the predicate. A record in front of the control that
matches and is in no topic counts as cancelled by the first such query. If it was due before the receipt, it may have
been lost before; then the number of these records must be the number in the receipt
(:mod:`spark_backfill.audit.summary`). No code is shared with the router.
"""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f

from spark_backfill.audit.protocol import AT_ONCE, Protocol, any_of, plain, source

QUERIES: Final = 16384
"""The record is the control of a query."""
LATE: Final = 4096
"""The record was due before the receipt of the query that is said to have cancelled it."""

_HEADER: Final = "deliver-cancel-where"
_SAID: Final = "action string, matched bigint, cancelled array<struct<offset:bigint>>, omitted struct<cancelled:bigint>"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AnsweredQuery(NamedTuple):
    """The control of a query: its delay topic, partition and offset, and the fields of its predicate.

    ``answered_ms`` is the timestamp of its receipt. ``cancelled`` is the number of records in front of the control that
    the receipt says it has cancelled, None if the receipt only estimates it.
    """

    topic: str
    partition: int
    offset: int
    said: dict[str, Any]
    answered_ms: int = 0
    cancelled: int | None = None


def answered_queries(receipts: DataFrame) -> list[AnsweredQuery]:
    """Return the queries that have a receipt among these records of receipts topics, in the order of their controls."""
    own = f.filter("headers", lambda each: plain(each["key"]) == _HEADER)
    said = f.from_json(f.col("value").cast("string"), _SAID)
    # The matched records behind the control are named, unless the list was too large for the topic.
    behind = f.coalesce(f.size(said["cancelled"]), f.lit(0)) + f.coalesce(said["omitted"]["cancelled"], f.lit(0))
    rows = receipts.where(said["action"] == "cancel-where").select(
        source(f.col("headers")).alias("parts"),
        f.get(own, f.lit(0))["value"].cast("string").alias("predicate"),
        f.col("timestamp_ms"),
        (said["matched"] - behind).alias("cancelled"),
    )
    return sorted(_parsed(rows.collect()), key=lambda query: query[:3])


def _parsed(rows: Iterable[Row]) -> Iterator[AnsweredQuery]:
    """Yield the queries that can be read; the verdict on the receipt tells of others."""
    for row in rows:
        try:
            topic, partition, offset = row.parts or []
            said = dict(json.loads(row.predicate or ""))
            yield AnsweredQuery(topic, int(partition), int(offset), said, row.timestamp_ms, row.cancelled)
        except (ValueError, TypeError, RecursionError):
            continue


def query_of(
    queries: Iterable[tuple[int, AnsweredQuery]],
    protocol: Protocol,
    names: Column,
    due_ms: Column,
    timestamp_ms: Column,
    control: Column,
    headers: Column,
) -> Column:
    """Return the number of the first of these queries that lies behind a record and is true of it; null without one.

    The queries are all of one delay topic. One that has cancelled nothing is left out. ``names`` are the targets of the
    record, and ``due_ms`` is the requested due time, AT_ONCE without one.
    """
    at_ms = f.when(due_ms == AT_ONCE, f.greatest(timestamp_ms, f.lit(0))).otherwise(due_ms)
    deliver_id = protocol.id_of(control)
    found = [
        f.when(
            (f.col("partition") == query.partition)
            & (f.col("offset") < query.offset)
            & _matches(query.said, names, at_ms, deliver_id, headers),
            f.lit(number),
        )
        for number, query in queries
        if query.cancelled != 0
    ]
    return f.coalesce(f.lit(None).cast("int"), *found)


def is_late(queries: Iterable[tuple[int, AnsweredQuery]], number: Column, leaves_ms: Column, grace_ms: int) -> Column:
    """Return true if a record was to leave before the receipt of the query of this number, less the grace period."""
    return any_of((number == each) & (leaves_ms < query.answered_ms - grace_ms) for each, query in queries)


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
