"""Segments that the kernel decodes: the same as Python decodes, or left to Python."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.buckets.bucket import Placement
from index.errors import FormatError
from index.protocol.record import Record
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.proto import segment_pb2
from snapshots.segments.rows import RowPacker, encode_rows
from snapshots.segments.segment import Columns, StoredEntry, decode_columns, encode_segment
from tests.support.kernel import native_kernel
from tests.support.segment_bodies import damaged

NATIVE = native_kernel().codec

from sidecar.kernel import _segments  # noqa: E402 -- only where it is compiled

_numbers = st.sampled_from([0, 1, 9, 2**31, 2**53, 2**62])
_names = st.sampled_from(["deliver-at", "trace", "", "a\0b", "\N{SNOWMAN}"])
_alike = st.just([("deliver-at", b"1"), ("trace", b"")])
_headers = _alike | st.lists(st.tuples(_names, st.none() | st.binary(max_size=9)), max_size=4)
_timestamps = st.sampled_from([-(2**63), 2**63 - 1, -1, 0]) | st.integers(-(2**63), 2**63 - 1)
_records = st.builds(
    Record, st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=300), _headers, _timestamps
)


@st.composite
def _entries(draw: st.DrawFn, records: st.SearchStrategy[Record | None] = _records) -> list[StoredEntry]:
    offsets = draw(st.lists(_numbers | st.integers(0, 2**63 - 1), min_size=1, max_size=8, unique=True))
    dues_ms = draw(st.lists(_numbers | st.integers(0, 2**63 - 1), min_size=len(offsets), max_size=len(offsets)))
    same = draw(st.booleans())
    places = sorted(zip(dues_ms[:1] * len(offsets) if same else dues_ms, offsets, strict=True))
    return [(due_ms, offset, draw(records)) for due_ms, offset in places]


def _outcome(decode: Callable[[bytes], Columns], value: bytes) -> Columns | str:
    try:
        return decode(value)
    except FormatError as error:
        return str(error)


def _known(value: bytes) -> bool:
    return _segments.decode(unwrap(Kind.SEGMENT, value), Record) is not None


@given(_entries())
def test_it_decodes_what_python_decodes(entries: list[StoredEntry]) -> None:
    value = encode_segment(Placement.INLINE, entries)
    assert NATIVE.decode_columns(value) == decode_columns(value)
    assert NATIVE.decode_columns(value).entries() == entries
    assert _known(value)


@given(_entries(st.builds(Record, st.none() | st.binary(max_size=9), st.binary(max_size=9), _alike, st.just(5))))
def test_it_decodes_segments_that_were_joined_of_rows(entries: list[StoredEntry]) -> None:
    packer = RowPacker()
    dues_ms, offsets, records = zip(*entries, strict=True)
    rows = [packer.pack(record.key, record.value, record.headers) or b"" for record in records]
    value = encode_rows(dues_ms, offsets, [5] * len(rows), rows, packer.names)
    found = NATIVE.decode_columns(value)
    assert found == decode_columns(value)
    assert found.names == ["deliver-at", "trace"]
    assert _known(value)


def test_what_it_makes_is_what_the_router_works_with() -> None:
    value = encode_segment(Placement.INLINE, [(5, 1, Record(b"k", None, [("a", None)], -1))])
    (record,) = NATIVE.decode_columns(value).records
    assert type(record) is Record
    assert record.headers == [("a", None)]


@given(_entries(st.none() | _records), st.sampled_from(Placement))
def test_what_it_does_not_know_python_decodes(entries: list[StoredEntry], placement: Placement) -> None:
    value = encode_segment(placement, entries)
    assert NATIVE.decode_columns(value) == decode_columns(value)
    if placement is Placement.POINTER or None in [record for _, _, record in entries]:
        assert not _known(value)


def _message(dues: Sequence[int] = (5, 0), offsets: Sequence[int] = (1, 1)) -> segment_pb2.Segment:
    message = segment_pb2.Segment(count=len(dues))
    inline = message.inline
    inline.due_deltas.extend(dues)
    inline.offset_deltas.extend(offsets)
    inline.timestamp_deltas.extend([0] * len(dues))
    inline.keys.present.extend([b"k"] * len(dues))
    inline.values.present.extend([b"v"] * len(dues))
    inline.header_counts.extend([1] * len(dues))
    inline.header_names.append("a")
    inline.header_indexes.extend([0] * len(dues))
    inline.header_values.present.extend([b"1"] * len(dues))
    return message


def _wrong(change: Callable[[segment_pb2.Segment], object]) -> bytes:
    message = _message()
    change(message)
    return message.SerializeToString()


_WRONG = {
    "no count": _wrong(lambda message: message.ClearField("count")),
    "another count": _wrong(lambda message: setattr(message, "count", 3)),
    "too large a count": _wrong(lambda message: setattr(message, "count", 65_537)),
    "no payload": _wrong(lambda message: message.ClearField("inline")),
    "a time less": _wrong(lambda message: message.inline.due_deltas.pop()),
    "an offset more": _wrong(lambda message: message.inline.offset_deltas.append(1)),
    "a timestamp less": _wrong(lambda message: message.inline.timestamp_deltas.pop()),
    "a key less": _wrong(lambda message: message.inline.keys.present.pop()),
    "a value more": _wrong(lambda message: message.inline.values.present.append(b"")),
    "no header counts": _wrong(lambda message: message.inline.ClearField("header_counts")),
    "more headers than values": _wrong(lambda message: message.inline.header_counts.__setitem__(0, 2)),
    "a header index less": _wrong(lambda message: message.inline.header_indexes.pop()),
    "a name beyond the table": _wrong(lambda message: message.inline.header_indexes.__setitem__(0, 1)),
    "runs that do not add up": _wrong(lambda message: message.inline.keys.runs.extend([1, 2**32 - 1])),
    "runs of more than there is": _wrong(lambda message: message.inline.values.runs.extend([0, 2])),
    "dues in no order": _message(offsets=(5, -1)).SerializeToString(),
    "one offset twice": _message(dues=(5, 5, 5), offsets=(1, 1, -1)).SerializeToString(),
    "a negative offset": _message(offsets=(-1, 5)).SerializeToString(),
    "an offset beyond all": _message(offsets=(2**63 - 1, 1)).SerializeToString(),
    "a time beyond all": _message(dues=(2**63, 0)).SerializeToString(),
    "times that add up to one beyond all": _message(dues=(2**63 - 1, 1)).SerializeToString(),
    "a name that is no text": _message().SerializeToString().replace(b"\x42\x01a", b"\x42\x01\xff"),
    "nothing": b"",
}


@pytest.mark.parametrize("what", _WRONG)
def test_what_is_wrong_is_the_same_error(what: str) -> None:
    body = _WRONG[what]
    value = wrap(Kind.SEGMENT, body)
    with pytest.raises(FormatError) as expected:
        decode_columns(value)
    with pytest.raises(FormatError) as found:
        NATIVE.decode_columns(value)
    assert str(found.value) == str(expected.value)
    assert _segments.decode(body, Record) is None


@pytest.mark.parametrize("value", [b"", b"KDR", wrap(Kind.MANIFEST, b""), wrap(Kind.SEGMENT, b"")[:-1]])
def test_what_is_no_segment_is_the_same_error(value: bytes) -> None:
    assert _outcome(NATIVE.decode_columns, value) == _outcome(decode_columns, value)


@pytest.mark.parametrize("field", [b"\x08\x02", b"\x12\x00", b"\xf8\x01\x01", b"\x7a\x01x", b"\x0b\x0c"])
def test_a_field_twice_or_one_of_another_version_is_for_python_to_judge(field: bytes) -> None:
    value = wrap(Kind.SEGMENT, _message().SerializeToString() + field)
    assert _outcome(NATIVE.decode_columns, value) == _outcome(decode_columns, value)
    assert not _known(value)


def test_numbers_may_be_written_longer_than_they_are() -> None:
    body = _message().SerializeToString()
    assert body.startswith(b"\x08\x02")
    value = wrap(Kind.SEGMENT, b"\x08\x82\x80\x00" + body[2:])
    assert NATIVE.decode_columns(value) == decode_columns(value)
    # Eleven bytes are no varint.
    value = wrap(Kind.SEGMENT, b"\x08\x82" + b"\x80" * 9 + b"\x00" + body[2:])
    assert _outcome(NATIVE.decode_columns, value) == _outcome(decode_columns, value)


@given(st.integers(0, 2**32), st.sampled_from(["joined", "encoded"]))
def test_a_damaged_body_is_decoded_alike_or_refused_alike(seed: int, made: str) -> None:
    value = wrap(Kind.SEGMENT, damaged(seed, rows=made == "joined"))
    assert _outcome(NATIVE.decode_columns, value) == _outcome(decode_columns, value)


def test_records_are_tuples() -> None:
    with pytest.raises(TypeError, match="records are tuples"):
        _segments.decode(b"", list)  # type: ignore[arg-type]
