"""Rows of an export: their values, and the segments that are read for them, without Spark."""

from typing import Any

import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap64

from index.buckets.bucket import Manifest, Placement, SegmentRef
from index.errors import ConfigError
from index.pending.progress import BEFORE_ALL, Behind, Position, Progress, Skipped
from index.protocol.record import Record
from index.protocol.schedule import Schedule
from index.rules.rule_history import RuleEpoch, RuleHistory
from index.rules.rules import Rules
from snapshots.state.held import HeldEntry
from snapshots.state.pending import StoredPending
from snapshots.state.state import StoredState
from spark_backfill.errors import JobError
from spark_backfill.export import table
from spark_backfill.export.rows import (
    CONTROL,
    GONE,
    HELD,
    INDEXED,
    NOT_INDEXED,
    OptionalColumns,
    PendingRows,
    as_arrow,
    held_rows,
    text_of,
)
from spark_backfill.export.segments import Segment, chosen
from spark_backfill.formats import FormatOptions

RULES = Rules("d", default_target="out", max_delay_ms=0)
OLD = Rules("d", default_target="before", max_delay_ms=0)
SENT_MS = 1_000
ALL = OptionalColumns(value=True, headers=True)
NONE = OptionalColumns(value=False, headers=False)


def state(**more: Any) -> StoredState:
    progress = Progress(50, Position(5_000, 7), 40, next_bucket=9, skipped=(Skipped(46, 48),))
    return StoredState(progress, "id", RuleHistory((RuleEpoch(0, OLD), RuleEpoch(40, RULES))), **more)


def read(*records: tuple[int, int | None, int | None, list[tuple[str, bytes | None]]]) -> pa.RecordBatch:
    """Make a batch of partition 3: offset, due time by the bucket, timestamp, headers."""
    pairs = [[{"key": name, "value": value} for name, value in headers] for *_, headers in records]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([3] * len(records), pa.int32()),
            pa.array([offset for offset, *_ in records], pa.int64()),
            pa.array([due for _, due, _, _ in records], pa.int64()),
            pa.array([sent for _, _, sent, _ in records], pa.int64()),
            pa.array([b"k"] * len(records), pa.binary()),
            pa.array([b"v"] * len(records), pa.binary()),
            pa.array(pairs, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ],
        names=["partition", "offset", "due_ms", "timestamp_ms", "key", "value", "headers"],
    )


def rows(pending: StoredPending, batch: pa.RecordBatch, wanted: OptionalColumns = NONE) -> list[dict[str, Any]]:
    (found,) = PendingRows({3: pending.without_lists()}, wanted)([batch])
    result: list[dict[str, Any]] = found.to_pylist()
    return result


def at(due_ms: int, *more: tuple[str, bytes | None]) -> list[tuple[str, bytes | None]]:
    return [("deliver-at", b"%d" % due_ms), *more]


def test_records_of_the_log_by_what_the_state_says_of_them() -> None:
    pending = StoredPending.of(state(mask=FrozenBitMap64([42, 52]), held=(held(43),)))
    found = rows(
        pending,
        read(
            (40, None, SENT_MS, at(9_000, ("deliver-id", b"a\xff"))),
            (41, None, SENT_MS, at(4_000)),  # has left
            (42, None, SENT_MS, at(9_000)),  # cancelled
            (43, None, SENT_MS, at(9_000)),  # held: counted as held
            (44, None, SENT_MS, [("deliver-at", b"soon")]),  # rejected
            (45, None, SENT_MS, [("deliver-cancel", b"a")]),  # has a receipt
            (46, None, SENT_MS, at(9_000)),  # skipped unread
            (50, None, SENT_MS, at(1_000)),  # past due, and not indexed
            (51, None, SENT_MS, [("deliver-cancel", b"a")]),
            (52, None, SENT_MS, at(9_000)),  # cancelled in transit
            (53, None, SENT_MS, at(9_000, ("bad\N{REPLACEMENT CHARACTER}", b""))),  # to be rejected
            (54, None, SENT_MS, []),  # names no time
        ),
    )
    assert [(row["offset"], row["state"]) for row in found] == [
        (40, INDEXED),
        (50, NOT_INDEXED),
        (51, CONTROL),
        (54, NOT_INDEXED),
    ]
    assert (found[0]["targets"], found[0]["id"], found[0]["key"], found[0]["value"]) == (["out"], "a\\xff", b"k", None)
    assert [row["due"].timestamp() * 1_000 for row in found] == [9_000, 1_000, 0, SENT_MS]
    (whole,) = rows(pending, read((40, None, SENT_MS, at(9_000))), ALL)
    assert (whole["value"], whole["headers"]) == (b"v", [{"key": "deliver-at", "value": b"9000"}])


def test_records_that_segments_name_by_the_rules_of_their_offset() -> None:
    found = rows(
        StoredPending.of(state()),
        read(
            (5, 9_000, SENT_MS, at(9_000)),
            (6, 0, SENT_MS, [("deliver-at", b"soon")]),  # staged as an entry to reject
            (7, 8_000, SENT_MS, at(9_000)),  # another record than the segment's
            (8, 9_000, None, []),
        ),
    )
    assert [(row["offset"], row["state"], row["targets"]) for row in found] == [
        (5, INDEXED, ["before"]),
        (8, GONE, None),
    ]


def test_due_times_that_no_calendar_has() -> None:
    entry = held(3)
    entry = entry._replace(schedule=entry.schedule._replace(due_ms=2**62))
    (row,) = as_arrow(held_rows(StoredPending.of(state(held=(entry,))), 3, NONE)).to_pylist()
    assert row["due"].year == 9999


def held(offset: int) -> HeldEntry:
    headers = at(2_000, ("deliver-id", b"h"))
    decided = RULES.decide(headers, SENT_MS)
    assert isinstance(decided, Schedule)
    return HeldEntry(offset, decided, Record(b"k", b"v", headers, SENT_MS))


def test_what_is_held() -> None:
    (row,) = held_rows(StoredPending.of(state(held=(held(3),))), 3, NONE)
    assert (row.offset, row.state, row.targets, row.id, row.value, row.due) == (3, HELD, ("out",), "h", None, 2_000_000)


def ref(first: Position, last: Position, record_offset: int, placement: Placement) -> SegmentRef:
    return SegmentRef(first, last, 2, 99, record_offset, placement)


def test_segments_that_have_left_are_not_read_and_those_that_point_are_read_apart() -> None:
    inline, pointer = Placement.INLINE, Placement.POINTER
    early, late = Position(1_000, 1), Position(9_000, 2)
    buckets = (
        Manifest(1, 0, 10, None, (ref(early, early, 70, inline), ref(early, late, 60, inline))),
        Manifest(2, 10, 20, 12, (ref(early, late, 50, pointer), ref(late, late, 51, inline))),
        # Adopted, and behind W.
        Manifest(3, 20, 30, None, (ref(early, early, 80, inline),)),
    )
    progress = Progress(50, Position(5_000, 7), 40, next_bucket=9, catching_up=(Behind(3, BEFORE_ALL),))
    pending = StoredPending.of(StoredState(progress, "id", RuleHistory.beginning(0, RULES), buckets))
    found = chosen({3: pending})
    assert [(each.record_offset, each.after) for each in found.inline] == [
        (51, progress.watermark),
        (60, progress.watermark),
        (80, BEFORE_ALL),
    ]
    assert [each.record_offset for each in found.pointing] == [50, 51]
    names = ("partition", "record_offset", "from_offset", "to_offset", "after_due_ms", "after_offset")
    assert Segment.of(dict(zip(names, found.inline[0].row(), strict=True))) == found.inline[0]
    entries = [(4_000, 11, None), (9_000, 11, None), (9_000, 31, None)]
    assert pending.entries(range(10, 20), progress.watermark, entries) == [(9_000, 11, None)]


def test_ids_are_text() -> None:
    assert (text_of(None), text_of("é".encode()), text_of(b"\xff")) == (None, "é", "\\xff")


def test_where_to_write_must_be_said() -> None:
    nothing, url = FormatOptions({}), FormatOptions({"url": "jdbc:x"})
    for output, kind, options in ((None, "parquet", nothing), (None, "table", nothing), (None, "jdbc", url)):
        with pytest.raises(ConfigError, match="OUTPUT is missing"):
            table.check(output, kind, options)
    with pytest.raises(ConfigError, match="say which database"):
        table.check("pending", "jdbc", nothing)
    table.check(None, "jdbc", FormatOptions({"url": "jdbc:x", "dbtable": "t"}))


def test_an_attempt_behind_one_that_failed_writes_where_that_has_begun() -> None:
    assert [table.mode_again("parquet", mode) for mode in ("error", "overwrite", "append")] == [
        "overwrite",
        "overwrite",
        "append",
    ]
    with pytest.raises(JobError, match="empty the table"):
        table.mode_again("jdbc", "append")
