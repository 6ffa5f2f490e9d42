"""The mask in the state topic: a record for each container of 2^16 offsets with cancelled ones
(:mod:`index.named.mask`).

The key names the container, and the value is written whole whenever a bit of it changes. A container without a bit has
a tombstone, so an empty one is refused: nobody writes it.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from google.protobuf.message import DecodeError
from pyroaring import BitMap64, FrozenBitMap64

from index.errors import FormatError
from index.named.mask import CONTAINER_BITS, Mask
from snapshots.envelope import Kind, key_text, unwrap, wrap
from snapshots.offsets import MAX_OFFSET, decode_bitmap, encode_offsets
from snapshots.proto import state_pb2

MASK_PREFIX: Final = b"mask/"


def mask_key(number: int) -> bytes:
    """Key of one container."""
    return b"%b%020d" % (MASK_PREFIX, number)


def mask_records(mask: Mask) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield a record of the state topic for each changed container, a tombstone for an empty one."""
    for number, offsets in mask.changes():
        yield mask_key(number), _encoded(number, list(offsets)) if offsets else None


def decode_mask(stored: Iterable[tuple[bytes, bytes]]) -> FrozenBitMap64:
    """Decode the cancelled offsets of all containers of a partition; FormatError names the fault."""
    offsets = BitMap64()
    for key, value in stored:
        try:
            found = parse_mask(value)
        except FormatError as error:
            raise FormatError(f"record {key_text(key)} of the state topic: {error}") from error
        number = found.min() >> CONTAINER_BITS
        if key != mask_key(number):
            raise FormatError(f"record {key_text(key)} of the state topic holds container {number}")
        offsets |= found
    return FrozenBitMap64(offsets)


def parse_mask(stored: bytes) -> BitMap64:
    """Decode the cancelled offsets of one container, at least one; FormatError on anything else."""
    message = state_pb2.Mask()
    try:
        message.ParseFromString(unwrap(Kind.MASK, stored))
    except DecodeError as error:
        raise FormatError(str(error)) from error
    number = message.number
    if not 0 <= number <= MAX_OFFSET >> CONTAINER_BITS:
        raise FormatError(f"there is no container {number}")
    offsets = decode_bitmap(message.offsets, message.count)
    if not offsets or any(offset >> CONTAINER_BITS != number for offset in (offsets.min(), offsets.max())):
        raise FormatError(f"container {number} holds nothing, or offsets of another")
    return offsets


def _encoded(number: int, offsets: list[int]) -> bytes:
    message = state_pb2.Mask(number=number, count=len(offsets), offsets=encode_offsets(offsets))
    return wrap(Kind.MASK, message.SerializeToString())
