"""Rows that the kernel joins are the segment that Python makes of them, byte for byte; or it leaves them to Python."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import FormatError
from snapshots.codec import PYTHON_CODEC
from snapshots.envelope import MAX_BODY_BYTES
from snapshots.rows import RowPacker
from snapshots.segment import MAX_ENTRIES
from tests.support.kernel import native_kernel

NATIVE = native_kernel().codec

from sidecar.kernel import _rows  # noqa: E402 -- only where it is compiled

_numbers = st.sampled_from([0, 1, 127, 128, 2**31, 2**62, 2**63 - 1]) | st.integers(0, 2**63 - 1)
_names = st.sampled_from(["deliver-at", "trace", "", "\N{SNOWMAN}"])
_headers = st.lists(st.tuples(_names, st.binary(max_size=9)), max_size=4)
_row = st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=300), _headers)

Arguments = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[bytes], Sequence[str]]


@st.composite
def _joinable(draw: st.DrawFn) -> Arguments:
    offsets = draw(st.lists(_numbers, min_size=1, max_size=9, unique=True))
    count = len(offsets)
    dues_ms = draw(st.lists(_numbers, min_size=count, max_size=count))
    if draw(st.booleans()):
        dues_ms = dues_ms[:1] * count
    places = sorted(zip(dues_ms, offsets, strict=True))
    packer = RowPacker()
    rows = [packer.pack(*draw(_row)) or b"" for _ in range(count)]
    timestamps_ms = draw(st.lists(_numbers, min_size=count, max_size=count))
    due, at = zip(*places, strict=True)
    return due, at, timestamps_ms, rows, packer.names


def _outcome(encode: Callable[..., bytes], arguments: Arguments) -> bytes | str:
    try:
        return encode(*arguments)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is to be the same
        return repr(error)


@given(_joinable())
def test_it_joins_rows_as_python_does(arguments: Arguments) -> None:
    assert NATIVE.encode_rows(*arguments) == PYTHON_CODEC.encode_rows(*arguments)
    assert _rows.join(*arguments) is not None


@pytest.mark.parametrize("keys", [[b"k", None], [None, b"k"], [None, None], [b"k", b"k"], [None, b"k"] * 40])
def test_it_tells_which_rows_have_a_key(keys: list[bytes | None]) -> None:
    packer, numbers = RowPacker(), range(len(keys))
    arguments = numbers, numbers, numbers, [packer.pack(key, b"v", []) or b"" for key in keys], packer.names
    found = NATIVE.encode_rows(*arguments)
    assert found == PYTHON_CODEC.encode_rows(*arguments)
    assert [record.key for record in NATIVE.decode_columns(found).records if record] == keys


_ROW = RowPacker().pack(b"k", b"v", []) or b""
_ODD: Any = (7, "text", None, True, bytearray(b"x"), 2**63, -1, b"")
_WRONG: dict[str, Any] = {
    "none": ([], [], [], [], []),
    "too many": (*[range(MAX_ENTRIES + 1)] * 3, [_ROW] * (MAX_ENTRIES + 1), []),
    "in no order": ([2, 1], [1, 2], [0, 0], [_ROW] * 2, []),
    "in no order of offsets": ([1, 1], [2, 1], [0, 0], [_ROW] * 2, []),
    "an offset twice": ([1, 2], [1, 1], [0, 0], [_ROW] * 2, []),
    "a time before all": ([-1], [1], [0], [_ROW], []),
    "a negative offset": ([1], [-1], [0], [_ROW], []),
    "an offset beyond all": ([1], [2**63], [0], [_ROW], []),
    "a time beyond all": ([2**64], [1], [0], [_ROW], []),
    "fewer offsets": ([1, 2], [1], [0, 0], [_ROW] * 2, []),
    "more offsets": ([1], [1, 2], [0], [_ROW], []),
    "an empty row": ([1], [1], [0], [b""], []),
    "a row too long": ([1], [1], [0], [bytes(MAX_BODY_BYTES + 1)], []),
    "a name that is no text": ([1], [1], [0], [_ROW], ["\ud800"]),
}


@pytest.mark.parametrize("what", _WRONG)
def test_what_is_wrong_is_the_same_error(what: str) -> None:
    found = _outcome(NATIVE.encode_rows, _WRONG[what])
    assert isinstance(found, str)
    assert found == _outcome(PYTHON_CODEC.encode_rows, _WRONG[what])


def test_a_timestamp_before_1970_python_joins() -> None:
    arguments = [1], [1], [-5], [_ROW], ()
    assert NATIVE.encode_rows(*arguments) == PYTHON_CODEC.encode_rows(*arguments)
    assert _rows.join(*arguments) is None


@given(st.integers(0, 3), st.integers(0, 1), st.sampled_from(_ODD))
def test_whatever_is_given_is_joined_or_refused_as_by_python(column: int, place: int, odd: Any) -> None:
    columns: list[Any] = [[1, 2], [1, 2], [1, 2], [_ROW, _ROW]]
    columns[column][place] = odd
    columns.append([])
    if _rows.join(*columns) is not None:
        assert NATIVE.encode_rows(*columns) == PYTHON_CODEC.encode_rows(*columns)


def test_a_segment_may_be_as_long_as_an_envelope_holds() -> None:
    row = RowPacker().pack(None, bytes(MAX_BODY_BYTES - 60), []) or b""
    assert NATIVE.encode_rows([1], [1], [0], [row], []) == PYTHON_CODEC.encode_rows([1], [1], [0], [row], [])
    with pytest.raises(FormatError, match="over the cap"):
        NATIVE.encode_rows([1], [1], [0], [row + bytes(60)], [])
