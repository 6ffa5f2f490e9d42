"""Runs: the records of one slot in a decided batch as one block of bytes, on their way to the task that writes.

::

    decided batch ─► runs, one row a slot ─► Spark's shuffle ─► runs of a slot ─► sorted batches, bucket by bucket

Spark has a handful of rows to move, and neither takes records apart nor sorts them: that took longer than all the work
on a record in Python. The other work of Spark is done in :class:`_Kept`: a slot that is too large for memory lies in a
file, which is mapped, so that only the rows that are taken out are read.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa

from spark_backfill.buckets.deciding import DecideTask

RUN_SCHEMA: Final = "slot_key int, bucket int, run binary"

MOST_BYTES: Final = 134_217_728
"""Most bytes of one slot in memory; a slot of the usual size has about half of it."""

BATCH_RECORDS: Final = 10_000
BATCH_BYTES: Final = 16_777_216
"""Most bytes and records of a batch that is passed on, as in Spark."""

_NOT_IN_RUN: Final = ("slot_key", "bucket")


@dataclass(frozen=True, slots=True)
class InRuns:
    """Function for mapInArrow over delay topic records: yields rows of RUN_SCHEMA, each with records of one slot.

    Records whose due time and timestamp are at or before ``gone_before_ms`` are left out.
    """

    deciding: DecideTask
    gone_before_ms: int = -1

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of RUN_SCHEMA."""
        for batch in self.deciding(batches):
            kept = batch if self.gone_before_ms < 0 else self._kept(batch)
            if kept.num_rows:
                yield as_runs(kept)

    def _kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        latest = np.maximum(batch.column("due_ms").to_numpy(), batch.column("timestamp_ms").to_numpy())
        return batch.filter(pa.array(latest > self.gone_before_ms))


def as_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a decided batch, which must not be empty, as one row of RUN_SCHEMA for each slot."""
    keys, buckets = (batch.column(name).to_numpy() for name in _NOT_IN_RUN)
    order = np.lexsort((buckets, keys))
    keys, buckets = keys[order], buckets[order]
    starts = [0, *(np.flatnonzero((np.diff(keys) != 0) | (np.diff(buckets) != 0)) + 1).tolist()]
    ordered = batch.drop_columns(list(_NOT_IN_RUN)).take(pa.array(order))
    ends = [*starts[1:], len(order)]
    runs = [_encoded(ordered.slice(start, end - start)) for start, end in zip(starts, ends, strict=True)]
    columns = [pa.array(keys[starts], pa.int32()), pa.array(buckets[starts], pa.int32()), pa.array(runs, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, names=["slot_key", "bucket", "run"])


def in_order(batches: Iterable[pa.RecordBatch], most_bytes: int = MOST_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield all rows of runs, bucket by bucket, sorted by (due, offset), with the number of the bucket."""
    kept: dict[int, _SlotRuns] = {}
    try:
        for batch in batches:
            for bucket, run in zip(batch.column("bucket").to_pylist(), batch.column("run"), strict=True):
                kept.setdefault(bucket, _SlotRuns(most_bytes)).add(run.as_buffer())
        for bucket in sorted(kept):
            for rows in _sorted(kept[bucket].runs()):
                number = pa.array(np.full(rows.num_rows, bucket), pa.int32())
                yield rows.append_column("bucket", number)
    finally:
        for each in kept.values():
            each.close()


@dataclass(slots=True)
class _SlotRuns:
    """The runs of a slot: in memory, or in a file once they are more than ``most_bytes``."""

    most_bytes: int
    _buffers: list[pa.Buffer] = field(default_factory=list)
    _lengths: list[int] = field(default_factory=list)
    _size_bytes: int = 0
    _file: IO[bytes] | None = None

    def add(self, run: pa.Buffer) -> None:
        """Take in a run."""
        self._lengths.append(run.size)
        self._size_bytes += run.size
        if self._file is not None:
            self._file.write(run)
            return
        self._buffers.append(run)
        if self._size_bytes > self.most_bytes:
            # Spark gives its Python workers these directories for spilled data.
            folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0] or None
            self._file = tempfile.NamedTemporaryFile(prefix="delay-router-", dir=folder)  # noqa: SIM115 -- see ``close``
            for each in self._buffers:
                self._file.write(each)
            self._buffers.clear()

    def runs(self) -> list[pa.RecordBatch]:
        """Return all runs, decoded without a copy."""
        buffers: Iterable[pa.Buffer] = self._buffers
        if self._file is not None:
            self._file.flush()
            mapped = pa.memory_map(self._file.name)
            buffers = [mapped.read_buffer(length) for length in self._lengths]
        return [batch for each in buffers for batch in pa.ipc.open_stream(each)]

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()


def _encoded(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_batch(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _sorted(runs: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    starts = np.cumsum([0, *(run.num_rows for run in runs)])
    dues_ms, offsets, sizes = (_whole(runs, name) for name in ("due_ms", "offset", "size_bytes"))
    order = np.lexsort((offsets, dues_ms))
    upto = np.cumsum(sizes[order].astype(np.int64))
    at = 0
    while at < len(order):
        full = int(np.searchsorted(upto, (upto[at - 1] if at else 0) + BATCH_BYTES, side="right"))
        end = min(max(full, at + 1), at + BATCH_RECORDS)
        yield _taken(runs, starts, order[at:end])
        at = end


def _whole(runs: Sequence[pa.RecordBatch], name: str) -> Any:
    return np.concatenate([run.column(name).to_numpy() for run in runs])


def _taken(runs: Sequence[pa.RecordBatch], starts: Any, wanted: Any) -> pa.RecordBatch:
    """Return the rows of these numbers in this order: taken from each run, then sorted."""
    run_of = np.searchsorted(starts, wanted, side="right") - 1
    by_run = np.argsort(run_of, kind="stable")
    owners, rows = run_of[by_run], wanted[by_run]
    edges = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(rows)]
    pieces = []
    for start, end in pairwise(edges):
        owner = int(owners[start])
        pieces.append(runs[owner].take(pa.array(rows[start:end] - starts[owner])))
    places = np.empty(len(wanted), dtype=np.int64)
    places[by_run] = np.arange(len(wanted))
    return pa.concat_batches(pieces).take(pa.array(places))
