"""Reads the headers of messages as the log holds them, or as UnreadableHeaders.

confluent-kafka hands over a name with a NUL up to the NUL, no headers where there are more than 100,000, and fails at a
name that is no UTF-8. The watch of a consumer (:mod:`sidecar.kernel.librdkafka`) tells such records, and mostly has
their headers as they are in the log. Without the kernel there is no watch: then a name with a NUL, and more than
100,000 headers, go unnoticed (``UNSEEN``).
"""

from collections.abc import Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Message

from index.protocol.headers import Headers
from index.rules.unreadable import (
    MAX_HEADERS,
    UnreadableHeaders,
    are_plain,
    count_headers,
    decode_headers,
    encode_headers,
    examined,
)

if TYPE_CHECKING:
    from sidecar.kernel._fetching import Watch

UNSEEN: Final = "the name of a header with a NUL ends there, and more than 100,000 headers count as none"
"""Headers that the router cannot see without the kernel, for the line at its start."""

_HIDDEN: Final = "The client does not hand over the headers of the record as they are in the log"

# ``message.headers()`` will not do: Python specialises a hot call, and the specialised call misses the error, which
# then shows up somewhere later.
_one: Any = methodcaller("headers")
_headers: Any = Message.headers


def headers_of(messages: Sequence[Message], watch: "Watch | None") -> list[Headers]:
    """Return the headers of each message of one partition; errors have none.

    ``watch`` is that of the consumer, which has handed over nothing else since the last call.
    """
    if watch is None:
        return list(map(_handed_over, messages))
    odd = watch.doubts(sum([message.error() is None for message in messages]))
    if not odd:
        return [headers or () for headers in map(_headers, messages)]
    return [_read(message, odd) for message in messages]


def as_read(raw: bytes, *, is_hidden: bool) -> Headers:
    """Return encoded headers, which may be headers that no client hands over; hidden ones are not those of the log."""
    if is_hidden:
        shown = decode_headers(raw) if count_headers(raw) <= MAX_HEADERS else ()
        return UnreadableHeaders(raw, shown, _HIDDEN, headers_as_handed_over(raw))
    headers = examined(raw, None)
    return examined(raw, headers_as_handed_over(raw)) if isinstance(headers, UnreadableHeaders) else headers


def readable_headers(message: Message) -> Headers:
    """Return the headers of one message, none where the client cannot hand them over; alterations go unnoticed."""
    try:
        headers: Headers = _one(message) or ()
    except SystemError:
        return ()
    return headers


def headers_as_handed_over(raw: bytes) -> Headers | None:
    """Return the headers that the client makes of an encoding, None for none: a name ends at its first NUL."""
    # The count comes before any decoding: an object for each of 300,000 headers would take 0.26 s.
    if count_headers(raw) > MAX_HEADERS:
        return None
    headers = decode_headers(raw)
    try:
        return [(name.split(b"\0", 1)[0].decode(), content) for name, content in headers] or None
    except UnicodeDecodeError:
        return None


def _read(message: Message, odd: dict[int, tuple[bytes, bool]]) -> Headers:
    found = odd.get(message.offset() or 0) if message.error() is None else None
    if found is None:
        return _one(message) or ()
    raw, is_hidden = found
    return as_read(raw, is_hidden=is_hidden)


def _handed_over(message: Message) -> Headers:
    try:
        headers: Headers = _one(message) or ()
    except SystemError:
        # The name of a header is no UTF-8.
        return UnreadableHeaders(b"\0", (), _HIDDEN, None)
    return headers if are_plain(headers) else examined(encode_headers(headers), headers)
