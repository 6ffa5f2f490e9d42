"""A copy of the key that signs occurrences, in the snapshots topic.

The key is part of the progress (:mod:`index.protocol.occurrences`). Without it all pending occurrences are taken for
forged, so a copy of it outlives the state topic. The snapshots topic is compacted, and its front is trimmed: the owner
of the partition writes the copy anew before it removes the one before.
"""

from typing import Final

from index.errors import FormatError
from snapshots.envelope import Kind, unwrap, wrap

COPY_KEY: Final = b"series-key"


def encode_copy(series_key: bytes) -> tuple[bytes, bytes]:
    """Return key and value of the copy."""
    return COPY_KEY, wrap(Kind.SERIES_KEY, series_key)


def decode_copy(value: bytes) -> bytes:
    """Return the key that a copy holds; FormatError when the copy cannot be trusted."""
    series_key = unwrap(Kind.SERIES_KEY, value)
    if not series_key:
        raise FormatError("the copy of the key that signs occurrences is empty")
    return series_key
