"""Decisions about a batch of records, by Python alone or by the kernel and Python together, with the same result.

Python decides lists of objects, which have to be made first. The kernel reads the columns as they are, decides records
of the common form, and stops in front of any other. Python decides that record, and raises all errors.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from index.protocol.headers import Headers
from index.protocol.schedule import AT_ONCE, Control, Rejection, due_ms_of, schedule_of
from index.rules.rules import Rules
from index.rules.unreadable import are_plain
from snapshots.segments.rows import RowPacker
from spark_backfill.buckets.packing import names_of, pack, rows_of
from spark_backfill.kernel import Decider, Native, TaskKernel

MOST_LEFT: Final = 1_024
"""Records that Python decides in a row before the kernel is tried again."""


class ControlFoundError(Exception):
    """A control record was found. Only the owner of the partition knows the pending records in front of it."""

    def __init__(self, number: int) -> None:
        super().__init__(f"record {number} is a control")
        self.number = number


class DecidedBatch(NamedTuple):
    """Decisions about a batch: due time of each record, numbers of the rejected records, ids and shifts by number.

    ``shifts_ms`` has the records with an id that a spread makes due later (:mod:`index.rules.spreading`). ``names`` and
    ``packed`` are columns of :mod:`spark_backfill.buckets.packing`, all None where nothing is packed.
    """

    dues_ms: Any
    rejected: Sequence[int]
    named: Sequence[tuple[int, bytes]]
    shifts_ms: Mapping[int, int]
    names: Sequence[str | None]
    packed: Sequence[bytes | None]


class Decisions(Protocol):
    """A decider of the batches of one task."""

    def of(self, batch: pa.RecordBatch, timestamps_ms: Any) -> DecidedBatch:
        """Decide a batch of the connector; ControlFoundError has the number of the first record that is a control."""


def decisions(kernel: TaskKernel, rules: Rules, *, packs: bool, answered: bool) -> Decisions:
    """Return a decider for these rules: native if available.

    ``packs``: also pack rows. ``answered``: accept controls.
    """
    python = ByPython(rules, RowPacker(), packs, answered)
    native = kernel.native
    decider = None if native is None else native.decider(rules, python.packer, packs=packs)
    return python if native is None or decider is None else ByKernel(python, native, decider)


@dataclass(frozen=True, slots=True)
class ByPython:
    """Decider that decides all records as objects, in Python."""

    rules: Rules
    packer: RowPacker
    packs: bool
    answered: bool

    def of(self, batch: pa.RecordBatch, timestamps_ms: Any) -> DecidedBatch:
        """Decide a batch."""
        records = _Records.of(batch, timestamps_ms)
        dues_ms, rejected, named, shifts_ms = self.decide(records, 0, batch.num_rows)
        names: Sequence[str | None] = [None] * batch.num_rows
        packed: Sequence[bytes | None] = [None] * batch.num_rows
        if self.packs:
            names, packed = pack(self.packer, records.keys, records.values, records.headers, rejected)
        return DecidedBatch(np.array(dues_ms, dtype=np.int64), rejected, named, shifts_ms, names, packed)

    def decide(self, records: "_Records", start: int, end: int) -> "PythonDecisions":
        """Decide some of the records; all numbers count from the start of the batch."""
        some = slice(start, end)
        headers, timestamps_ms, offsets = records.headers[some], records.timestamps_ms[some], records.offsets[some]
        return decide(headers, timestamps_ms, offsets, self.rules, answered=self.answered, first=start)


@dataclass(frozen=True, slots=True)
class ByKernel:
    """Decider that lets the kernel decide records of the common form, and Python the others."""

    python: ByPython
    native: Native
    decider: Decider

    def of(self, batch: pa.RecordBatch, timestamps_ms: Any) -> DecidedBatch:
        """Decide a batch."""
        columns = _columns(self.native, batch, timestamps_ms)
        if columns is None:
            return self.python.of(batch, timestamps_ms)
        count = batch.num_rows
        dues_ms = np.empty(count, dtype=np.int64)
        packed: list[bytes | None] = [None] * count
        rejected: list[int] = []
        named: list[tuple[int, bytes]] = []
        shifts_ms: dict[int, int] = {}
        no_rows: list[int] = []
        records: _Records | None = None
        at, left = 0, 1
        while (stopped := self.decider.decide(columns, at, dues_ms, packed, named)) < count:
            # A record of another form is often followed by more of that form, so the kernel is tried ever more rarely.
            left = min(2 * left, MOST_LEFT) if stopped == at else 1
            records = records or _Records.of(batch, timestamps_ms)
            at = min(stopped + left, count)
            some_due_ms, some_rejected, some_named, some_shifts_ms = self.python.decide(records, stopped, at)
            dues_ms[stopped:at] = some_due_ms
            rejected += some_rejected
            named += some_named
            shifts_ms |= some_shifts_ms
            if self.python.packs:
                some = slice(stopped, at)
                parts = records.keys[some], records.values[some], records.headers[some]
                packed[some], some_no_rows = rows_of(self.python.packer, *parts)
                no_rows += [stopped + number for number in some_no_rows]
        names: Sequence[str | None] = [None] * count
        if self.python.packs:
            names = names_of(self.python.packer, packed, no_rows, rejected)
        return DecidedBatch(dues_ms, rejected, named, shifts_ms, names, packed)


class PythonDecisions(NamedTuple):
    """Decisions by Python: due time of each record, numbers of the rejected records, ids and shifts by number."""

    dues_ms: list[int]
    rejected: list[int]
    named: list[tuple[int, bytes]]
    shifts_ms: dict[int, int]


def decide(
    headers: Iterable[Headers],
    timestamps_ms: Iterable[int],
    offsets: Iterable[int],
    rules: Rules,
    *,
    answered: bool = False,
    first: int = 0,
) -> PythonDecisions:
    """Return the due time of each record, AT_ONCE for a rejected one; numbers begin with ``first``.

    ControlFoundError has the number of the first control, unless controls have been ``answered``.
    """
    dues_ms: list[int] = []
    rejected: list[int] = []
    named: list[tuple[int, bytes]] = []
    shifts_ms: dict[int, int] = {}
    judge, takes_any = rules.decide, rules.are_of_0_1_0
    for number, (pairs, timestamp_ms, offset) in enumerate(zip(headers, timestamps_ms, offsets, strict=True), first):
        decision = judge(pairs, timestamp_ms)
        if rules.spreads:
            decision = rules.placed(decision, timestamp_ms, offset)
        if isinstance(decision, Rejection) or not (takes_any or are_plain(pairs)):
            rejected.append(number)
            dues_ms.append(AT_ONCE)
            continue
        if isinstance(decision, Control) and not answered:
            raise ControlFoundError(number)
        if decision.deliver_id is not None and not (isinstance(decision, Control) and decision.where):
            named.append((number, decision.deliver_id))
            if (schedule := schedule_of(decision)) is not None and schedule.shift_ms:
                shifts_ms[number] = schedule.shift_ms
        dues_ms.append(due_ms_of(decision))
    return PythonDecisions(dues_ms, rejected, named, shifts_ms)


class _Records(NamedTuple):
    """The records of a batch as objects, a list for each part."""

    headers: list[list[tuple[str, bytes | None]]]
    timestamps_ms: list[int]
    offsets: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]

    @classmethod
    def of(cls, batch: pa.RecordBatch, timestamps_ms: Any) -> "_Records":
        """Take all records of a batch of the connector."""
        offsets, keys, values = (objects(batch.column(name)) for name in ("offset", "key", "value"))
        return cls(list(header_pairs(batch.column("headers"))), timestamps_ms.tolist(), offsets, keys, values)


def milliseconds(timestamps: pa.Array) -> Any:
    """Convert a column of the connector, in microseconds, to epoch milliseconds, rounded down."""
    return timestamps.cast(pa.int64()).to_numpy() // 1_000


def header_pairs(headers: pa.ListArray) -> Iterator[list[tuple[str, bytes | None]]]:
    """Return the headers of each record, in their order; none where the column is null."""
    names, values = headers.flatten().flatten()
    pairs = list(zip(objects(names), objects(values), strict=True))
    return (pairs[start:end] for start, end in pairwise([0, *header_ends(headers).tolist()]))


def header_ends(headers: pa.ListArray) -> Any:
    """Return the end of each record's headers in the flat array of all headers."""
    return np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy(), dtype=np.int64)


def objects(column: pa.Array) -> list[Any]:
    """Return the values as Python objects, by way of numpy: three times as fast as ``to_pylist``."""
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _columns(native: Native, batch: pa.RecordBatch, timestamps_ms: Any) -> Any | None:
    """Return a batch as the kernel takes it; None where Spark was told to lay columns out in another way."""
    headers = batch.column("headers")
    columns = (batch.column("key"), batch.column("value"), *headers.flatten().flatten())
    if any(column.type not in _KNOWN for column in columns):
        return None
    keys, values, names, contents = map(_column, columns)
    return native.batch(timestamps_ms, keys, values, header_ends(headers), names, contents)


_KNOWN: Final = (pa.binary(), pa.string())


def _column(column: pa.Array) -> tuple[Any, Any, Any]:
    """Return the places, content and null mask of a text or bytes column."""
    _, places, content = column.buffers()
    edges = np.zeros(1, dtype=np.int32)
    if len(column):
        edges = np.frombuffer(places, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    there = np.frombuffer(content, dtype=np.uint8) if content else np.empty(0, dtype=np.uint8)
    nulls = column.is_null().to_numpy(zero_copy_only=False).view(np.uint8) if column.null_count else None
    return edges, there, nulls
