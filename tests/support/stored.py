"""Stored values for tests: the contents of the golden files of segments and manifests, and ways to damage values."""

import random
from collections.abc import Callable
from dataclasses import replace

from index.buckets.bucket import DueMarks, Manifest, Placement, SegmentRef
from index.named.id_pages import IdPageRef
from index.named.places import HASH_BYTES
from index.pending.progress import Position
from index.protocol.record import Record
from snapshots.envelope import Kind, unwrap, wrap
from snapshots.segments.segment import StoredEntry
from tests.support.paths import GOLDEN

DUE_MS = 1_800_000_000_000

INLINE_ENTRIES: list[StoredEntry] = [
    (0, 4720, Record(None, b"at once", [], -1)),
    (
        DUE_MS,
        4711,
        Record(
            b"order-17",
            b'{"total": 3}',
            [("deliver-at", b"1800000000000"), ("trace", b"\x00\xff"), ("trace", None), ("trace", b"")],
            DUE_MS - 3_600_000,
        ),
    ),
    (DUE_MS, 4712, Record(None, None, [], DUE_MS - 3_599_990)),
    (DUE_MS + 7, 4407, None),
    (DUE_MS + 7, 4695, Record(b"", b"", [("übersetzt", b"ja"), ("deliver-at", b"1800000000007")], -(2**63))),
    (2**63 - 1, 2**63 - 1, Record(b"last", b"\xff" * 9, [("", None)], 2**63 - 1)),
]
POINTER_ENTRIES: list[StoredEntry] = [
    (0, 7_000_000_000, None),
    (DUE_MS, 4711, None),
    (DUE_MS + 1, 4712, None),
    (DUE_MS + 1, 5_000_000_017, None),
    *((DUE_MS + 2, offset, None) for offset in range(70_000, 70_100)),
    (2**63 - 1, 2**63 - 1, None),
]
MANIFEST = Manifest(
    bucket_id=42,
    from_offset=4000,
    to_offset=10_000,
    needs_from=4099,
    segments=(
        SegmentRef(Position(0, 4017), Position(DUE_MS + 299_998, 9210), 2048, 640_000, 9000, Placement.INLINE),
        SegmentRef(
            Position(DUE_MS + 299_998, 9999), Position(DUE_MS + 600_001, 4063), 1977, 610_000, 9001, Placement.INLINE
        ),
        SegmentRef(Position(DUE_MS + 600_001, 4099), Position(DUE_MS + 600_001, 4099), 1, 300, 8999, Placement.POINTER),
    ),
)

MARKED = replace(
    MANIFEST,
    segments=(
        MANIFEST.segments[0]._replace(dues=DueMarks(1024, (DUE_MS,))),
        MANIFEST.segments[1]._replace(dues=DueMarks(512, (DUE_MS + 300_000, DUE_MS + 300_000, DUE_MS + 600_001))),
        MANIFEST.segments[2],
    ),
)
"""The manifest with the due times of some entries, a later addition to version 1; those of the last segment are
unknown.
"""

NAMED = replace(
    MANIFEST,
    id_pages=(
        IdPageRef(b"\x03" * HASH_BYTES, 8_192, 262_180, 9_003),
        IdPageRef(b"\x7a" * HASH_BYTES, 3, 120, 9_004),
    ),
)
"""The manifest with pages of ids, a later addition to version 1."""


def golden(name: str) -> bytes:
    """Return the content of the golden file ``name``."""
    return (GOLDEN / name).read_bytes()


def flipped(stored: bytes, bit: int) -> bytes:
    """Return the value with one bit flipped."""
    damaged = bytearray(stored)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def forged(kind: Kind, stored: bytes, rng: random.Random) -> bytes:
    """Return the value with its body damaged in one to three places, under a correct checksum."""
    body = bytearray(unwrap(kind, stored))
    for _ in range(rng.randint(1, 3)):
        rng.choice(_DAMAGES)(body, rng)
    return wrap(kind, bytes(body))


def _flip(body: bytearray, rng: random.Random) -> None:
    if body:
        body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)


def _replace(body: bytearray, rng: random.Random) -> None:
    if body:
        body[rng.randrange(len(body))] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF))


def _cut(body: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(body) + 1)
    del body[start : start + rng.randint(1, 12)]


def _insert(body: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(body) + 1)
    body[at:at] = rng.randbytes(rng.randint(1, 12))


def _repeat(body: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(body) + 1)
    at = rng.randrange(len(body) + 1)
    body[at:at] = body[start : start + rng.randint(1, 40)]


_DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (_flip, _replace, _cut, _insert, _repeat)
