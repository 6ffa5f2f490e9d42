"""The envelope: damaged bytes come out whole or not at all.

Version 1 wrote the files in ``golden``. They are never written again: a new version adds files of its own.
"""

import pytest

from index.errors import FormatError
from snapshots.envelope import MAX_BODY_BYTES, Kind, unwrap, wrap
from tests.support.paths import GOLDEN

WHOLE = [("progress-v1.bin", Kind.PROGRESS), ("rules-v1.bin", Kind.RULES)]
HEADER_BYTES = 13


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        # CRC-32 of the six bytes between magic and checksum, and of the body.
        (b"", bytes.fromhex("4b4452 01 01 00000000 47fe5bb6")),
        (b"abc", bytes.fromhex("4b4452 01 01 00000003 e508374d") + b"abc"),
    ],
)
def test_exact_bytes(body: bytes, stored: bytes) -> None:
    assert wrap(Kind.PROGRESS, body) == stored
    assert unwrap(Kind.PROGRESS, stored) == body


@pytest.mark.parametrize(("name", "kind"), WHOLE)
def test_golden_files_are_whole(name: str, kind: Kind) -> None:
    stored = (GOLDEN / name).read_bytes()
    assert wrap(kind, unwrap(kind, stored)) == stored


@pytest.mark.parametrize(("name", "kind"), WHOLE)
def test_every_flipped_bit_is_found(name: str, kind: Kind) -> None:
    stored = (GOLDEN / name).read_bytes()
    for bit in range(len(stored) * 8):
        damaged = bytearray(stored)
        damaged[bit // 8] ^= 1 << bit % 8
        assert _is_refused(kind, bytes(damaged)), f"bit {bit} flipped"


@pytest.mark.parametrize(("name", "kind"), WHOLE)
def test_every_truncation_and_every_addition_is_found(name: str, kind: Kind) -> None:
    stored = (GOLDEN / name).read_bytes()
    for length in range(len(stored)):
        assert _is_refused(kind, stored[:length]), f"cut to {length} bytes"
        assert _is_refused(kind, stored[length + 1 :]), f"{length + 1} bytes cut off in front"
    for added in (b"\0", b"\xff", stored):
        assert _is_refused(kind, stored + added)


def _is_refused(kind: Kind, stored: bytes) -> bool:
    try:
        unwrap(kind, stored)
    except FormatError:
        return True
    return False


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (b"", "0 bytes are too few for an envelope of 13"),
        (b"KDR" + bytes(9), "12 bytes are too few"),
        (b"PK\x03\x04" + bytes(20), "not written by this router"),
        ((GOLDEN / "progress-v2-future.bin").read_bytes(), r"version 2 is not known here \(known: 1\); upgrade"),
        ((GOLDEN / "progress-v1-bit-flipped.bin").read_bytes(), "checksum does not match"),
        ((GOLDEN / "rules-v1.bin").read_bytes(), r"holds kind 2, not PROGRESS \(1\)"),
        ((GOLDEN / "rules-v1-truncated.bin").read_bytes(), "claims a body of 486 bytes and has 479"),
        ((GOLDEN / "progress-v1.bin").read_bytes() + b"\0", "claims a body of 42 bytes and has 43"),
    ],
)
def test_the_message_names_what_is_wrong(stored: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        unwrap(Kind.PROGRESS, stored)


def test_the_largest_body_and_one_byte_more() -> None:
    largest = bytes(MAX_BODY_BYTES)
    assert unwrap(Kind.RULES, wrap(Kind.RULES, largest)) == largest
    with pytest.raises(FormatError, match="RULES body of 1048577 bytes is over the cap of 1048576"):
        wrap(Kind.RULES, largest + b"\0")


def test_a_body_over_the_cap_is_refused_before_it_is_looked_at() -> None:
    claimed = (MAX_BODY_BYTES + 1).to_bytes(4, "big")
    stored = b"KDR\x01\x01" + claimed + bytes(4) + bytes(MAX_BODY_BYTES + 1)
    assert len(stored) == HEADER_BYTES + MAX_BODY_BYTES + 1
    with pytest.raises(FormatError, match="claims a body of 1048577 bytes"):
        unwrap(Kind.PROGRESS, stored)
