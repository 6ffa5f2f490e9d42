"""Rows that the kernel cuts out of a segment: the same as Python packs, or left to Python."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.buckets.bucket import Placement
from index.errors import FormatError
from index.protocol.record import Record
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.segments.rows import MAX_HEADERS, MAX_NAMES, RowPacker, SegmentRows, decode_rows, encode_rows
from snapshots.segments.segment import StoredEntry, encode_segment
from tests.support.kernel import native_kernel
from tests.support.segment_bodies import damaged

NATIVE = native_kernel().codec

from sidecar.kernel import _segments  # noqa: E402 -- only where it is compiled

GOLDEN = Path(__file__).parents[2] / "snapshots" / "golden"

_numbers = st.sampled_from([0, 1, 9, 2**31, 2**53, 2**62]) | st.integers(0, 2**63 - 1)
_names = st.sampled_from(["deliver-at", "trace", "", "a\0b", "\N{SNOWMAN}"])
_contents = st.binary(max_size=9) | st.integers(0, 20_000).map(bytes)
_records = st.builds(
    Record,
    st.none() | _contents,
    _contents,
    st.lists(st.tuples(_names, _contents), max_size=4),
    st.sampled_from([0, 2**63 - 1]) | st.integers(0, 2**63 - 1),
)
_rare = (
    st.none()
    | st.builds(Record, st.just(b"k"), st.none(), st.just([]), st.just(1))
    | st.builds(Record, st.just(b"k"), st.just(b"v"), st.just([("a", None)]), st.just(1))
    | st.builds(Record, st.just(b"k"), st.just(b"v"), st.just([]), st.integers(-(2**63), -1))
)


@st.composite
def _entries(draw: st.DrawFn, records: st.SearchStrategy[Record | None] = _records) -> list[StoredEntry]:
    offsets = draw(st.lists(_numbers, min_size=1, max_size=8, unique=True))
    dues_ms = draw(st.lists(_numbers, min_size=len(offsets), max_size=len(offsets)))
    places = sorted(zip(dues_ms, offsets, strict=True))
    return [(due_ms, offset, draw(records)) for due_ms, offset in places]


def _packer(names: Sequence[str]) -> RowPacker:
    packer = RowPacker()
    packer.indexes(names)
    return packer


def _outcome(
    decode: Callable[[bytes, RowPacker], SegmentRows | None], value: bytes, names: Sequence[str] = ()
) -> tuple[SegmentRows | str | None, list[str]]:
    """Return the rows or the error, and the table of names after it."""
    packer = _packer(names)
    try:
        return decode(value, packer), packer.names
    except FormatError as error:
        return str(error), packer.names


def _is_known(value: bytes, packer: RowPacker | None = None) -> bool:
    return _segments.rows(unwrap(Kind.SEGMENT, value), packer or RowPacker()) is not None


@given(_entries(), st.lists(_names, unique=True))
def test_it_makes_the_rows_that_python_makes(entries: list[StoredEntry], names: list[str]) -> None:
    value = encode_segment(Placement.INLINE, entries)
    found = _outcome(NATIVE.decode_rows, value, names)
    assert isinstance(found[0], SegmentRows)
    assert found == _outcome(decode_rows, value, names)
    assert [column.typecode for column in found[0][:4]] == ["q", "Q", "q", "i"]
    assert _is_known(value)


@given(_entries(), st.lists(_names, unique=True))
def test_it_makes_rows_of_segments_that_were_joined_of_some(entries: list[StoredEntry], names: list[str]) -> None:
    packer = _packer(["another"])
    dues_ms, offsets, records = zip(*entries, strict=True)
    rows = [packer.pack(record.key, record.value, record.headers) or b"" for record in records]
    value = encode_rows(dues_ms, offsets, [each.timestamp_ms for each in records], rows, packer.names)
    assert _outcome(NATIVE.decode_rows, value, names) == _outcome(decode_rows, value, names)
    again = NATIVE.decode_rows(value, _packer(packer.names))
    assert again is not None
    assert again.body == b"".join(rows)
    assert _is_known(value)


@given(_entries(_rare | _records), st.sampled_from(Placement))
def test_of_what_cannot_be_rows_there_are_none(entries: list[StoredEntry], placement: Placement) -> None:
    value = encode_segment(placement, entries)
    assert _outcome(NATIVE.decode_rows, value) == _outcome(decode_rows, value)


def test_as_many_headers_and_names_as_a_row_may_have_and_one_more() -> None:
    for count in (MAX_HEADERS, MAX_HEADERS + 1):
        alike, different = (
            encode_segment(Placement.INLINE, [(5, 1, Record(None, b"", [(name, b"") for name in names], 1))])
            for names in (["a"] * count, [str(number) for number in range(count)])
        )
        for value in (alike, different):
            found = _outcome(NATIVE.decode_rows, value)
            assert found == _outcome(decode_rows, value)
            assert (found[0] is not None) is _is_known(value) is (count == MAX_HEADERS)


def test_where_the_table_has_no_room_python_says_so() -> None:
    value = encode_segment(
        Placement.INLINE, [(5, number, Record(None, b"", [(name, b"")], 1)) for number, name in enumerate("abc")]
    )
    names = [str(number) for number in range(MAX_NAMES - 2)]
    found = _outcome(NATIVE.decode_rows, value, names)
    assert found == _outcome(decode_rows, value, names)
    assert found == (None, [*names, "a", "b"])
    assert not _is_known(value, _packer(names))


def test_a_name_that_is_not_used_or_there_twice() -> None:
    body = unwrap(Kind.SEGMENT, encode_segment(Placement.INLINE, [(5, 1, Record(None, b"", [("ab", b"")] * 2, 1))]))
    # Names are fields 8, and indexes fields 9. The two headers get the second name and the first, which are equal; the
    # third is not used.
    twice = body.replace(b"\x42\x02ab\x4a\x02\x00\x00", b"\x42\x02ab\x42\x02ab\x42\x02cd\x4a\x02\x01\x00")
    inner = len(body) - body.index(b"\x12") - 2
    twice = twice.replace(bytes([0x12, inner]), bytes([0x12, inner + 8]), 1)
    found = _outcome(NATIVE.decode_rows, wrap(Kind.SEGMENT, twice))
    assert found == _outcome(decode_rows, wrap(Kind.SEGMENT, twice))
    assert found[1] == ["ab"]


def test_one_offset_twice_is_the_same_error() -> None:
    value = encode_segment(Placement.INLINE, [(due_ms, due_ms, Record(None, b"", [], 1)) for due_ms in (1, 2, 3)])
    body = unwrap(Kind.SEGMENT, value).replace(b"\x12\x03\x02\x02\x02", b"\x12\x03\x02\x02\x01")
    found = _outcome(NATIVE.decode_rows, wrap(Kind.SEGMENT, body))
    assert found == ("segment has two entries of one offset", [])
    assert found == _outcome(decode_rows, wrap(Kind.SEGMENT, body))


@given(st.integers(0, 2**32), st.sampled_from(["joined", "encoded"]))
def test_a_damaged_body_is_taken_apart_alike_or_refused_alike(seed: int, made: str) -> None:
    value = wrap(Kind.SEGMENT, damaged(seed, rows=made == "joined"))
    assert _outcome(NATIVE.decode_rows, value) == _outcome(decode_rows, value)


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.glob("*.bin")))
def test_whatever_was_ever_stored_is_taken_apart_alike_or_refused_alike(name: str) -> None:
    value = (GOLDEN / name).read_bytes()
    assert _outcome(NATIVE.decode_rows, value) == _outcome(decode_rows, value)
