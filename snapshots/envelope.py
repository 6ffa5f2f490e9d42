"""The envelope around every stored value: nothing is parsed before its checksum holds.

::

     0        3    4    5        9        13                 13 + length
     ┌────────┬────┬────┬────────┬────────┬──────────────────┐
     │ "KDR"  │ v  │ k  │ length │ CRC-32 │ body (protobuf)  │   integers big-endian
     └────────┴────┴────┴────────┴────────┴──────────────────┘
       magic   │    │     bytes    of v, k, length and body
               │    └─ kind of record, see Kind
               └────── format version, 1 so far

An unknown version or kind is refused, never guessed at: a reader older than the writer must stop, not skip. The length
is checked before the checksum, so that trailing or missing bytes are named as such. CRC-32 is zlib's: it is in every
Python, and any flip of up to three bits and every burst of up to 32 is found.
"""

import struct
import zlib
from enum import IntEnum

from index.errors import FormatError

MAGIC = b"KDR"
VERSION = 1
MAX_BODY_BYTES = 1_048_576
"""No body is larger: a stored value is one Kafka record, and default limits hold it under 1 MiB."""

LONGEST_KEY = 300
"""No key of a router is longer: the longest has the name of a topic in it."""

KEY_SHOWN = 40

_HEADER = struct.Struct(">3sBBII")
_CHECKED = struct.Struct(">BBI")
_KIND_AT = 4


class Kind(IntEnum):
    """Type of the message in the body of an envelope."""

    PROGRESS = 1
    RULES = 2
    MANIFEST = 3
    SEGMENT = 4
    STAGED = 5
    INTENT = 6
    HELD = 7
    ENDING = 8
    MASK = 9
    TRANSIT = 10
    IDS = 11
    SERIES_KEY = 12
    PROGRESS_IN_LANE = 13
    QUERY = 14
    CLAIM = 15


def wrap(kind: Kind, body: bytes) -> bytes:
    """Put ``body`` into an envelope; FormatError when it is over the cap."""
    if len(body) > MAX_BODY_BYTES:
        raise FormatError(f"{kind.name} body of {len(body)} bytes is over the cap of {MAX_BODY_BYTES}")
    return _HEADER.pack(MAGIC, VERSION, kind, len(body), _checksum(VERSION, kind, body)) + body


def unwrap(expected: Kind, stored: bytes) -> bytes:
    """Return the body of a stored value of the expected kind; FormatError names the fault.

    >>> stored = wrap(Kind.PROGRESS, b"body")
    >>> unwrap(Kind.PROGRESS, stored)
    b'body'
    >>> unwrap(Kind.PROGRESS, stored[:-1] + b"Y")
    Traceback (most recent call last):
    ...
    index.errors.FormatError: checksum does not match: the value is damaged
    """
    if len(stored) < _HEADER.size:
        raise FormatError(f"{len(stored)} bytes are too few for an envelope of {_HEADER.size}")
    magic, version, kind, length, checksum = _HEADER.unpack_from(stored)
    if magic != MAGIC:
        raise FormatError(f"starts with {magic!r}, not {MAGIC!r}: not written by this router")
    if version != VERSION:
        raise FormatError(f"format version {version} is not known here (known: {VERSION}); upgrade the router")
    if length > MAX_BODY_BYTES or len(stored) != _HEADER.size + length:
        raise FormatError(f"claims a body of {length} bytes and has {len(stored) - _HEADER.size}")
    body = stored[_HEADER.size :]
    if _checksum(version, kind, body) != checksum:
        raise FormatError("checksum does not match: the value is damaged")
    if kind != expected:
        raise FormatError(f"holds kind {kind}, not {expected.name} ({expected.value})")
    return body


def kind_of(stored: bytes) -> Kind:
    """Return the kind that a stored value claims to be; :func:`unwrap` checks the rest."""
    for kind in Kind:
        if claims(stored, kind):
            return kind
    raise FormatError(
        f"{len(stored)} bytes that begin with {stored[:5]!r}: not written by this router, or by a newer one"
    )


def claims(stored: bytes, kind: Kind) -> bool:
    """Say whether a stored value claims to be of this kind."""
    return stored[_KIND_AT : _KIND_AT + 1] == bytes([kind])


def key_text(key: bytes | None) -> str:
    """Return a key as errors name it, and only the beginning of one that is longer than any key of a router.

    >>> key_text(b"held/4711/0")
    "'held/4711/0'"
    """
    if key is None:
        return "None"
    if len(key) > LONGEST_KEY:
        return f"{key_text(key[:KEY_SHOWN])}... of {len(key)} bytes"
    return repr(key.decode(errors="backslashreplace"))


def _checksum(version: int, kind: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_CHECKED.pack(version, kind, len(body))))
