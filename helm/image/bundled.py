"""Which C libraries a wheel's library carries within itself, and their versions.

Updates of the distribution do not reach them, so whoever looks for known weaknesses has to know of them. The versions
are not in any metadata: they are asked of the code itself. Its functions are local to the library, so their addresses
come from its symbol table and are called from there.
"""

import ctypes
import re
import struct
from pathlib import Path
from typing import Final, NamedTuple

_SECTION_OFFSET: Final = 0x28
_SECTION_COUNTS: Final = 0x3A
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE: Final = 2
_FUNCTION: Final = 2
_ELF_64_LITTLE: Final = b"\x7fELF\x02\x01"

_ANCHOR: Final = "rd_kafka_version_str"
"""Exported by librdkafka, so its address is known twice: in the file and in memory."""

_ASKED: Final = {
    "librdkafka": (_ANCHOR, ()),
    "openssl": ("OpenSSL_version", (0,)),
    "zlib": ("zlibVersion", ()),
    "zstd": ("ZSTD_versionString", ()),
    "lz4": ("LZ4_versionString", ()),
    "cjson": ("cJSON_Version", ()),
}
"""Library -> function that returns its version as text, and its arguments."""

_NAMED: Final = {"curl": "curl_easy_init", "cyrus-sasl": "sasl_client_init", "snappy": "rd_kafka_snappy_compress_iov"}
"""Library -> a function that shows it is there; its version cannot be asked."""


class Bundled(NamedTuple):
    """A library within a library; no version where it does not tell."""

    name: str
    version: str


def in_librdkafka(file: Path) -> list[Bundled]:
    """Return librdkafka and the libraries in it, itself first; ValueError if its symbols cannot be read."""
    addresses = _functions(file.read_bytes())
    if _ANCHOR not in addresses:
        raise ValueError(f"{file}: has no symbol table with {_ANCHOR}, so nobody can tell what is in it")
    loaded = ctypes.CDLL(str(file))
    start = (ctypes.cast(loaded[_ANCHOR], ctypes.c_void_p).value or 0) - addresses[_ANCHOR]
    found = [
        Bundled(name, _ask(start + addresses[function], arguments))
        for name, (function, arguments) in _ASKED.items()
        if function in addresses
    ]
    return found + [Bundled(name, "") for name, function in _NAMED.items() if function in addresses]


def _ask(address: int, arguments: tuple[int, ...]) -> str:
    returns_text = ctypes.CFUNCTYPE(ctypes.c_char_p, *[ctypes.c_int for _ in arguments])
    answer = returns_text(address)(*arguments) or b""
    match = re.search(rb"[0-9]+(\.[0-9]+)+[a-z]?", answer)
    return match[0].decode() if match else ""


def _functions(elf: bytes) -> dict[str, int]:
    """Addresses of functions by name, relative to where the library is loaded."""
    if not elf.startswith(_ELF_64_LITTLE):
        raise ValueError("not a 64-bit little-endian ELF file")
    (offset,) = struct.unpack_from("<Q", elf, _SECTION_OFFSET)
    size, count = struct.unpack_from("<HH", elf, _SECTION_COUNTS)
    sections = [_SECTION.unpack_from(elf, offset + number * size) for number in range(count)]
    found = {}
    for _, kind, _, _, start, length, link, *_ in sections:
        if kind != _SYMBOL_TABLE:
            continue
        names = sections[link][4]
        for name, info, _, section, address, _ in _SYMBOL.iter_unpack(elf[start : start + length]):
            if section and info & 0xF == _FUNCTION:
                begin = names + name
                found[elf[begin : elf.index(b"\0", begin)].decode()] = address
    return found
