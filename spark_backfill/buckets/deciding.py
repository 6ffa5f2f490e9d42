"""Decides records a batch at a time, by the rules of the router, and assigns each record to its slot.

Key, value and headers travel as one column of bytes, which only this package reads again: Spark takes several times as
long to shuffle headers as a nested column. Rejected records keep their place, as entries due at once without payload:
the owner of the partition reads and decides them again when it loads the segment, and rejects them in its own
transaction.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from index.named.names import hash_of
from index.rules.rules import Rules
from snapshots.segments.writing import COLUMN_BYTES, HEADER_BYTES
from spark_backfill.buckets.collector import no_collector
from spark_backfill.buckets.decisions import (
    ControlFoundError,
    DecidedBatch,
    Decisions,
    decisions,
    header_ends,
    milliseconds,
)
from spark_backfill.buckets.plan import Slots
from spark_backfill.errors import NeedsOwnerError
from spark_backfill.kernel import chosen

ID_HASH_RANGE: Final = 1 << 32

DECIDED_SCHEMA: Final = (
    "slot_key int, bucket int, due_ms bigint, offset bigint, timestamp_ms bigint, size_bytes int, names string,"
    " record binary"
)
"""Schema of the rows that ``DecideTask`` yields; (due_ms, offset) within a bucket is the order of release.

A row without ``record`` is absent.

``size_bytes`` is the size of the record in an inline segment, as ``snapshots.segments.writing.record_size`` computes
it; for ``names`` and ``record`` see :mod:`spark_backfill.buckets.packing`.

A record with an id has a second row, for the pages of ids (:mod:`index.named.id_pages`): its ``record`` is the hash of
the id, its ``timestamp_ms`` the due time that was requested, its ``bucket`` is ``of_ids`` of the bucket's number, and
its slot depends on the hash. So the tasks that sort records also sort ids, each a part of them.
"""


@dataclass(frozen=True, slots=True)
class DecideTask:
    """Function for mapInArrow over records of the delay topic.

    ``slot_keys`` are the values by which Spark assigns slots to tasks. Records outside all buckets are left out.
    ``keeps_payload`` is False where every segment only points to the delay topic. A control raises NeedsOwnerError,
    unless all controls have been ``answered``. ``kernel`` is the driver's choice of a kernel
    (:mod:`spark_backfill.kernel`).
    """

    rules_json: bytes
    slots: Slots
    slot_keys: tuple[int, ...]
    keeps_payload: bool
    answered: bool = False
    kernel: str = ""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of DECIDED_SCHEMA for batches of the connector; and batches of ids where records have some."""
        rules = Rules.from_json(self.rules_json)
        placed = _Placing(self.slots, self.slot_keys)
        decides = decisions(chosen(self.kernel), rules, packs=self.keeps_payload, answered=self.answered)
        with no_collector():
            for batch in batches:
                buckets = placed.buckets(batch.column("partition").to_numpy(), batch.column("offset").to_numpy())
                inside = buckets >= 0
                if inside.any():
                    kept = batch if inside.all() else batch.filter(pa.array(inside))
                    yield from self._decided(kept, buckets[inside], rules, placed, decides)

    def _decided(
        self, batch: pa.RecordBatch, buckets: Any, rules: Rules, placed: "_Placing", decides: Decisions
    ) -> Iterator[pa.RecordBatch]:
        timestamps_ms = milliseconds(batch.column("timestamp"))
        offsets = batch.column("offset").to_numpy()
        try:
            decided = decides.of(batch, timestamps_ms)
        except ControlFoundError as found:
            partition, offset = batch.column("partition")[found.number].as_py(), int(offsets[found.number])
            raise NeedsOwnerError(
                f"{rules.topic}/{partition}: the record at offset {offset} cancels, replaces or moves others, which"
                " only the router can do that owns the partition"
            ) from None
        due_ms = decided.dues_ms
        sizes = np.full(batch.num_rows, COLUMN_BYTES)
        if self.keeps_payload:
            sizes = sizes_bytes(batch)
            sizes[list(decided.rejected)] = COLUMN_BYTES
        columns = [
            pa.array(placed.keys(buckets, due_ms, offsets), pa.int32()),
            pa.array(buckets, pa.int32()),
            pa.array(due_ms, pa.int64()),
            batch.column("offset"),
            pa.array(timestamps_ms, pa.int64()),
            pa.array(sizes, pa.int32()),
            pa.array(decided.names, pa.string()),
            pa.array(decided.packed, pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=_NAMES)
        if decided.named:
            yield _ids(decided, buckets, offsets, placed)


def of_ids(bucket: int) -> int:
    """Map the number of a bucket to the ``bucket`` of its rows of ids, which is less than 0, and back.

    >>> of_ids(0), of_ids(of_ids(7))
    (-1, 7)
    """
    return -1 - bucket


def _ids(decided: DecidedBatch, buckets: Any, offsets: Any, placed: "_Placing") -> pa.RecordBatch:
    numbers = np.array([number for number, _ in decided.named])
    hashes = [hash_of(deliver_id) for _, deliver_id in decided.named]
    dues_ms, count = decided.dues_ms[numbers], len(numbers)
    shifts_ms = np.array([decided.shifts_ms.get(number, 0) for number, _ in decided.named])
    columns = [
        pa.array(placed.keys_of_ids(buckets[numbers], hashes), pa.int32()),
        pa.array(of_ids(buckets[numbers]), pa.int32()),
        pa.array(dues_ms, pa.int64()),
        pa.array(offsets[numbers], pa.int64()),
        pa.array(dues_ms - shifts_ms, pa.int64()),
        pa.array(np.zeros(count), pa.int32()),
        pa.array([None] * count, pa.string()),
        pa.array(hashes, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, names=_NAMES)


def sizes_bytes(batch: pa.RecordBatch) -> Any:
    """Estimate the bytes that each record of the connector takes in an inline segment."""
    headers = batch.column("headers")
    _, values = headers.flatten().flatten()
    upto = np.concatenate(([0], np.cumsum(_lengths(values) + HEADER_BYTES)))
    of_headers = np.diff(upto[header_ends(headers)], prepend=0)
    return of_headers + _lengths(batch.column("key")) + _lengths(batch.column("value")) + COLUMN_BYTES


def _lengths(column: pa.Array) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy()


class _Placing:
    """The buckets and slots of many records at once."""

    def __init__(self, slots: Slots, slot_keys: tuple[int, ...]) -> None:
        self._first = slots.first
        self._bounds = slots.bounds
        self._keys = np.array(slot_keys, dtype=np.int32)
        self._numbers = {partition: np.array(found) for partition, found in slots.of_partition().items()}
        self._starts = {
            partition: np.array([slots.buckets[number].from_offset for number in found])
            for partition, found in self._numbers.items()
        }
        self._ends = np.array([bucket.to_offset for bucket in slots.buckets])

    def buckets(self, partitions: Any, offsets: Any) -> Any:
        """Return the number of the bucket of each record; -1 for a record in none."""
        found = np.full(len(offsets), -1, dtype=np.int32)
        for partition in np.unique(partitions).tolist():
            if partition not in self._starts:
                continue
            here = partitions == partition
            there = offsets[here]
            at = np.searchsorted(self._starts[partition], there, side="right") - 1
            # In front of all buckets this is the last bucket, whose end says nothing then.
            number = self._numbers[partition][at]
            found[here] = np.where((at >= 0) & (there < self._ends[number]), number, -1)
        return found

    def keys_of_ids(self, buckets: Any, hashes: Sequence[bytes]) -> Any:
        """Return the keys of ids: each slot of a bucket has an equal part of all hashes."""
        first = np.array(self._first)
        of_bucket = first[buckets + 1] - first[buckets]
        leading = np.array([int.from_bytes(each[:4], "big") for each in hashes], dtype=np.int64)
        return self._keys[first[buckets] + leading * of_bucket // ID_HASH_RANGE]

    def keys(self, buckets: Any, dues_ms: Any, offsets: Any) -> Any:
        """Return the value by which Spark finds the task of each record's slot."""
        slots = np.empty(len(buckets), dtype=np.int64)
        for bucket in np.unique(buckets).tolist():
            here = buckets == bucket
            due, offset = dues_ms[here], offsets[here]
            slot = np.full(len(due), self._first[bucket], dtype=np.int64)
            for bound in self._bounds[bucket]:
                slot += (due > bound.due_ms) | ((due == bound.due_ms) & (offset >= bound.offset))
            slots[here] = slot
        return self._keys[slots]


_NAMES: Final = [part.split()[0] for part in DECIDED_SCHEMA.split(",")]
