"""Record batches (magic 2) with any content, and batches read back from a log.

https://kafka.apache.org/documentation/#recordbatch
"""

import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tests.wire import codecs
from tests.wire.numbers import crc32c, read_varint, varint

WireHeader = tuple[bytes, bytes | None]

APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
_CODEC: Final = 0x07

_HEAD = struct.Struct(">qiibI")
_BODY = struct.Struct(">hiqqqhii")


@dataclass(frozen=True, slots=True)
class WireRecord:
    """One record; if given, ``raw_headers`` replaces the count and all headers of ``headers``."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[WireHeader] = ()
    timestamp_delta: int = 0
    attributes: int = 0
    raw_headers: bytes | None = None
    offset_delta: int | None = None

    def encode(self, offset_delta: int) -> bytes:
        """Encode the record with its length in front of it."""
        offset_delta = offset_delta if self.offset_delta is None else self.offset_delta
        headers = encode_headers(self.headers) if self.raw_headers is None else self.raw_headers
        body = b"".join(
            [
                struct.pack(">b", self.attributes),
                varint(self.timestamp_delta),
                varint(offset_delta),
                _nullable(self.key),
                _nullable(self.value),
                headers,
            ]
        )
        return varint(len(body)) + body


@dataclass(frozen=True, slots=True)
class WireBatch:
    """A batch of records; omitted fields get the values of a correct batch.

    ``base_ms`` is the timestamp that the records count from. It defaults to now: records older than the retention of
    their topic may be gone at once. ``flags`` are the bits of the attributes beside the codec. ``content`` replaces all
    encoded records by bytes that are written as they are, compressed or not.
    """

    records: Sequence[WireRecord] = ()
    codec: int = codecs.NONE
    flags: int = 0
    base_ms: int | None = None
    max_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    base_offset: int = 0
    magic: int = 2
    count: int | None = None
    last_offset_delta: int | None = None
    content: bytes | None = None
    crc: int | None = None

    def encode(self) -> bytes:
        """Encode the batch, checksum included."""
        content = self.content
        if content is None:
            plain = b"".join(record.encode(number) for number, record in enumerate(self.records))
            content = codecs.compress(self.codec, plain)
        count = len(self.records) if self.count is None else self.count
        base_ms = time.time_ns() // 1_000_000 if self.base_ms is None else self.base_ms
        last_ms = base_ms + max((record.timestamp_delta for record in self.records), default=0)
        body = (
            _BODY.pack(
                self.codec | self.flags,
                count - 1 if self.last_offset_delta is None else self.last_offset_delta,
                base_ms,
                last_ms if self.max_ms is None else self.max_ms,
                self.producer_id,
                self.producer_epoch,
                self.base_sequence,
                count,
            )
            + content
        )
        crc = crc32c(body) if self.crc is None else self.crc
        return _HEAD.pack(self.base_offset, _HEAD.size - 12 + len(body), 0, self.magic, crc) + body


def encode_headers(headers: Sequence[WireHeader]) -> bytes:
    """Encode count and headers, as a record has them at its end."""
    parts = [varint(len(headers))]
    for name, content in headers:
        parts += varint(len(name)), name, _nullable(content)
    return b"".join(parts)


def decode_headers(raw: bytes) -> list[WireHeader]:
    """Decode the output of ``encode_headers``; AssertionError when bytes follow it."""
    headers, at = _read_headers(raw, 0)
    assert at == len(raw), f"{len(raw) - at} bytes behind the headers"
    return headers


class StoredBatch(NamedTuple):
    """A batch of a log; ``content`` is still compressed."""

    base_offset: int
    last_offset: int
    attributes: int
    base_ms: int
    max_ms: int
    producer_id: int
    producer_epoch: int
    records_count: int
    content: bytes

    @property
    def is_control(self) -> bool:
        """Holds the end of a transaction, and no records."""
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        """Was written in a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    def records(self) -> Iterator[tuple[int, WireRecord, int]]:
        """Yield each record with its offset and its timestamp."""
        plain, at = codecs.decompress(self.attributes & _CODEC, self.content), 0
        for _ in range(self.records_count):
            size, at = read_varint(plain, at)
            record = _read_record(plain[at : at + size])
            at += size
            at_ms = self.max_ms if self.attributes & APPEND_TIME else self.base_ms + record.timestamp_delta
            yield self.base_offset + (record.offset_delta or 0), record, at_ms


def decode_batches(content: bytes) -> Iterator[StoredBatch]:
    """Yield the whole batches of a fetch; the last one may be cut off, and is left out then."""
    at = 0
    while at + 12 <= len(content):
        base_offset, size = struct.unpack_from(">qi", content, at)
        if at + 12 + size > len(content):
            return
        attributes, last_delta, base_ms, max_ms, producer_id, epoch, _, count = _BODY.unpack_from(
            content, at + _HEAD.size
        )
        body = content[at + _HEAD.size + _BODY.size : at + 12 + size]
        yield StoredBatch(
            base_offset, base_offset + last_delta, attributes, base_ms, max_ms, producer_id, epoch, count, body
        )
        at += 12 + size


def _nullable(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def _read_record(raw: bytes) -> WireRecord:
    timestamp_delta, at = read_varint(raw, 1)
    offset_delta, at = read_varint(raw, at)
    key, at = _read_nullable(raw, at)
    value, at = _read_nullable(raw, at)
    headers, end = _read_headers(raw, at)
    assert end == len(raw), f"{len(raw) - end} bytes behind the headers"
    attributes = struct.unpack_from(">b", raw)[0]
    return WireRecord(key, value, tuple(headers), timestamp_delta, attributes, raw[at:], offset_delta)


def _read_headers(raw: bytes, at: int) -> tuple[list[WireHeader], int]:
    count, at = read_varint(raw, at)
    headers: list[WireHeader] = []
    for _ in range(count):
        size, at = read_varint(raw, at)
        name, at = raw[at : at + size], at + size
        content, at = _read_nullable(raw, at)
        headers.append((name, content))
    return headers, at


def _read_nullable(raw: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(raw, at)
    return (None, at) if size < 0 else (raw[at : at + size], at + size)
