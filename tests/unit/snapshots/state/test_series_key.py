"""The copy of the key that signs occurrences: read back as it was written, or not at all."""

import pytest

from index.errors import FormatError
from snapshots.envelope import Kind, wrap
from snapshots.state.series_key import COPY_KEY, decode_copy, encode_copy


def test_it_comes_out_as_it_was_written() -> None:
    key, value = encode_copy(b"0123456789abcdef")
    assert (key, decode_copy(value)) == (COPY_KEY, b"0123456789abcdef")


@pytest.mark.parametrize("value", [b"", b"0123456789abcdef", wrap(Kind.SERIES_KEY, b""), wrap(Kind.IDS, b"0123")])
def test_what_is_none_is_not_trusted(value: bytes) -> None:
    with pytest.raises(FormatError):
        decode_copy(value)


def test_no_damaged_copy_is_trusted() -> None:
    _, value = encode_copy(b"0123456789abcdef")
    for bit in range(len(value) * 8):
        damaged = bytearray(value)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError):
            decode_copy(bytes(damaged))
