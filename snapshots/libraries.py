"""Whether the libraries that read stored bytes can be trusted with garbage; asked once, before anything is read.

A checksum finds damage, not malice: who may write to the state topic can compute it. So the bitmap library must refuse
bytes that are no bitmap (older versions do not look), and protobuf must be the compiled one: the one in Python is slow,
and its recursion once had no limit (CVE-2025-4565).
"""

from google.protobuf.internal import api_implementation
from pyroaring import BitMap64

from index.errors import ConfigError

# 64-bit portable format: how many high halves, the high half, then a 32-bit bitmap of one array container.
_TWO_MEMBERS = bytes.fromhex("0100000000000000 00000000 3a300000 01000000 0000 0100 10000000 0500 0a00")
_OUT_OF_ORDER = bytes.fromhex("0100000000000000 00000000 3a300000 01000000 0000 0100 10000000 0a00 0500")
_GARBAGE = (b"", b"\xff" * 64, bytes(7), _TWO_MEMBERS[:-1], _OUT_OF_ORDER)


def check_libraries() -> None:
    """Raise ConfigError unless both can be trusted; each program that reads stored bytes calls it at its start."""
    check_bitmap_library()
    check_protobuf_library()


def check_bitmap_library() -> None:
    """Raise ConfigError unless the installed pyroaring refuses garbage; to be called once, before anything is read."""
    if BitMap64.deserialize(_TWO_MEMBERS) != BitMap64([5, 10]):
        raise ConfigError("pyroaring reads a bitmap wrongly; install the version in requirements.lock")
    for garbage in _GARBAGE:
        try:
            BitMap64.deserialize(garbage)
        except (ValueError, IndexError):
            continue
        raise ConfigError(f"pyroaring takes {garbage.hex()!r} for a bitmap; install pyroaring >= 1.1")


def check_protobuf_library() -> None:
    """Raise ConfigError unless protobuf runs on upb, its compiled implementation."""
    implementation = api_implementation.Type()
    if implementation != "upb":
        raise ConfigError(
            f"protobuf runs on its {implementation!r} implementation; install a wheel of protobuf for this platform"
            " and leave PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION unset"
        )
