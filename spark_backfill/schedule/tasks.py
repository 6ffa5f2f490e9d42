"""Tasks of ``schedule`` on batches of rows: survey them, put them in place, set aside invalid ones, write."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from index.protocol.schedule import Reason
from index.rules.rules import Rules
from spark_backfill.schedule.row import Decision, InputRow, RowRules
from spark_backfill.schedule.source import read_rows
from spark_backfill.schedule.survey import Route, RowSurvey
from spark_backfill.schedule.write import Sorted, WriteTarget, write

Batches = Iterable[pa.RecordBatch]

_HEADERS: Final = "array<struct<key:string,value:binary>>"
SURVEYED: Final = "survey string"
SORTED: Final = f"partition int, digest binary, write boolean, key binary, value binary, headers {_HEADERS}"
INVALID: Final = (
    f"due string, target string, key binary, value binary, pairs {_HEADERS}, json string, row_id string, damage string,"
    " reason string, message string"
)
WRITTEN: Final = "partition int, written bigint, left_out bigint, before bigint"
"""Columns of the batches that tasks yield, as Spark writes them."""

_ARROW: Final = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    _HEADERS: pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
}


@dataclass(frozen=True, slots=True)
class RowDeciding:
    """Decides rows within a task; it has only fields that can be sent there."""

    stored_rules: bytes
    job: str
    partitions: int
    max_bytes: int
    now_ms: int
    unknown: dict[Route, str] = field(default_factory=dict)
    skip_past: bool = False

    def decisions(self, batch: pa.RecordBatch) -> Iterator[tuple[InputRow, Decision]]:
        """Yield the rows of a batch with their decisions."""
        rules = RowRules(Rules.from_json(self.stored_rules), self.job, self.partitions, self.max_bytes, self.now_ms)
        for row in read_rows(batch):
            decision = rules.decide(row)
            if not decision.reason and self.unknown:
                message = self.unknown.get(Route(decision.targets, decision.target_partition))
                if message is not None:
                    decision = decision._replace(reason=Reason.TARGET_UNKNOWN, message=message)
            yield row, decision

    def survey(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield one survey for all batches of a task."""
        survey = RowSurvey()
        for row, decision in chain.from_iterable(map(self.decisions, batches)):
            survey.add(row, decision)
        yield to_arrow([(survey.to_json(),)], SURVEYED)

    def in_place(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield rows with their place; a row that is not to be written has no content any more."""
        for batch in batches:
            yield to_arrow([self._sorted(row, decision) for row, decision in self.decisions(batch)], SORTED)

    def invalid(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Yield the invalid rows, unchanged, with the reason."""
        for batch in batches:
            reasons = [(decision.reason, decision.message) for _, decision in self.decisions(batch)]
            columns = [*batch.to_pydict().values(), *(list(each) for each in zip(*reasons, strict=True))]
            found = [values for values in zip(*columns, strict=True) if values[-2]]
            yield to_arrow(found, INVALID)

    def _sorted(self, row: InputRow, decision: Decision) -> Sorted:
        if decision.reason or (decision.past and self.skip_past):
            return Sorted(decision.partition, decision.digest, False, None, None, ())
        return Sorted(decision.partition, decision.digest, True, row.key, row.value, decision.headers)


@dataclass(frozen=True, slots=True)
class Writing:
    """The work of a writing task."""

    target: WriteTarget

    def run(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Write the rows and report the numbers."""
        rows = chain.from_iterable(map(_sorted_rows, batches))
        yield to_arrow([tuple(each) for each in write(self.target, rows)], WRITTEN)


def _sorted_rows(batch: pa.RecordBatch) -> Iterator[Sorted]:
    columns = [column.to_pylist() for column in batch.columns]
    for partition, digest, is_written, key, value, headers in zip(*columns, strict=True):
        pairs = [(each["key"], each["value"]) for each in headers or ()]
        yield Sorted(partition, digest, is_written, key, value, pairs)


def to_arrow(rows: Sequence[Sequence[Any]], columns: str) -> pa.RecordBatch:
    """Build a batch of rows with the columns of one of the texts above."""
    fields = [each.strip().split(" ", 1) for each in columns.split(", ")]
    values = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays = [pa.array(list(of), _ARROW[kind]) for of, (_, kind) in zip(values, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in fields])
