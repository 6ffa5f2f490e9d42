"""Decides records a batch at a time, by the rules that the router decides by, and says to which slot each belongs.

Key, value and headers go on as one column of bytes, which only this room reads again: Spark takes several times as long
to shuffle headers as a nested column. Rejected records keep their place, as entries due at once without
payload: the owner of the partition reads and decides them again when it loads the segment, and rejects them in its own
transaction.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from index.headers import Headers
from index.rules import Rules
from index.schedule import AT_ONCE, Rejection
from index.unreadable import KNOWS_UNREADABLE, are_plain
from snapshots.rows import RowPacker
from snapshots.writing import COLUMN_BYTES, HEADER_BYTES
from spark_backfill.buckets.collector import no_collector
from spark_backfill.buckets.packing import pack
from spark_backfill.buckets.plan import Slots
from spark_backfill.errors import NeedsOwnerError

DECIDED_SCHEMA: Final = (
    "slot_key int, bucket int, due_ms bigint, offset bigint, timestamp_ms bigint, size_bytes int, names string,"
    " record binary"
)
"""Of what ``Deciding`` yields; by (due_ms, offset) within a bucket is the order of release. No record: it is absent.

``size_bytes`` is what the record takes in an inline segment, as ``snapshots.writing.record_size`` has it; for
``names`` and ``record`` see :mod:`spark_backfill.buckets.packing`.
"""


@dataclass(frozen=True, slots=True)
class Deciding:
    """For mapInArrow over records of the delay topic; ``slot_keys`` are the values by which Spark shares out slots.

    Records in none of the buckets are left out. ``keeps_payload`` is False where every segment only points to the delay
    topic. NeedsOwnerError for a record that is a control, unless those that there are have been ``answered``.
    """

    rules_json: bytes
    slots: Slots
    slot_keys: tuple[int, ...]
    keeps_payload: bool
    answered: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of DECIDED_SCHEMA for batches of the connector."""
        rules = Rules.from_json(self.rules_json)
        placed = _Placing(self.slots, self.slot_keys)
        packer = RowPacker()
        with no_collector():
            for batch in batches:
                buckets = placed.buckets(batch.column("partition").to_numpy(), batch.column("offset").to_numpy())
                inside = buckets >= 0
                if inside.any():
                    kept = batch if inside.all() else batch.filter(pa.array(inside))
                    yield self._decided(kept, buckets[inside], rules, placed, packer)

    def _decided(
        self, batch: pa.RecordBatch, buckets: Any, rules: Rules, placed: "_Placing", packer: RowPacker
    ) -> pa.RecordBatch:
        timestamps_ms = milliseconds(batch.column("timestamp"))
        headers = list(header_pairs(batch.column("headers")))
        offsets = batch.column("offset").to_numpy()
        try:
            dues_ms, rejected = decide(headers, timestamps_ms.tolist(), offsets.tolist(), rules, answered=self.answered)
        except ControlFoundError as found:
            partition, offset = batch.column("partition")[found.number].as_py(), int(offsets[found.number])
            raise NeedsOwnerError(
                f"{rules.topic}/{partition}: the record at offset {offset} cancels, replaces or moves others, which"
                " only the router can do that owns the partition"
            ) from None
        due_ms = np.array(dues_ms, dtype=np.int64)
        names: list[str | None] = [None] * batch.num_rows
        packed: list[bytes | None] = [None] * batch.num_rows
        sizes = np.full(batch.num_rows, COLUMN_BYTES)
        if self.keeps_payload:
            keys, values = objects(batch.column("key")), objects(batch.column("value"))
            names, packed = pack(packer, keys, values, headers, rejected)
            sizes = sizes_bytes(batch)
            sizes[rejected] = COLUMN_BYTES
        columns = [
            pa.array(placed.keys(buckets, due_ms, offsets), pa.int32()),
            pa.array(buckets, pa.int32()),
            pa.array(due_ms, pa.int64()),
            batch.column("offset"),
            pa.array(timestamps_ms, pa.int64()),
            pa.array(sizes, pa.int32()),
            pa.array(names, pa.string()),
            pa.array(packed, pa.binary()),
        ]
        return pa.RecordBatch.from_arrays(columns, names=_NAMES)


class ControlFoundError(Exception):
    """A record cancels or replaces others: what is pending in front of it, only the owner of the partition knows."""

    def __init__(self, number: int) -> None:
        super().__init__(f"record {number} is a control")
        self.number = number


def milliseconds(timestamps: pa.Array) -> Any:
    """Epoch milliseconds of a column of the connector, which has them as microseconds; rounded as they came."""
    return timestamps.cast(pa.int64()).to_numpy() // 1_000


def sizes_bytes(batch: pa.RecordBatch) -> Any:
    """Bytes that each record of the connector takes in an inline segment, about."""
    headers = batch.column("headers")
    _, values = headers.flatten().flatten()
    upto = np.concatenate(([0], np.cumsum(_lengths(values) + HEADER_BYTES)))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy())
    of_headers = np.diff(upto[ends], prepend=0)
    return of_headers + _lengths(batch.column("key")) + _lengths(batch.column("value")) + COLUMN_BYTES


def _lengths(column: pa.Array) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy()


def decide(
    headers: Iterable[Headers],
    timestamps_ms: Iterable[int],
    offsets: Iterable[int],
    rules: Rules,
    *,
    answered: bool = False,
) -> tuple[list[int], list[int]]:
    """When each record leaves, AT_ONCE for one that is rejected; and the numbers of those that are.

    ControlFoundError with the number of the first one that is a control, unless these have been ``answered``.
    """
    dues_ms: list[int] = []
    rejected: list[int] = []
    judge, takes_any = rules.decide, rules.version < KNOWS_UNREADABLE
    for pairs, timestamp_ms, offset in zip(headers, timestamps_ms, offsets, strict=True):
        decision = judge(pairs, timestamp_ms)
        if rules.spreads:
            decision = rules.placed(decision, timestamp_ms, offset)
        if isinstance(decision, Rejection) or not (takes_any or are_plain(pairs)):
            rejected.append(len(dues_ms))
            dues_ms.append(AT_ONCE)
        elif decision[4] is not None and not answered and rules.claims_control(pairs):
            raise ControlFoundError(len(dues_ms))
        else:
            dues_ms.append(decision[0])
    return dues_ms, rejected


def header_pairs(headers: pa.ListArray) -> Iterator[list[tuple[str, bytes | None]]]:
    """Headers of each record, in their order; none where the column is null."""
    flat = headers.flatten()
    names, values = flat.flatten()
    pairs = list(zip(objects(names), objects(values), strict=True))
    ends = np.cumsum(pc.fill_null(pc.list_value_length(headers), 0).to_numpy()).tolist()
    return (pairs[start:end] for start, end in pairwise([0, *ends]))


def objects(column: pa.Array) -> list[Any]:
    """Values as Python objects, by way of numpy: three times as fast as ``to_pylist``."""
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


class _Placing:
    """Buckets and slots of many records at once."""

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
        """Number of the bucket of each record; -1 for one that is in none."""
        found = np.full(len(offsets), -1, dtype=np.int32)
        for partition in np.unique(partitions).tolist():
            if partition not in self._starts:
                continue
            here = partitions == partition
            there = offsets[here]
            at = np.searchsorted(self._starts[partition], there, side="right") - 1
            # In front of all buckets this is the last one, whose end says nothing then.
            number = self._numbers[partition][at]
            found[here] = np.where((at >= 0) & (there < self._ends[number]), number, -1)
        return found

    def keys(self, buckets: Any, dues_ms: Any, offsets: Any) -> Any:
        """The value by which Spark finds the task of each record's slot."""
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
