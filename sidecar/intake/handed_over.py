"""What the client hands over of the headers of messages, and of which it is in doubt whether they came so.

Comparing costs little, since it is done for all messages of a fetch together: the client says how many bytes of headers
it has read from the log, and these must be the bytes of what it has handed over. Only a fetch where they are not is
looked at one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import methodcaller
from typing import Any, Final, cast

from confluent_kafka import Message

from index.headers import Headers
from index.unreadable import MAX_HEADERS, are_plain, count_headers, decode_headers
from sidecar.kafka.librdkafka import header_count, serialized_sizes

_LEAST_HEADER_BYTES: Final = 2
_MANY_BYTES: Final = MAX_HEADERS * _LEAST_HEADER_BYTES
"""Fewer bytes cannot be more than MAX_HEADERS headers."""

_SHORT: Final = 63
"""Most bytes whose length takes one byte in the log."""

# Not ``message.headers()``: Python makes a call of its own of it once it is hot, and that one does not see the error,
# which then shows up somewhere later.
_headers = Message.headers
_one = methodcaller("headers")


@dataclass(slots=True)
class HandedOver:
    """``headers`` of each message, and the places of those that are ``doubtful``.

    Headers are None where there are none to be had. Doubtful are altered ones, names with a U+FFFD, and all without
    headers, since more than 100,000 are handed over as none.
    """

    headers: list[Headers | None]
    doubtful: list[int]


def handed_over(messages: Sequence[Message], sizes: Sequence[int]) -> HandedOver:
    """Ask each message for its headers, once; ``sizes`` are what ``serialized_sizes`` has said of them before.

    None is asked that has more than ``MAX_HEADERS``.
    """
    found = _asked(messages, sizes)
    whole = list(filter(None, found))
    # Nothing is ever handed over that is longer than what was read, so that equal sums are equal sizes.
    left = sum(sizes) - sum([len(name) + len(content or b"") + 2 for headers in whole for name, content in headers])
    if left and left != _of_long_lengths(whole):
        return HandedOver(found, [at for at, size in enumerate(sizes) if not _is_whole(found[at], size)])
    if len(whole) == len(found):
        return HandedOver(found, [])
    return HandedOver(found, [at for at, size in enumerate(sizes) if not size])


def handed_over_one(message: Message) -> tuple[Headers | None, bool]:
    """The headers of one message, None where there are none to be had; and whether there is no doubt about them."""
    [size] = serialized_sizes([message])
    headers = _asked_one(message, size)
    return headers, _is_whole(headers, size)


def readable_headers(message: Message) -> Headers:
    """The headers of one message, none where they cannot be handed over; altered ones are not looked for."""
    try:
        return cast("Headers", _one(message) or ())
    except SystemError:
        return ()


def headers_as_handed_over(raw: bytes) -> Headers | None:
    """Return the headers that the client makes of an encoding, None for none: a name ends at its first NUL."""
    # Before any of them is decoded: an object for each of 300,000 would take 0.26 s.
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
        # Of a name that is no UTF-8.
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
            # Of a name that is no UTF-8. What was found before it stays, and the next one is asked.
            found.append(None)
    return found


def _of_long_lengths(found: Sequence[Headers]) -> int:
    """Bytes that lengths take in the log beside the first one of each."""
    lengths = map(len, filter(None, chain.from_iterable(chain.from_iterable(found))))
    return sum([_varint_size(length) - 1 for length in lengths if length > _SHORT])


def _is_whole(headers: Headers | None, size: int) -> bool:
    """Whether headers are of that many bytes, and are there, and had no byte that is no text in a name."""
    if not headers:
        return False
    lengths = [len(part) for name, content in headers for part in (name.encode(), content or b"")]
    return sum(lengths) + sum(map(_varint_size, lengths)) == size and are_plain(headers)


def _varint_size(length: int) -> int:
    # A length is doubled for its sign.
    return max((2 * length).bit_length() + 6, 7) // 7
