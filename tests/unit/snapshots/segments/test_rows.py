"""Records packed into rows, and rows joined into segments: snapshots.segments.rows."""

import random

import pytest

from index.buckets.bucket import Placement
from index.errors import FormatError
from index.protocol.record import Record
from snapshots.segments.row_columns import cut_rows
from snapshots.segments.rows import (
    MAX_HEADERS,
    MAX_NAMES,
    RowPacker,
    decode_rows,
    encode_body,
    encode_rows,
    unpack_rows,
)
from snapshots.segments.segment import decode_segment, encode_segment

LENGTHS = [0, 1, 2, 120, 127, 128, 129, 1_020, 1_023, 1_024, 16_383, 16_384, 70_000]


def packed(packer: RowPacker, record: Record) -> bytes:
    row = packer.pack(record.key, record.value, record.headers)
    assert row is not None
    return row


def joined(packer: RowPacker, dues_ms: list[int], offsets: list[int], records: list[Record]) -> bytes:
    rows = [packed(packer, record) for record in records]
    return encode_rows(dues_ms, offsets, [record.timestamp_ms for record in records], rows, packer.names)


def some_record(rng: random.Random) -> Record:
    def content() -> bytes:
        return rng.randbytes(rng.choice(LENGTHS[:-2]) if rng.random() < 0.2 else rng.randint(0, 20))

    headers = [
        (rng.choice(["deliver-at", "deliver-to", "trace", "é", ""]), content()) for _ in range(rng.randint(0, 4))
    ]
    return Record(rng.choice([None, b"", content()]), content(), headers, rng.choice([0, 5, 2**63 - 1]))


@pytest.mark.parametrize("seed", range(30))
def test_a_segment_of_rows_is_read_as_any_other(seed: int) -> None:
    rng = random.Random(seed)
    packer = RowPacker()
    count = rng.choice([1, 2, 50])
    records = [some_record(rng) for _ in range(count)]
    offsets = rng.sample(range(10**9), count)
    places = sorted((rng.choice([0, 7, 2**63 - 1]), offset) for offset in offsets)
    value = joined(packer, [due_ms for due_ms, _ in places], [offset for _, offset in places], records)
    assert decode_segment(value) == [(*place, record) for place, record in zip(places, records, strict=True)]


@pytest.mark.parametrize("length", LENGTHS)
def test_whatever_the_length(length: int) -> None:
    packer = RowPacker()
    record = Record(b"k" * length, b"v" * length, [("a", b"h" * length), ("b", b"")], 1)
    assert decode_segment(joined(packer, [5], [6], [record])) == [(5, 6, record)]


@pytest.mark.parametrize("keys", [[None, None], [None, b""], [b"", None], [b"a", None, None, b"b"]])
def test_a_null_key_is_not_an_empty_one(keys: list[bytes | None]) -> None:
    records = [Record(key, b"", [], 1) for key in keys]
    numbers = list(range(len(keys)))
    assert [each for _, _, each in decode_segment(joined(RowPacker(), numbers, numbers, records))] == records


def test_what_no_row_can_hold() -> None:
    packer = RowPacker()
    assert packer.pack(b"k", None, []) is None
    assert packer.pack(b"k", b"v", [("a", b""), ("b", None)]) is None
    assert packer.pack(b"k", b"v", [("a", b"")] * (MAX_HEADERS + 1)) is None
    assert packer.names == []


def test_names_of_headers_are_bounded_and_known_ones_go_on() -> None:
    packer = RowPacker()
    for number in range(MAX_NAMES):
        assert packer.pack(None, b"v", [(str(number), b"")]) is not None
    assert packer.pack(None, b"v", [("one more", b"")]) is None
    record = Record(None, b"v", [("7", b"x"), ("3", b"y"), ("7", b"z")], 4)
    assert unpack_rows([4], [packed(packer, record)], packer.names) == [record]
    assert len(packer.names) == MAX_NAMES


@pytest.mark.parametrize(
    ("dues_ms", "offsets"), [([], []), ([2, 1], [1, 2]), ([1, 1], [2, 1]), ([1, 2], [1, 1]), ([1], [-1]), ([-1], [1])]
)
def test_what_is_no_segment_is_refused(dues_ms: list[int], offsets: list[int]) -> None:
    records = [Record(None, b"", [], 1)] * len(dues_ms)
    with pytest.raises(FormatError):
        joined(RowPacker(), dues_ms, offsets, records)


@pytest.mark.parametrize("seed", range(20))
def test_a_segment_is_taken_apart_into_rows_that_are_the_same_segment_again(seed: int) -> None:
    rng = random.Random(seed)
    records = [some_record(rng) for _ in range(rng.choice([1, 2, 30]))]
    places = sorted((rng.choice([0, 7, 2**63 - 1]), offset) for offset in rng.sample(range(10**9), len(records)))
    entries = [(*place, record) for place, record in zip(places, records, strict=True)]
    packer = RowPacker()
    # Names of another segment that was read before.
    packer.indexes(["none", "trace"])
    rows = decode_rows(encode_segment(Placement.INLINE, entries), packer)
    assert rows is not None
    assert decode_segment(encode_body(*rows, packer.names)) == entries
    assert cut_rows(rows.body, rows.sizes) == [packed(packer, record) for record in records]


@pytest.mark.parametrize(
    "record",
    [None, Record(b"k", None, [], 1), Record(b"k", b"v", [("a", None)], 1), Record(b"k", b"v", [], -1)],
)
def test_a_segment_with_what_no_row_holds_is_none_of_rows(record: Record | None) -> None:
    entries = [(5, 1, Record(b"k", b"v", [], 1)), (6, 2, record)]
    assert decode_rows(encode_segment(Placement.INLINE, entries), RowPacker()) is None
    assert decode_rows(encode_segment(Placement.INLINE, entries[:1]), RowPacker()) is not None


def test_a_segment_of_pointers_is_none_of_rows() -> None:
    assert decode_rows(encode_segment(Placement.POINTER, [(5, 1, None)]), RowPacker()) is None


def test_a_segment_with_names_for_which_the_table_has_no_room_is_none_of_rows() -> None:
    packer = RowPacker()
    packer.indexes([str(number) for number in range(MAX_NAMES - 1)])
    one, two = (
        encode_segment(Placement.INLINE, [(5, 1, Record(None, b"v", [(name, b"") for name in names], 1))])
        for names in (["a"], ["a", "b"])
    )
    assert decode_rows(two, packer) is None
    assert decode_rows(one, packer) is not None
    assert len(packer.names) == MAX_NAMES


def test_a_damaged_segment_is_none_of_rows_either() -> None:
    value = encode_segment(Placement.INLINE, [(5, 1, Record(None, b"v", [], 1))])
    with pytest.raises(FormatError):
        decode_rows(value[:-1], RowPacker())


def test_more_records_than_a_segment_holds_are_unpacked() -> None:
    packer = RowPacker()
    records = [Record(b"k", bytes(1_000), [("a", b"")], number) for number in range(2_000)]
    rows = [packed(packer, record) for record in records]
    with pytest.raises(FormatError, match="over the cap"):
        encode_rows(range(2_000), range(2_000), range(2_000), rows, packer.names)
    assert unpack_rows(range(2_000), rows, packer.names) == records
