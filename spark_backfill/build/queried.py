"""The schedules that queries have cancelled, found in the log, for a partition whose state is made again.

A query has no list of its schedules. Its control lies in the log, and it was acted on as a whole: of the records in
front of it that have not left, each one that matches was cancelled (:mod:`index.named.queries`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from index.named.queries import Query, cancelling
from index.protocol.headers import Headers
from index.protocol.record import Record
from index.protocol.schedule import Control, schedule_of
from index.protocol.where import parse_where
from index.rules.rules import Rules
from spark_backfill.buckets.controls import controls_in
from spark_backfill.buckets.decisions import header_pairs, milliseconds

QUERY_SCHEMA: Final = "partition int, offset bigint, where binary"
PLACE_SCHEMA: Final = "partition int, offset bigint"

Queries = Mapping[int, list[Query]]
"""The queries of each partition, by offset."""


def queries_of(records: DataFrame, rules: Rules, unanswered: Mapping[int, int]) -> Queries:
    """Return the queries among records of the connector, up to the first ``unanswered`` control of each partition."""
    columns = records.select("partition", "offset", "timestamp", "headers")
    found: dict[int, list[Query]] = {}
    for partition, offset, where in columns.mapInArrow(_Asking(rules.to_json()), QUERY_SCHEMA).collect():
        if offset < unanswered.get(partition, offset + 1):
            found.setdefault(partition, []).append(Query(offset, parse_where(bytes(where)), 0))
    return {partition: sorted(queries) for partition, queries in found.items()}


def without_queried(records: DataFrame, rules: Rules, queries: Queries) -> DataFrame:
    """Remove the records of the connector that these queries have cancelled."""
    if not queries:
        return records
    columns = records.select("partition", "offset", "timestamp", "headers")
    unwanted = columns.mapInArrow(_Matching(rules.to_json(), queries), PLACE_SCHEMA)
    return records.join(unwanted, ["partition", "offset"], "left_anti")


@dataclass(frozen=True, slots=True)
class _Asking:
    """Function for mapInArrow: yields rows of QUERY_SCHEMA; a rejected record is no query."""

    rules_json: bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rules = Rules.from_json(self.rules_json)
        for batch in batches:
            asked = [
                (partition, offset, decision.where)
                for partition, offset, timestamp_ms, headers in _columns(controls_in(batch, rules))
                if isinstance(decision := rules.decide(headers, timestamp_ms), Control) and decision.where
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([partition for partition, _, _ in asked], pa.int32()),
                    pa.array([offset for _, offset, _ in asked], pa.int64()),
                    pa.array([where for _, _, where in asked], pa.binary()),
                ],
                names=["partition", "offset", "where"],
            )


@dataclass(frozen=True, slots=True)
class _Matching:
    """Function for mapInArrow: yields rows of PLACE_SCHEMA, the places of the records that a query has cancelled."""

    rules_json: bytes
    queries: Queries

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rules = Rules.from_json(self.rules_json)
        for batch in batches:
            places = [
                (partition, offset)
                for partition, offset, timestamp_ms, headers in _columns(batch)
                if self._is_cancelled(rules, partition, offset, timestamp_ms, headers)
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([partition for partition, _ in places], pa.int32()),
                    pa.array([offset for _, offset in places], pa.int64()),
                ],
                names=["partition", "offset"],
            )

    def _is_cancelled(self, rules: Rules, partition: int, offset: int, timestamp_ms: int, headers: Headers) -> bool:
        queries = self.queries.get(partition, [])
        if not queries or offset > queries[-1].offset:
            return False
        schedule = schedule_of(rules.placed(rules.decide(headers, timestamp_ms), timestamp_ms, offset))
        if schedule is None:
            return False
        return cancelling(queries, offset, schedule, Record(None, None, headers, timestamp_ms)) is not None


def _columns(batch: pa.RecordBatch) -> Iterator[tuple[int, int, int, Headers]]:
    """Yield partition, offset, timestamp and headers of each row."""
    columns = (batch.column("partition").to_pylist(), batch.column("offset").to_pylist())
    return zip(
        *columns,
        milliseconds(batch.column("timestamp")).tolist(),
        header_pairs(batch.column("headers")),
        strict=True,
    )
