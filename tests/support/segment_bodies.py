"""Decodes bodies of segments with some bytes exchanged, left out or added: ``segment_bodies.py SEED COUNT``.

It prints how many the kernel has decoded, and how many it has left to Python.
"""

import random
import sys

from index.buckets.bucket import Placement
from index.protocol.record import Record
from snapshots.envelope import Kind, unwrap
from snapshots.segments.rows import RowPacker, encode_rows
from snapshots.segments.segment import encode_segment

_BYTES = (0x00, 0x01, 0x7F, 0x80, 0xFF)


def _body(dice: random.Random, *, rows: bool) -> bytes:
    count = dice.randrange(1, 12)
    dues_ms, offsets = list(range(100, 100 + count)), dice.sample(range(1_000), count)
    records = [
        Record(dice.choice([None, b"key"]), dice.randbytes(dice.randrange(9)), [("a", b"1")] * dice.randrange(3), 7)
        for _ in range(count)
    ]
    if not rows:
        entries = list(zip(dues_ms, offsets, records, strict=True))
        return unwrap(Kind.SEGMENT, encode_segment(Placement.INLINE, entries))
    packer = RowPacker()
    packed = [packer.pack(record.key, record.value, record.headers) or b"" for record in records]
    return unwrap(Kind.SEGMENT, encode_rows(dues_ms, offsets, [7] * count, packed, packer.names))


def damaged(seed: int, *, rows: bool) -> bytes:
    """Return a segment of a few records, in whose body up to three things are wrong."""
    dice = random.Random(seed)
    body = bytearray(_body(dice, rows=rows))
    for _ in range(dice.randrange(4)):
        place = dice.randrange(len(body) + 1)
        kind = dice.randrange(4)
        if kind == 0:
            del body[place : place + dice.randrange(1, 4)]
        elif kind == 1:
            body[place:place] = bytes(dice.choices(_BYTES, k=dice.randrange(1, 12)))
        elif kind == 2:
            del body[place:]
        elif place < len(body):
            body[place] = dice.choice([*_BYTES, dice.randrange(256), body[place] ^ 1 << dice.randrange(8)])
    return bytes(body)


def main(seed: int, count: int) -> None:
    """Decode so many bodies."""
    from sidecar.kernel import _segments  # noqa: PLC0415 -- other functions serve without it

    bodies = [damaged(seed + each, rows=each % 2 == 0) for each in range(count)]
    decoded = sum(_segments.decode(body, Record) is not None for body in bodies)
    rows = sum(_segments.rows(body, RowPacker()) is not None for body in bodies)
    sys.stdout.write(f"decoded {decoded} left {count - decoded}; rows of {rows}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
