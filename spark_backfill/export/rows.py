"""Rows of the table: the schedule of each record that may be pending, decided within a task."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import pyarrow as pa

from index.protocol.record import Record
from index.rules.unreadable import are_plain
from snapshots.state.pending import StoredPending
from spark_backfill.buckets.collector import no_collector
from spark_backfill.buckets.decisions import header_pairs, objects

HELD: Final = "held"
INDEXED: Final = "indexed"
NOT_INDEXED: Final = "not_indexed"
GONE: Final = "gone"
CONTROL: Final = "control"
"""Values of column ``state``; a control that no router has read is counted, and is no row of the table."""

_HEADERS: Final = "array<struct<key:string,value:binary>>"
ROW_SCHEMA: Final = (
    "partition int, offset bigint, due timestamp, state string, targets array<string>, id string, series bigint,"
    f" key binary, value binary, headers {_HEADERS}"
)
ABSENT_SCHEMA: Final = "partition int, offset bigint, due_ms bigint"
READ_COLUMNS: Final = ("partition", "offset", "due_ms", "timestamp_ms", "key", "value", "headers")
"""Columns of records that may be pending. ``due_ms`` comes from the bucket that holds the record, null from S on.
``timestamp_ms`` is null where the delay topic does not have the record any more."""

_ARROW: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("due", pa.timestamp("us", tz="UTC")),
        ("state", pa.string()),
        ("targets", pa.list_(pa.string())),
        ("id", pa.string()),
        ("series", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


class OptionalColumns(NamedTuple):
    """The optional parts of a record in the table."""

    value: bool
    headers: bool


NOTHING_MORE: Final = OptionalColumns(value=False, headers=False)


class ExportRow(NamedTuple):
    """A row of ROW_SCHEMA; ``due`` in microseconds of the epoch."""

    partition: int
    offset: int
    due: int
    state: str
    targets: Sequence[str] | None = None
    id: str | None = None
    series: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] | None = None


@dataclass(frozen=True, slots=True)
class PendingRows:
    """Function for mapInArrow over batches of READ_COLUMNS: yields rows of ROW_SCHEMA for pending records."""

    pending: Mapping[int, StoredPending]
    wanted: OptionalColumns

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of rows."""
        with no_collector():
            for batch in batches:
                columns = [objects(batch.column(name)) for name in ("partition", "offset", "key", "value")]
                times = [batch.column(name).to_pylist() for name in ("due_ms", "timestamp_ms")]
                yield as_arrow(self._rows(zip(*columns, *times, header_pairs(batch.column("headers")), strict=True)))

    def _rows(self, records: Iterable[tuple[Any, ...]]) -> Iterator[ExportRow]:
        for partition, offset, key, value, due_ms, timestamp_ms, headers in records:
            pending = self.pending[partition]
            if timestamp_ms is None:
                yield ExportRow(partition, offset, _micros(due_ms), GONE)
            elif due_ms is not None or not pending.is_told_elsewhere(offset):
                yield from self.row(pending, partition, offset, due_ms, Record(key, value, headers, timestamp_ms))

    def row(
        self, pending: StoredPending, partition: int, offset: int, due_ms: int | None, record: Record
    ) -> Iterator[ExportRow]:
        """Yield the row of a record if it is pending."""
        rules = pending.state.history.at(offset)
        # Spark's client has put U+FFFD for bytes that are no text; the rules of 0.1.0 accepted such names.
        if not rules.are_of_0_1_0 and not are_plain(record.headers):
            return
        is_new = due_ms is None and offset >= pending.state.progress.cursor
        found = pending.schedule(offset, record, due_ms)
        if found is not None:
            told = pending.told(offset, *found)
            yield ExportRow(
                partition,
                offset,
                _micros(told.due_ms),
                NOT_INDEXED if is_new else INDEXED,
                told.targets,
                text_of(told.deliver_id),
                told.series,
                record.key,
                record.value if self.wanted.value else None,
                record.headers if self.wanted.headers else None,
            )
        if is_new and any(map(rules.controls.makes_control, (name for name, _ in record.headers))):
            yield ExportRow(partition, offset, 0, CONTROL)


def held_rows(pending: StoredPending, partition: int, wanted: OptionalColumns) -> Iterator[ExportRow]:
    """Yield the rows of records that are held for their target, by the state."""
    for offset, schedule, record, _ in pending.state.held:
        told = pending.told(offset, schedule, record)
        yield ExportRow(
            partition,
            offset,
            _micros(told.due_ms),
            HELD,
            told.targets,
            text_of(told.deliver_id),
            told.series,
            record.key,
            record.value if wanted.value else None,
            record.headers if wanted.headers else None,
        )


def as_arrow(rows: Iterable[ExportRow]) -> pa.RecordBatch:
    """Build a batch of ROW_SCHEMA."""
    columns: Sequence[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(_ARROW)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def text_of(deliver_id: bytes | None) -> str | None:
    r"""Decode an id to text, with ``\xNN`` for bytes that are no UTF-8."""
    return None if deliver_id is None else deliver_id.decode(errors="backslashreplace")


def _micros(due_ms: int) -> int:
    """Return a time that Spark can hold: a time after the year 9999 becomes its end."""
    return min(due_ms, _LAST_MS) * 1_000
