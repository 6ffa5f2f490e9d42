"""Fields of requests and answers."""

import struct
from collections.abc import Sequence
from typing import Self

from tests.wire.numbers import unsigned

__all__ = ["Reading", "array", "compact_array", "compact_text", "text", "unsigned"]


def text(content: str | None) -> bytes:
    """Encode a nullable string."""
    if content is None:
        return struct.pack(">h", -1)
    raw = content.encode()
    return struct.pack(">h", len(raw)) + raw


def array(items: Sequence[bytes]) -> bytes:
    """Encode an array of encoded items."""
    return struct.pack(">i", len(items)) + b"".join(items)


def compact_text(content: str) -> bytes:
    """Encode a string of a flexible version."""
    raw = content.encode()
    return unsigned(len(raw) + 1) + raw


def compact_array(items: Sequence[bytes]) -> bytes:
    """Encode an array of a flexible version."""
    return unsigned(len(items) + 1) + b"".join(items)


class Reading:
    """An answer, read field by field."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def i16(self) -> int:
        """Read two bytes."""
        return self._number(">h", 2)

    def i32(self) -> int:
        """Read four bytes."""
        return self._number(">i", 4)

    def i64(self) -> int:
        """Read eight bytes."""
        return self._number(">q", 8)

    def unsigned(self) -> int:
        """Read a varint without a sign. Lengths of flexible versions are such: one more than the length, 0 for null."""
        number = shift = 0
        while True:
            byte = self._content[self._at]
            self._at += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
            shift += 7

    def text(self) -> str | None:
        """Read a nullable string."""
        size = self.i16()
        return None if size < 0 else self._bytes(size).decode()

    def compact_text(self) -> str:
        """Read a string of a flexible version."""
        return self._bytes(self.unsigned() - 1).decode()

    def blob(self) -> bytes:
        """Read nullable bytes; empty for null."""
        return self._bytes(max(self.i32(), 0))

    def skip_to_partition(self) -> Self:
        """Skip the head of an answer about one partition of one topic, its number included."""
        assert self.i32() == 1, "the answer is about other than one topic"
        self.text()
        assert self.i32() == 1, "the answer is about other than one partition"
        self.i32()
        return self

    def _number(self, layout: str, size: int) -> int:
        number: int = struct.unpack_from(layout, self._content, self._at)[0]
        self._at += size
        return number

    def _bytes(self, size: int) -> bytes:
        content = self._content[self._at : self._at + size]
        self._at += size
        return content
