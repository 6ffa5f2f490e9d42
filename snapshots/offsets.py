"""Sets of offsets as 64-bit roaring bitmaps.

Offsets are stored as they are, in the portable format. 32 bits relative to a base would save 12 bytes per segment, and
a merged bucket of a long delay can span more than 2^32 offsets: 5 days at 10,000 records/s.

A bitmap of 30 bytes can claim 65,536 members, so the number of members is compared with the declared one before any
member is looked at. The library checks structure, but it ignores bytes behind a bitmap and knows no checksum: the
bitmap that was read must serialise to the very same bytes.
"""

from collections.abc import Iterable

from pyroaring import BitMap64

from index.errors import FormatError

MAX_OFFSET = 2**63 - 1


def encode_offsets(offsets: Iterable[int]) -> bytes:
    """Serialise a set of offsets, 0 .. 2^63 - 1."""
    bitmap = BitMap64(offsets)
    bitmap.run_optimize()
    return bitmap.serialize()


def decode_offsets(stored: bytes, count: int) -> list[int]:
    """Return the members of ``decode_bitmap`` as a list in ascending order.

    >>> stored = encode_offsets([30, 10, 20])
    >>> decode_offsets(stored, 3)
    [10, 20, 30]
    """
    return decode_bitmap(stored, count).to_array().tolist()


def decode_bitmap(stored: bytes, count: int) -> BitMap64:
    """Decode the ``count`` offsets of a stored set; FormatError when it is anything else.

    >>> decode_bitmap(encode_offsets([30, 10, 20]), 4)
    Traceback (most recent call last):
    ...
    index.errors.FormatError: bitmap of 3 offsets, where 4 are declared
    """
    try:
        bitmap = BitMap64.deserialize(stored)
    except (ValueError, IndexError) as error:  # IndexError: no bytes at all
        raise FormatError(f"bitmap of offsets: {error}") from error
    members = len(bitmap)
    if members != count:
        raise FormatError(f"bitmap of {members} offsets, where {count} are declared")
    if bitmap.serialize() != stored:
        raise FormatError("bitmap of offsets is in a form that no router writes: read and written again, it differs")
    if members and bitmap.max() > MAX_OFFSET:
        raise FormatError(f"bitmap holds {bitmap.max()}, which is no offset")
    return bitmap
