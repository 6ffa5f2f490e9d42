"""Owed records: what is encoded comes back, in parts too, and damage is named."""

import pytest

from index.errors import FormatError
from index.record import Record
from snapshots.owed import MAX_PART_BYTES, Owed, decode_owed, encode_owed
from snapshots.state import fold_state
from tests.support.stored import golden

GOLDEN = Owed(
    "orders", 3, 4711, Record(b"order-17", b"", [("trace", b"\x00\xff"), ("trace", None)], 1_800_000_000_000), 41
)


def test_the_golden_file_is_read_and_written() -> None:
    assert decode_owed([(b"owed/orders/3/4711/0/1", golden("owed-v1.bin"))]) == (GOLDEN,)
    assert encode_owed(GOLDEN) == [(b"owed/orders/3/4711/0/1", golden("owed-v1.bin"))]


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
def test_null_is_not_empty(key: bytes | None, value: bytes | None) -> None:
    owed = Owed("a.b", 0, 1, Record(key, value, [("h", None), ("h", b"")], -1))
    assert decode_owed(encode_owed(owed)) == (owed,)


def test_a_large_record_is_in_parts() -> None:
    owed = Owed("orders", 0, 7, Record(None, bytes(2 * MAX_PART_BYTES), [], 5))
    parts = encode_owed(owed)
    assert max(len(value) for _, value in parts) < 900_000
    (found,) = decode_owed(reversed(parts))
    assert found == owed._replace(parts=3)
    assert found.keys == [key for key, _ in parts]
    with pytest.raises(FormatError, match=r"parts \[0, 2\] of 3"):
        decode_owed([parts[0], parts[2]])


def test_what_was_written_again_is_not_owed() -> None:
    (key, value), (other, _) = (encode_owed(Owed("t", 0, at, Record(None, b"v", [], 0)))[0] for at in (9, 10))
    assert [owed.offset for owed in decode_owed([(key, value), (other, value), (key, None)])] == [10]


def test_the_fold_of_the_state_leaves_it_out() -> None:
    assert fold_state([*encode_owed(GOLDEN), (b"owed/orders/3/4711/0/1", None)]) is None
    assert fold_state(encode_owed(GOLDEN)) is None


@pytest.mark.parametrize(
    "key", [b"owed/t/0/1/0", b"owed/t/0/1/0/1/2", b"owed/t/x/1/0/1", b"owed/t/0/" + b"9" * 80 + b"/0/1"]
)
def test_an_unknown_key_is_refused(key: bytes) -> None:
    with pytest.raises(FormatError, match="not known here"):
        decode_owed([(key, golden("owed-v1.bin"))])


def test_a_value_under_another_key_is_refused() -> None:
    with pytest.raises(FormatError, match="says that it belongs to orders/3"):
        decode_owed([(b"owed/other/3/4711/0/1", golden("owed-v1.bin"))])
