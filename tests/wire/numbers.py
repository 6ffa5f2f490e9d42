"""Varints and the checksum of record batches."""

from typing import Final

_POLYNOMIAL: Final = 0x82F63B78
_CONTINUES: Final = 0x80


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE: Final = _table()


def crc32c(content: bytes) -> int:
    """Compute the Castagnoli checksum, byte by byte: a second for 15 MB."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in content:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def varint(number: int) -> bytes:
    """Encode a signed number as records have it: zigzag, seven bits a byte, the low ones first."""
    return unsigned(number << 1 if number >= 0 else (-number << 1) - 1)


def unsigned(number: int) -> bytes:
    """Encode an unsigned number, seven bits a byte, the low ones first."""
    encoded = bytearray()
    while number >= _CONTINUES:
        encoded.append(number & (_CONTINUES - 1) | _CONTINUES)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def padded(number: int, size: int) -> bytes:
    """Encode a number as ``varint`` does, in more bytes than it needs."""
    encoded = bytearray(varint(number))
    while len(encoded) < size:
        encoded[-1] |= _CONTINUES
        encoded.append(0)
    return bytes(encoded)


def read_varint(content: bytes, at: int) -> tuple[int, int]:
    """Read a signed number; return it and where it ends."""
    zigzag = shift = 0
    while True:
        byte = content[at]
        at += 1
        zigzag |= (byte & (_CONTINUES - 1)) << shift
        if byte < _CONTINUES:
            return zigzag >> 1 ^ -(zigzag & 1), at
        shift += 7
