"""Rows that the kernel joins: the same segment as Python's, byte for byte, or left to Python."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.errors import FormatError
from snapshots.envelope import MAX_BODY_BYTES
from snapshots.segments.codec import PYTHON_CODEC
from snapshots.segments.rows import RowPacker
from snapshots.segments.segment import MAX_ENTRIES
from tests.support.kernel import native_kernel

NATIVE = native_kernel().codec

from sidecar.kernel import _rows  # noqa: E402 -- only where it is compiled

_numbers = st.sampled_from([0, 1, 127, 128, 2**31, 2**62, 2**63 - 1]) | st.integers(0, 2**63 - 1)
_names = st.sampled_from(["deliver-at", "trace", "", "\N{SNOWMAN}"])
_headers = st.lists(st.tuples(_names, st.binary(max_size=9)), max_size=4)
_row = st.tuples(st.none() | st.binary(max_size=9), st.binary(max_size=300), _headers)

Arguments = tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int], bytes, Sequence[str]]


def _arrays(
    dues_ms: Sequence[int],
    offsets: Sequence[int],
    timestamps_ms: Sequence[int],
    rows: Sequence[bytes],
    names: Sequence[str] = (),
    kind_of_offsets: str = "Q",
) -> Arguments:
    """Return the arrays in the router's types; a job has signed offsets."""
    numbers = array("q", dues_ms), array(kind_of_offsets, offsets), array("q", timestamps_ms)
    return (*numbers, array("i", map(len, rows)), b"".join(rows), names)


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
    return _arrays(due, at, timestamps_ms, rows, packer.names, draw(st.sampled_from("qQ")))


def _outcome(encode: Callable[..., bytes], arguments: Arguments) -> bytes | str:
    try:
        return encode(*arguments)
    except Exception as error:  # noqa: BLE001 -- both must raise the same error
        return repr(error)


@given(_joinable())
def test_it_joins_rows_as_python_does(arguments: Arguments) -> None:
    assert NATIVE.encode_body(*arguments) == PYTHON_CODEC.encode_body(*arguments)
    assert _rows.join(*arguments) is not None


@pytest.mark.parametrize("keys", [[b"k", None], [None, b"k"], [None, None], [b"k", b"k"], [None, b"k"] * 40])
def test_it_tells_which_rows_have_a_key(keys: list[bytes | None]) -> None:
    packer, numbers = RowPacker(), range(len(keys))
    arguments = _arrays(numbers, numbers, numbers, [packer.pack(key, b"v", []) or b"" for key in keys], packer.names)
    found = NATIVE.encode_body(*arguments)
    assert found == PYTHON_CODEC.encode_body(*arguments)
    assert [record.key for record in NATIVE.decode_columns(found).records if record] == keys


_ROW = RowPacker().pack(b"k", b"v", []) or b""
_ODD: Any = (7, "text", None, True, b"x", [2**63, 1], [-1, 1], (1, 2), array("i", [1, 2]), array("q", [1]), range(2))
_MANY = range(MAX_ENTRIES + 1)
_WRONG: dict[str, Any] = {
    "none": _arrays([], [], [], []),
    "too many": _arrays(_MANY, _MANY, _MANY, [_ROW] * len(_MANY)),
    "in no order": _arrays([2, 1], [1, 2], [0, 0], [_ROW] * 2),
    "in no order of offsets": _arrays([1, 1], [2, 1], [0, 0], [_ROW] * 2),
    "an offset twice": _arrays([1, 2], [1, 1], [0, 0], [_ROW] * 2),
    "the last offset twice": _arrays([1, 2, 3], [2**63 - 1, 7, 2**63 - 1], [0] * 3, [_ROW] * 3),
    "a time before all": _arrays([-1], [1], [0], [_ROW]),
    "a negative offset": _arrays([1], [-1], [0], [_ROW], kind_of_offsets="q"),
    "an offset beyond all": _arrays([1], [2**63], [0], [_ROW]),
    "a time beyond all": ([2**64], [1], [0], [len(_ROW)], _ROW, []),
    "fewer offsets": _arrays([1, 2], [1], [0, 0], [_ROW] * 2),
    "more offsets": _arrays([1], [1, 2], [0], [_ROW]),
    "fewer timestamps": _arrays([1, 2], [1, 2], [0], [_ROW] * 2),
    "fewer rows": _arrays([1, 2], [1, 2], [0, 0], [_ROW]),
    "an empty row": _arrays([1, 2], [1, 2], [0, 0], [_ROW, b""]),
    "rows longer than all": (*_arrays([1], [1], [0], [_ROW])[:4], _ROW[:-1], []),
    "rows shorter than all": (*_arrays([1], [1], [0], [_ROW])[:4], _ROW + b"x", []),
    "a row that is less than none": (*_arrays([1, 2], [1, 2], [0, 0], [])[:3], array("i", [9, -2]), bytes(7), []),
    "a row too long": _arrays([1], [1], [0], [bytes(MAX_BODY_BYTES + 1)]),
    "a name that is no text": _arrays([1], [1], [0], [_ROW], ["\ud800"]),
}


@pytest.mark.parametrize("what", _WRONG)
def test_what_is_wrong_is_the_same_error(what: str) -> None:
    found = _outcome(NATIVE.encode_body, _WRONG[what])
    assert isinstance(found, str)
    assert found == _outcome(PYTHON_CODEC.encode_body, _WRONG[what])


def test_a_timestamp_before_1970_python_joins() -> None:
    arguments = _arrays([1], [1], [-5], [_ROW])
    assert NATIVE.encode_body(*arguments) == PYTHON_CODEC.encode_body(*arguments)
    assert _rows.join(*arguments) is None


def test_what_is_no_array_python_joins() -> None:
    arguments: Arguments = [1], [1], [5], [len(_ROW)], _ROW, []
    assert NATIVE.encode_body(*arguments) == PYTHON_CODEC.encode_body(*arguments)
    assert _rows.join(*arguments) is None


def test_whatever_offsets_are_they_are_told_apart() -> None:
    """The offsets fall into the same slots of the table, and exceed its first size."""
    for step in (1, 1 << 20, 1 << 44, 7 << 30):
        offsets = [step * number for number in range(3_000)]
        arguments = _arrays(range(3_000), offsets, [0] * 3_000, [_ROW] * 3_000)
        assert _rows.join(*arguments) is not None
        twice = [*offsets[:-1], offsets[1_500]]
        assert _rows.join(*_arrays(range(3_000), twice, [0] * 3_000, [_ROW] * 3_000)) is None


@given(st.integers(0, 4), st.sampled_from(_ODD))
def test_whatever_is_given_is_joined_or_refused_as_by_python(column: int, odd: Any) -> None:
    columns: list[Any] = [*_arrays([1, 2], [1, 2], [1, 2], [_ROW, _ROW])]
    columns[column] = odd
    if _rows.join(*columns) is not None:
        assert NATIVE.encode_body(*columns) == PYTHON_CODEC.encode_body(*columns)


def test_a_segment_may_be_as_long_as_an_envelope_holds() -> None:
    row = RowPacker().pack(None, bytes(MAX_BODY_BYTES - 60), []) or b""
    arguments = _arrays([1], [1], [0], [row])
    assert NATIVE.encode_body(*arguments) == PYTHON_CODEC.encode_body(*arguments)
    with pytest.raises(FormatError, match="over the cap"):
        NATIVE.encode_body(*_arrays([1], [1], [0], [row + bytes(60)]))
