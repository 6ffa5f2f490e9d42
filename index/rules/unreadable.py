"""Headers that a client cannot hand over as they are, and the form in which a rejected record keeps every byte of them.

Kafka takes any bytes for a header's name, and any number of headers. A client may not. librdkafka, and clients built on
it, end a name at its first NUL, give up at a name that is no UTF-8, and give no headers at all where there are more
than 100,000. A Java client replaces bytes that are no UTF-8 with U+FFFD, so that the original name is lost. Such a
record is rejected with UNREADABLE, and the clients that read the rejected topic must not fail where this one did. So
the names that are text stay headers, in their order, and one more header, the last before ``delay-error``, holds all of
them as they came::

    delay-unreadable-headers   the record's headers in Kafka's own encoding (record format v2): a count, then for each
                               the length of its name, the name, the length of its value (-1: null), the value;
                               numbers are zigzag varints

:func:`decode_headers` reads it. Where there are more than ``MAX_HEADERS`` headers, no other header stays.

Rejected: writing the names as they came, through librdkafka's C interface. Such names would stop any reader of the
rejected topic with a client of that family in turn, and no client could read more than 100,000 headers.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

from index.protocol.headers import Headers, quoted
from index.protocol.record import Record
from index.protocol.schedule import Decision, Reason, Rejection
from index.rules.rules import Rules

DELAY_UNREADABLE_HEADERS: Final = "delay-unreadable-headers"

MAX_HEADERS: Final = 10_000
"""Most headers of one record. A header takes 3 bytes of a log and some 120 of memory, so the size of a record says
little about its cost. Ten thousand are more than any sensible client sends, and cost 1.2 MB."""

RawHeader: TypeAlias = tuple[bytes, bytes | None]

_CONTINUES: Final = 0x80
_REPLACED: Final = "\N{REPLACEMENT CHARACTER}"


class UnreadableHeaders(list[tuple[str, bytes | None]]):
    """The headers that a rejected record has instead of its own.

    ``why`` says why they could not be read. ``handed`` are the headers that the client handed over in their place, None
    for nothing at all.
    """

    def __init__(self, raw: bytes, headers: Sequence[RawHeader], why: str, handed: Headers | None) -> None:
        super().__init__((name.decode(), content) for name, content in headers if _is_text(name))
        self.append((DELAY_UNREADABLE_HEADERS, raw))
        self.why = why
        self.handed = handed


def examined(raw: bytes, handed: Headers | None) -> Headers:
    """Decode a record's headers: as a client hands them over, or as UnreadableHeaders.

    It raises ValueError unless ``raw`` is Kafka's encoding of headers.
    """
    count, at = _varint(raw, 0)
    if count > MAX_HEADERS:
        why = f"The record has {count} headers; more than {MAX_HEADERS} are not read"
        return UnreadableHeaders(raw, (), why, handed)
    headers = _decoded(raw, count, at)
    altered = [name for name, _ in headers if not _is_text(name)]
    if not altered:
        return [(name.decode(), content) for name, content in headers]
    why = f"The header name {quoted(altered[0])} is not text: UTF-8 without NUL and U+FFFD"
    return UnreadableHeaders(raw, headers, why, handed)


def are_plain(headers: Headers) -> bool:
    """Return whether a Java client, too, has handed these headers over as they came."""
    names = "".join([name for name, _ in headers])
    return "\0" not in names and _REPLACED not in names and len(headers) <= MAX_HEADERS


def decide(rules: Rules, record: Record, offset: int) -> tuple[Decision, Record]:
    """Decide a record that was read from its topic, at this offset; return it as it is to leave."""
    headers = record.headers
    if isinstance(headers, UnreadableHeaders):
        if not rules.are_of_0_1_0 or headers.handed is None:
            return Rejection(Reason.UNREADABLE, headers.why), record
        record = record._replace(headers=headers.handed)
    decision = rules.decide(record.headers, record.timestamp_ms)
    return rules.placed(decision, record.timestamp_ms, offset), record


def as_accepted(record: Record) -> Record:
    """Return an accepted record, read again, with the headers that were accepted."""
    headers = record.headers
    if isinstance(headers, UnreadableHeaders):
        # The rules of 0.1.0 took the headers as a client had handed them over.
        return record._replace(headers=headers.handed or ())
    return record


def count_headers(raw: bytes) -> int:
    """Return the number of headers in an encoding; none of them is decoded."""
    return _varint(raw, 0)[0]


def decode_headers(raw: bytes) -> list[RawHeader]:
    """Decode the content of ``delay-unreadable-headers`` to the headers as they came; raise ValueError otherwise."""
    return _decoded(raw, *_varint(raw, 0))


def encode_headers(headers: Headers) -> bytes:
    """Encode headers as a record in the log has them; :func:`decode_headers` reads the result."""
    parts = [part for name, content in headers for part in (name.encode(), content)]
    sized = [_encoded(-1) if part is None else _encoded(len(part)) + part for part in parts]
    return _encoded(len(headers)) + b"".join(sized)


def _decoded(raw: bytes, count: int, at: int) -> list[RawHeader]:
    headers: list[RawHeader] = []
    for _ in range(count):
        name, at = _bytes(raw, at)
        content, at = _bytes(raw, at)
        if name is None:
            raise ValueError("a header has no name")
        headers.append((name, content))
    if at != len(raw):
        raise ValueError(f"{len(raw) - at} bytes behind {count} headers")
    return headers


def _is_text(name: bytes) -> bool:
    try:
        text = name.decode()
    except UnicodeDecodeError:
        return False
    return "\0" not in text and _REPLACED not in text


def _bytes(raw: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = _varint(raw, at)
    if size < 0:
        return None, at
    if at + size > len(raw):
        raise ValueError(f"{size} bytes are announced, and {len(raw) - at} are there")
    return raw[at : at + size], at + size


def _encoded(number: int) -> bytes:
    zigzag, encoded = number << 1 ^ number >> 63, bytearray()
    while zigzag >= _CONTINUES:
        encoded.append(zigzag & (_CONTINUES - 1) | _CONTINUES)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    zigzag = shift = 0
    while at < len(raw):
        byte = raw[at]
        at += 1
        zigzag |= (byte & (_CONTINUES - 1)) << shift
        if byte < _CONTINUES:
            return zigzag >> 1 ^ -(zigzag & 1), at
        shift += 7
    raise ValueError("a number has no end")
