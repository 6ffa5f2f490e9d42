"""The places of controls in a range, and the stretches between them that a job can index.

Only the router that owns the partition can evaluate a control, because only it knows the pending records in front of
it. So a range is cut at its controls. The stretches between them are staged. When C reaches a control, the router goes
on by itself, up to the next stretch::

    offsets   [a ──────────────────── k ── k ───────────────── b)
              ├── staged, adopted ───┤├────┤├── staged, adopted ┤
                                      indexed by the router

Rejected: staging controls as entries that are evaluated when their bucket is adopted. The records behind them would
have to wait meanwhile, with a progress of their own that outlives a crash, and the router evaluates controls as fast in
the log: the gain is limited to ranges with so many controls that hardly anything is left between them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from index.protocol.headers import Headers
from index.protocol.schedule import Rejection, schedule_of
from index.rules.rules import Rules
from spark_backfill.buckets.decisions import header_pairs, milliseconds
from spark_backfill.source import OffsetRange

SPAN_SCHEMA: Final = "partition int, first bigint, last bigint"
CONTROL_SCHEMA: Final = "partition int, offset bigint, timestamp_ms bigint, replaces boolean"

MOST_STRETCHES: Final = 100
"""Most stretches of one partition; to adopt one takes a router some tenths of a second."""


class Span(NamedTuple):
    """The offsets from one control of a partition to another, between which no stretch is worth staging."""

    partition: int
    first: int
    last: int


def spans(records: DataFrame, rules: Rules, stretch_records: int) -> list[Span]:
    """Find the controls, and records that claim to be one; they are read once more, and few rows remain.

    ``records`` are records of the connector.
    """
    columns = records.select("partition", "offset", "headers")
    found = columns.mapInArrow(_Finding(rules.to_json(), stretch_records), SPAN_SCHEMA).collect()
    return [Span(*row) for row in found]


def controls_of(records: DataFrame, rules: Rules) -> DataFrame:
    """Return rows of CONTROL_SCHEMA, one for each of ``records`` of the connector that is a control.

    ``replaces``: whether the control is a schedule itself, if its condition holds.
    """
    columns = records.select("partition", "offset", "timestamp", "headers")
    return columns.mapInArrow(_Telling(rules.to_json()), CONTROL_SCHEMA)


def stretches(ranges: Iterable[OffsetRange], found: Iterable[Span], stretch_records: int) -> list[OffsetRange]:
    """Return the longest parts of the ranges that have no control, of ``stretch_records`` offsets at least.

    >>> stretches([OffsetRange(0, 0, 100)], [Span(0, 40, 40), Span(0, 50, 52)], 10)
    [OffsetRange(partition=0, from_offset=0, to_offset=40), OffsetRange(partition=0, from_offset=53, to_offset=100)]
    """
    by_partition: dict[int, list[Span]] = {}
    for span in sorted(found):
        by_partition.setdefault(span.partition, []).append(span)
    parts: dict[int, list[OffsetRange]] = {}
    for partition, start, end in ranges:
        spans_here = by_partition.get(partition, [])
        starts = [start, *(span.last + 1 for span in spans_here)]
        ends = [*(span.first for span in spans_here), end]
        cut = [OffsetRange(partition, *part) for part in zip(starts, ends, strict=True)]
        parts.setdefault(partition, []).extend(cut)
    chosen = [part for some in parts.values() for part in sorted(some, key=lambda part: part.span)[-MOST_STRETCHES:]]
    return sorted(part for part in chosen if part.span >= stretch_records)


@dataclass(frozen=True, slots=True)
class _Finding:
    """Function for mapInArrow: yields rows of SPAN_SCHEMA, within a task at least ``stretch_records`` offsets apart."""

    rules_json: bytes
    stretch_records: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rules = Rules.from_json(self.rules_json)
        found: list[Span] = []
        for batch in batches:
            rows = controls_among(batch.column("headers"), rules)
            partitions = batch.column("partition").to_numpy()[rows].tolist()
            offsets = batch.column("offset").to_numpy()[rows].tolist()
            for partition, offset in zip(partitions, offsets, strict=True):
                last = found[-1] if found else None
                if last is not None and last.partition == partition and offset - last.last <= self.stretch_records:
                    found[-1] = last._replace(last=offset)
                else:
                    found.append(Span(partition, offset, offset))
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([span.partition for span in found], pa.int32()),
                pa.array([span.first for span in found], pa.int64()),
                pa.array([span.last for span in found], pa.int64()),
            ],
            names=["partition", "first", "last"],
        )


@dataclass(frozen=True, slots=True)
class _Telling:
    """Function for mapInArrow: yields rows of CONTROL_SCHEMA; a rejected record is no control."""

    rules_json: bytes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rules = Rules.from_json(self.rules_json)
        for batch in batches:
            some = controls_in(batch, rules)
            timestamps_ms = milliseconds(some.column("timestamp")).tolist()
            told = map(partial(_tells, rules), header_pairs(some.column("headers")), timestamps_ms)
            columns = [
                some.column("partition"),
                some.column("offset"),
                pa.array(timestamps_ms, pa.int64()),
                pa.array(told, pa.bool_()),
            ]
            made = pa.RecordBatch.from_arrays(columns, names=["partition", "offset", "timestamp_ms", "replaces"])
            yield made.filter(pc.is_valid(made.column("replaces")))


def _tells(rules: Rules, headers: Headers, timestamp_ms: int) -> bool | None:
    """Return true if a control replaces the record that it cancels; None if the control is rejected."""
    decision = rules.decide(headers, timestamp_ms)
    return None if isinstance(decision, Rejection) else schedule_of(decision) is not None


def controls_in(batch: pa.RecordBatch, rules: Rules) -> pa.RecordBatch:
    """Return the rows that are controls, unless they are rejected."""
    return batch.take(pa.array(controls_among(batch.column("headers"), rules)))


def controls_among(headers: pa.ListArray, rules: Rules) -> Any:
    """Return the numbers of the rows that are controls, unless they are rejected; O(header names)."""
    names = headers.flatten().field("key")
    claiming = [name for name in pc.unique(names).to_pylist() if rules.controls.makes_control(name)]
    if not claiming:
        return np.empty(0, dtype=np.int64)
    claims = pc.is_in(names, value_set=pa.array(claiming, names.type))
    return np.unique(pc.list_parent_indices(headers).filter(claims).to_numpy())
