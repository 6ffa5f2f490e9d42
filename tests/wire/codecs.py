"""The codecs of record batches, by their numbers in the attributes of a batch."""

import gzip
from typing import Final

import pyarrow as pa

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

_LZ4_FRAME: Final = bytes.fromhex("04224d18604082")
"""Magic, descriptor (independent blocks of at most 64 kB), and its checksum. pyarrow makes dependent blocks, which no
Java client reads.
"""
_LZ4_BLOCK: Final = 65_536
_LZ4_STORED: Final = 0x8000_0000
_XERIAL: Final = b"\x82SNAPPY\0"


def compress(codec: int, content: bytes) -> bytes:
    """Compress as Java's producer does."""
    match codec:
        case 1:
            return gzip.compress(content, 6)
        case 2:
            block: bytes = _codec("snappy").compress(content, asbytes=True)
            return _XERIAL + (1).to_bytes(4) + (1).to_bytes(4) + len(block).to_bytes(4) + block
        case 3:
            blocks = [content[at : at + _LZ4_BLOCK] for at in range(0, len(content), _LZ4_BLOCK)]
            return _LZ4_FRAME + b"".join(map(_lz4_block, blocks)) + bytes(4)
        case 4:
            return bytes(_codec("zstd").compress(content, asbytes=True))
        case _:
            return content


def decompress(codec: int, content: bytes) -> bytes:
    """Decompress the output of ``compress``, of a broker, and of librdkafka."""
    match codec:
        case 0:
            return content
        case 1:
            return gzip.decompress(content)
        case 2:
            return _snappy(content)
        case _:
            with pa.input_stream(pa.py_buffer(content), compression={3: "lz4", 4: "zstd"}[codec]) as stream:
                return bytes(stream.read())


def _lz4_block(plain: bytes) -> bytes:
    block = _codec("lz4_raw").compress(plain, asbytes=True)
    if len(block) < len(plain):
        return len(block).to_bytes(4, "little") + bytes(block)
    return (len(plain) | _LZ4_STORED).to_bytes(4, "little") + plain


def _snappy(content: bytes) -> bytes:
    if not content.startswith(_XERIAL):
        return _unsnapped(content)
    at, found = len(_XERIAL) + 8, []
    while at < len(content):
        size = int.from_bytes(content[at : at + 4])
        found.append(_unsnapped(content[at + 4 : at + 4 + size]))
        at += 4 + size
    return b"".join(found)


def _unsnapped(block: bytes) -> bytes:
    size = shift = 0
    for byte in block:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return bytes(_codec("snappy").decompress(block, size, asbytes=True))


def _codec(name: str) -> pa.Codec:
    return pa.Codec(name)
