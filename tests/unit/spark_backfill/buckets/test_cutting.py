"""Deciding and cutting a batch at a time, against deciding each record and the seal of the router."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from index.buckets.bucket import Placement
from index.buckets.bucket_rules import SealRules
from index.buckets.bucket_rules import cut as index_cut
from index.buckets.bucket_rules import placement_of as index_placement_of
from index.buckets.due_marks import marks_of
from index.named.id_pages import FoundId, IdPageRef, IdRows, place_in, rows_of, shift_in
from index.named.names import hash_of
from index.named.places import HASH_BYTES
from index.pending.progress import Position
from index.protocol.headers import PRESETS
from index.protocol.record import Record
from index.protocol.schedule import AT_ONCE, Rejection, Schedule, due_ms_of
from index.rules.rules import Rules
from snapshots.segments.codec import PYTHON_CODEC
from snapshots.segments.id_columns import check_id_pages
from snapshots.segments.id_pages import encode_pages, parse_page
from snapshots.segments.segment import StoredEntry, decode_segment
from snapshots.segments.writing import record_size
from spark_backfill.buckets import cutting
from spark_backfill.buckets.cutting import BucketSegment, Cutter, cut, placement_of
from spark_backfill.buckets.deciding import DecideTask
from spark_backfill.buckets.job import Job
from spark_backfill.buckets.plan import BucketRange, Slots
from spark_backfill.buckets.staging import staged_buckets
from spark_backfill.kernel import chosen

RULES = Rules("d", default_target="t", max_delay_ms=100_000, aliases=PRESETS["cesium"])
SEAL = SealRules(time_step_ms=20_000, segment_entries=40, segment_bytes=4_000, placement="inline")
BUCKETS = (BucketRange(0, 0, 300), BucketRange(0, 300, 700), BucketRange(4, 0, 500))
BOUNDS = ((Position(1_030_000, 0),), (), (Position(1_020_000, 90), Position(1_060_000, 0)))
SLOTS = Slots(BUCKETS, BOUNDS)
KEYS = tuple(100 + slot for slot in range(SLOTS.count))
CODEC = chosen().codec
JOB = Job("j", "r", {}, "g", "d", "id", "d.s", "d.b", RULES.to_json(), SEAL, SLOTS, KEYS, restores=False, report="")
STRUCT = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

Row = tuple[int, int, Record]


def some_record(rng: random.Random) -> Record:
    headers: list[tuple[str, bytes | None]] = [("n", None), ("n", b""), ("e", b"x")][: rng.randrange(4)]
    match rng.randrange(6):
        case 0:
            headers.append(("deliver-after", b"no"))
        case 1:
            headers.append(("cesium-delay-ms", b"%d" % rng.randrange(200_000)))
        case 2:
            pass
        case _:
            headers.insert(0, ("deliver-at", b"%d" % rng.randrange(1_000_000, 1_080_000)))
    value = rng.choice([None, b"", rng.randbytes(80), rng.randbytes(5_000) if rng.random() < 0.05 else b"v"])
    return Record(rng.choice([None, b"", b"k"]), value, headers, rng.randrange(1_000_000, 1_010_000))


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """Return rows as the connector hands them to Python."""
    columns: dict[str, Any] = {
        "partition": pa.array([row[0] for row in rows], pa.int32()),
        "offset": pa.array([row[1] for row in rows], pa.int64()),
        "timestamp": pa.array([row[2].timestamp_ms * 1_000 for row in rows], pa.timestamp("us", "UTC")),
        "key": pa.array([row[2].key for row in rows], pa.binary()),
        "value": pa.array([row[2].value for row in rows], pa.binary()),
        "headers": pa.array(
            [[{"key": name, "value": raw} for name, raw in row[2].headers] or None for row in rows], STRUCT
        ),
    }
    return pa.RecordBatch.from_pydict(columns)


def log(rng: random.Random) -> list[Row]:
    rows = [(0, offset, some_record(rng)) for offset in range(700) if rng.random() < 0.95]
    rows += [(4, offset, some_record(rng)) for offset in range(500)]
    rng.shuffle(rows)
    return rows


def due_of(record: Record) -> int:
    return due_ms_of(RULES.decide(record.headers, record.timestamp_ms))


def decided(
    rows: list[Row], size: int = 130, *, keeps_payload: bool = True, kernel: str = "", rules: Rules = RULES
) -> pa.Table:
    deciding = DecideTask(rules.to_json(), SLOTS, KEYS, keeps_payload=keeps_payload, kernel=kernel)
    # A batch may be a slice of a larger one, so its offsets into buffers do not begin at 0.
    batches = [batch_of(rows[max(0, at - 3) : at + size]).slice(min(3, at)) for at in range(0, len(rows), size)]
    return pa.Table.from_batches(deciding(batches))


def test_every_record_gets_its_due_time_bucket_and_slot(rng: random.Random) -> None:
    rows = log(rng)
    table = decided(rows).to_pydict()
    assert len(table["offset"]) == len(rows)
    for number, (partition, offset, record) in enumerate(rows):
        due_ms = due_of(record)
        (bucket,) = [
            place
            for place, each in enumerate(BUCKETS)
            if each.partition == partition and each.from_offset <= offset < each.to_offset
        ]
        slot = SLOTS.first[bucket] + sum((due_ms, offset) >= bound for bound in BOUNDS[bucket])
        found = (table["due_ms"][number], table["bucket"][number], table["slot_key"][number], table["offset"][number])
        assert found == (due_ms, bucket, KEYS[slot], offset)


def test_rejected_records_keep_their_place_and_lose_their_payload(rng: random.Random) -> None:
    rows = log(rng)
    table = decided(rows).to_pydict()
    rejected = 0
    for number, (_, _, record) in enumerate(rows):
        is_rejected = isinstance(RULES.decide(record.headers, record.timestamp_ms), Rejection)
        rejected += is_rejected
        assert (table["record"][number] is None) is is_rejected
    assert rejected > 50


def test_sizes_are_those_that_the_router_cuts_by(rng: random.Random) -> None:
    rows = log(rng)
    table = decided(rows).to_pydict()
    for size_bytes, packed, (_, _, record) in zip(table["size_bytes"], table["record"], rows, strict=True):
        assert size_bytes == record_size(record if packed is not None else None)


def test_pointers_need_no_payload(rng: random.Random) -> None:
    table = decided(log(rng), keeps_payload=False).to_pydict()
    assert set(table["record"]) == {None}
    assert set(table["size_bytes"]) == {record_size(None)}


def entries_of(segments: Iterator[BucketSegment]) -> dict[int, list[StoredEntry]]:
    found: dict[int, list[StoredEntry]] = {}
    for bucket, (ref, value) in segments:
        entries = decode_segment(value)
        assert (ref.entries, ref.first, ref.last, ref.size_bytes) == (
            len(entries),
            entries[0][:2],
            entries[-1][:2],
            len(value),
        )
        assert ref.dues == marks_of([due_ms for due_ms, _, _ in entries])
        assert len(entries) <= SEAL.segment_entries
        found.setdefault(bucket, []).extend(entries)
    return found


def test_segments_hold_the_entries_in_order(rng: random.Random) -> None:
    rows = log(rng)
    table = decided(rows).sort_by([("bucket", "ascending"), ("due_ms", "ascending"), ("offset", "ascending")])
    cutter = Cutter(BUCKETS, SEAL, CODEC)
    found = entries_of(cutter.segments(table.combine_chunks().to_batches(max_chunksize=90)))
    too_big = set()
    for number, bucket in enumerate(BUCKETS):
        expected = []
        for partition, offset, record in rows:
            if partition == bucket.partition and bucket.from_offset <= offset < bucket.to_offset:
                fits = len(record.value or b"") < SEAL.segment_bytes
                accepted = not isinstance(RULES.decide(record.headers, record.timestamp_ms), Rejection)
                expected.append((due_of(record), offset, record if fits and accepted else None))
                if not (fits and accepted):
                    too_big.add((number, offset))
        expected.sort(key=lambda entry: entry[:2])
        assert [entry[:2] for entry in found[number]] == [entry[:2] for entry in expected]
        for one, two in zip(found[number], expected, strict=True):
            assert (one[2] and one[2]._replace(headers=list(one[2].headers))) == two[2]
        assert cutter.needs_from[number] == min(offset for where, offset in too_big if where == number)


def test_rows_of_several_tasks_are_joined_where_their_header_names_begin_alike(rng: random.Random) -> None:
    """Each batch comes from a task of its own here, which does not know the tables of names of other tasks."""
    for alike in (True, False):
        rows: list[Row] = []
        for offset in range(300):
            due = ("deliver-at", b"%d" % rng.randrange(1_000_000, 1_080_000))
            more = [("a", b"1"), ("b", b""), ("a", b"2")][: offset // 100]
            headers = [due, *more] if alike or offset >= 200 else [*more, due]
            key = rng.choice([None, b"", b"k"])
            rows.append((0, offset, Record(key, rng.randbytes(rng.randrange(40)), headers, 1_000_000 + offset)))
        tasks = [decided(rows[at : at + 50]) for at in range(0, 300, 50)]
        table = pa.concat_tables(tasks).sort_by([("due_ms", "ascending"), ("offset", "ascending")]).combine_chunks()
        assert len(set(table.column("names").to_pylist())) > 1
        rules = SealRules(time_step_ms=20_000, segment_entries=100, segment_bytes=40_000, placement="inline")
        segments = list(Cutter(BUCKETS, rules, CODEC).segments(table.to_batches()))
        found = [entry for each in segments for entry in decode_segment(each.encoded.value)]
        expected = sorted((due_of(record), offset, record) for _, offset, record in rows)
        assert [(due, offset, each and each._replace(headers=list(each.headers))) for due, offset, each in found] == (
            expected
        )


def test_slots_that_share_a_task_are_cut_apart(rng: random.Random) -> None:
    rows = log(rng)
    mixed = decided(rows).sort_by([("due_ms", "ascending"), ("offset", "ascending")]).combine_chunks()
    found = entries_of(Cutter(BUCKETS, SEAL, CODEC).segments(mixed.to_batches(max_chunksize=64)))
    assert {bucket: len(entries) for bucket, entries in found.items()} == {
        number: sum(
            partition == bucket.partition and bucket.from_offset <= offset < bucket.to_offset
            for partition, offset, _ in rows
        )
        for number, bucket in enumerate(BUCKETS)
    }
    for entries in found.values():
        assert [entry[:2] for entry in entries] == sorted(entry[:2] for entry in entries)


def named(rows: list[Row], rng: random.Random) -> list[Row]:
    """Return the rows with ids on half of the records."""
    found = []
    for partition, offset, record in rows:
        more = [("deliver-id", b"%d" % rng.randrange(60))] if rng.random() < 0.5 else []
        found.append((partition, offset, record._replace(headers=[*record.headers, *more])))
    return found


@pytest.mark.parametrize("keeps_payload", [True, False])
def test_native_code_and_python_give_the_same_bytes(rng: random.Random, keeps_payload: bool) -> None:
    rows = named(log(rng), rng)
    # Records of the common form and records that Python decides also come in runs.
    rows.sort(key=lambda row: (len(row[2].headers), row[2].value is None, row[1]))
    native, python = (decided(rows, 300, keeps_payload=keeps_payload, kernel=each) for each in ("", "off"))
    assert native.equals(python)
    found = []
    for codec in (CODEC, PYTHON_CODEC):
        cutter = Cutter(BUCKETS, replace(SEAL, placement="inline" if keeps_payload else "pointer"), codec)
        table = native.sort_by([("bucket", "ascending"), ("due_ms", "ascending"), ("offset", "ascending")])
        segments, pages = list(cutter.segments(table.to_batches())), list(cutter.pages())
        found.append((segments, pages, cutter.needs_from))
    assert found[0] == found[1]


def test_columns_laid_out_in_another_way_are_decided_all_the_same(rng: random.Random) -> None:
    batch = batch_of(log(rng))
    large = pa.RecordBatch.from_arrays(
        [column.cast(pa.large_binary()) if column.type == pa.binary() else column for column in batch.columns],
        names=batch.schema.names,
    )
    deciding = DecideTask(RULES.to_json(), SLOTS, KEYS, keeps_payload=True)
    found = [list(deciding([each])) for each in (batch, large)]
    assert [each.to_pydict() for each in found[0]] == [each.to_pydict() for each in found[1]]


def test_a_batch_without_headers_and_one_without_records(rng: random.Random) -> None:
    rows: list[Row] = [(0, 7, Record(None, b"v", [], 1_000_000))]
    for kernel in ("", "off"):
        assert decided(rows, kernel=kernel)["due_ms"].to_pylist() == [AT_ONCE]
        deciding = DecideTask(RULES.to_json(), SLOTS, KEYS, keeps_payload=True, kernel=kernel)
        assert list(deciding([batch_of(rows).slice(1)])) == []


def test_pointer_segments() -> None:
    rows: list[Row] = [
        (0, offset, Record(b"k", b"v", [("deliver-at", b"%d" % (1_000_000 + offset))], 1_000_000))
        for offset in range(100)
    ]
    pointers = SealRules(time_step_ms=20_000, segment_entries=1_000, segment_bytes=40_000, placement="pointer")
    cutter = Cutter(BUCKETS, pointers, CODEC)
    ((bucket, (ref, value)),) = cutter.segments(decided(rows).to_batches())
    assert (bucket, ref.placement) == (0, Placement.POINTER)
    assert [entry[1] for entry in decode_segment(value)] == list(range(100))
    assert cutter.needs_from == {0: 0}


def test_columns_are_cut_and_placed_by_the_rules_of_the_index(rng: random.Random) -> None:
    for _ in range(60):
        count = rng.randrange(1, 400)
        spread_ms, most_bytes = rng.choice([1, 50_000, 10_000_000]), rng.choice([30, 900, 6_000])
        entries = sorted((rng.randrange(spread_ms), offset) for offset in rng.sample(range(4 * count), count))
        sizes = [rng.randrange(24, most_bytes + 24) for _ in entries]
        rules = replace(SEAL, placement="auto", segment_entries=rng.choice([1, 7, 40, 64]))
        sized = [(*each, size) for each, size in zip(entries, sizes, strict=True)]
        expected = list(index_cut([sized], rules, lambda size: size))
        rows = pa.RecordBatch.from_pydict(
            {
                "due_ms": pa.array([due_ms for due_ms, _ in entries], pa.int64()),
                "offset": pa.array([offset for _, offset in entries], pa.int64()),
                "size_bytes": pa.array(sizes, pa.int32()),
            }
        )
        step = rng.randrange(1, count + 1)
        found = list(cut([rows.slice(at, step) for at in range(0, count, step)], rules))
        assert [each.column("offset").to_pylist() for each in found] == [[e[1] for e in each] for each in expected]
        for each, segment in zip(found, expected, strict=True):
            by_index = index_placement_of([offset for _, offset, _ in segment], "auto")
            assert placement_of(each.column("offset").to_numpy(), rules) is by_index


@pytest.mark.parametrize("spread_ms", [0, 30_000])
def test_the_ids_of_a_bucket_become_pages_that_follow_each_other_from_task_to_task(
    rng: random.Random, monkeypatch: pytest.MonkeyPatch, spread_ms: int
) -> None:
    rules = replace(RULES, spread_ms=spread_ms)
    monkeypatch.setattr(cutting, "encode_pages", partial(encode_pages, least_rows=3))
    rows = log(rng)
    for _, _, record in rows:
        if rng.random() < 0.5:
            record.headers.append(("deliver-id", b"%d" % rng.randrange(60)))  # type: ignore[attr-defined]
    table = decided(rows, rules=rules)
    refs: list[tuple[int, IdPageRef]] = []
    pages: dict[int, IdRows] = {}
    without_ids: list[StoredEntry] = []
    for key in KEYS:
        task = table.filter(pc.equal(table["slot_key"], key)).sort_by(
            [("due_ms", "ascending"), ("offset", "ascending")]
        )
        cutter = Cutter(BUCKETS, SEAL, CODEC)
        without_ids += [each for found in entries_of(cutter.segments(task.to_batches())).values() for each in found]
        for bucket, page in cutter.pages():
            refs.append((bucket, page.ref._replace(record_offset=len(pages))))
            pages[len(pages)] = parse_page(page.value)
    assert len(without_ids) == len(rows)
    expected: dict[int, list[FoundId]] = {0: [], 1: [], 2: []}
    for partition, offset, record in rows:
        decision = rules.placed(rules.decide(record.headers, record.timestamp_ms), record.timestamp_ms, offset)
        if isinstance(decision, Schedule) and decision.deliver_id is not None:
            bucket = 2 if partition else int(offset >= 300)
            place = Position(decision.due_ms, offset)
            expected[bucket].append((hash_of(decision.deliver_id), place, decision.shift_ms))
    for number, each in enumerate(staged_buckets(JOB, [], refs, {})):
        assert each.manifest.id_pages
        check_id_pages(each.manifest.id_pages)
        found = [one for ref in each.manifest.id_pages for one in rows_of(pages[ref.record_offset])]
        assert [(one[:HASH_BYTES], place_in(one), shift_in(one)) for one in found] == sorted(expected[number])
