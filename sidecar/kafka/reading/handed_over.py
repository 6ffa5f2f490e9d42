"""Reads the headers that the client hands over, and says which of them may differ from the log.

The comparison costs little, since it covers all messages of a fetch together: the client says how many bytes of headers
it has read from the log, and the headers that it hands over must have as many. Only a fetch where they differ is
compared message by message.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import methodcaller
from typing import Any, Final, cast

from confluent_kafka import Message

from index.protocol.headers import Headers
from index.rules.unreadable import MAX_HEADERS, are_plain, count_headers, decode_headers
from sidecar.kafka.client.librdkafka import header_count, serialized_sizes

_LEAST_HEADER_BYTES: Final = 2
_MANY_BYTES: Final = MAX_HEADERS * _LEAST_HEADER_BYTES
"""Fewer bytes than these hold at most MAX_HEADERS headers."""

_SHORT: Final = 63
"""Most bytes whose length takes one byte in the log."""

# ``message.headers()`` will not do: Python specialises a hot call, and the specialised call misses the error, which
# then shows up somewhere later.
_headers = Message.headers
_one = methodcaller("headers")


@dataclass(slots=True)
class HandedOver:
    """The ``headers`` of each message, and the places of the messages whose headers are ``doubtful``.

    Headers are None where the client gives none. Doubtful are altered headers, names with a U+FFFD, and all messages
    without headers, since more than 100,000 are handed over as none.
    """

    headers: list[Headers | None]
    doubtful: list[int]


def handed_over(messages: Sequence[Message], sizes: Sequence[int]) -> HandedOver:
    """Read the headers of each message once; ``sizes`` are the results of ``serialized_sizes`` for these messages.

    A message with more than ``MAX_HEADERS`` headers is not asked.
    """
    found = _asked(messages, sizes)
    whole = list(filter(None, found))
    # The client never hands over more bytes than it has read, so equal sums mean equal sizes.
    left = sum(sizes) - sum([len(name) + len(content or b"") + 2 for headers in whole for name, content in headers])
    if left and left != _of_long_lengths(whole):
        return HandedOver(found, [at for at, size in enumerate(sizes) if not _is_whole(found[at], size)])
    if len(whole) == len(found):
        return HandedOver(found, [])
    return HandedOver(found, [at for at, size in enumerate(sizes) if not size])


def handed_over_one(message: Message) -> tuple[Headers | None, bool]:
    """Return the headers of one message, None where the client gives none; and whether they are beyond doubt."""
    [size] = serialized_sizes([message])
    headers = _asked_one(message, size)
    return headers, _is_whole(headers, size)


def readable_headers(message: Message) -> Headers:
    """Return the headers of one message, none where the client cannot hand them over; alterations go unnoticed."""
    try:
        return cast("Headers", _one(message) or ())
    except SystemError:
        return ()


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


def _asked_one(message: Message, size: int) -> Headers | None:
    if size >= _MANY_BYTES and header_count(message) > MAX_HEADERS:
        return None
    try:
        headers = _one(message)
    except SystemError:
        # The name of a header is no UTF-8.
        return None
    return cast("Headers", headers or ())


def _asked(messages: Sequence[Message], sizes: Sequence[int]) -> list[Headers | None]:
    if max(sizes, default=0) >= _MANY_BYTES:
        return list(map(_asked_one, messages, sizes))
    found: list[Any] = []
    asking: Iterator[Any] = map(_headers, messages)
    while len(found) < len(messages):
        try:
            found.extend(asking)
        except SystemError:
            # The name of a header is no UTF-8. Earlier results stay, and the next message is asked.
            found.append(None)
    return found


def _of_long_lengths(found: Sequence[Headers]) -> int:
    """Return how many bytes lengths take in the log beside the first byte of each."""
    lengths = map(len, filter(None, chain.from_iterable(chain.from_iterable(found))))
    return sum([_varint_size(length) - 1 for length in lengths if length > _SHORT])


def _is_whole(headers: Headers | None, size: int) -> bool:
    """Say whether there are headers, of exactly this size, whose names had only bytes that are text."""
    if not headers:
        return False
    lengths = [len(part) for name, content in headers for part in (name.encode(), content or b"")]
    return sum(lengths) + sum(map(_varint_size, lengths)) == size and are_plain(headers)


def _varint_size(length: int) -> int:
    # A length is doubled for its sign.
    return max((2 * length).bit_length() + 6, 7) // 7
