"""A queue of a partition that a test fills, in place of librdkafka's: messages may hold any bytes at all."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from index.protocol.headers import Headers
from index.rules.unreadable import examined
from sidecar.kafka.reading.handed_over import headers_as_handed_over
from sidecar.kernel._fetching import Reader

_MESSAGE_BYTES: Final = 160
HEADERS_AT: Final = (120, 128)


@dataclass(frozen=True)
class RawMessage:
    """A message as it lies in memory, and as confluent-kafka would hand it over."""

    at: int
    raw_headers: bytes = b""
    given_key: bytes | None = b"k"
    given_value: bytes | None = b"v"
    timestamp_ms: int = 0
    code: int = 0

    @property
    def given(self) -> Headers:
        """Return the headers that Python gets; ValueError where the bytes are no headers."""
        raw = self.raw_headers or b"\0"
        return examined(raw, headers_as_handed_over(raw))


_ALIVE: Final[list[object]] = []
"""Objects that native code may call at any time, as it may call librdkafka, so they are kept for ever."""


class FakeQueue:
    """Gives messages in which each readable field is memory of its own."""

    def __init__(self, messages: Sequence[RawMessage], error_text: bytes = b"it broke") -> None:
        self.given_back = 0
        self._kept: list[Any] = []
        self._error_text = ctypes.create_string_buffer(error_text)
        self._timestamps: dict[int, int] = {}
        self._waiting = [self._laid_out(message) for message in messages]
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        functions = {
            "rd_kafka_consume_batch_queue": ctypes.CFUNCTYPE(
                ctypes.c_ssize_t, pointer, ctypes.c_int, ctypes.POINTER(pointer), size
            )(self._consume),
            "rd_kafka_message_timestamp": ctypes.CFUNCTYPE(ctypes.c_int64, pointer, pointer)(
                lambda place, _kind: self._timestamps[place]
            ),
            "rd_kafka_message_destroy": ctypes.CFUNCTYPE(None, pointer)(self._destroy),
            "rd_kafka_message_errstr": ctypes.CFUNCTYPE(pointer, pointer)(
                lambda _place: ctypes.addressof(self._error_text)
            ),
        }
        _ALIVE.append((functions, self._kept))
        addresses = {name: ctypes.cast(function, pointer).value or 0 for name, function in functions.items()}
        self.reader = Reader(1, addresses, HEADERS_AT)

    def _laid_out(self, message: RawMessage) -> int:
        place = ctypes.create_string_buffer(_MESSAGE_BYTES)
        at = ctypes.addressof(place)
        ctypes.c_int.from_address(at).value = message.code
        self._lay(at + 24, message.given_value)
        self._lay(at + 40, message.given_key)
        ctypes.c_int64.from_address(at + 56).value = message.at
        ctypes.c_int32.from_address(at + HEADERS_AT[0]).value = len(message.raw_headers)
        self._lay(at + HEADERS_AT[1], message.raw_headers or None, has_size=False)
        self._timestamps[at] = message.timestamp_ms
        self._kept.append(place)
        return at

    def _lay(self, at: int, content: bytes | None, *, has_size: bool = True) -> None:
        if content is None:
            return
        # The copy has not one byte more, so that a sanitizer notices a read behind its end.
        copy = (ctypes.c_char * max(len(content), 1)).from_buffer_copy(content or b"\0")
        self._kept.append(copy)
        ctypes.c_void_p.from_address(at).value = ctypes.addressof(copy)
        if has_size:
            ctypes.c_size_t.from_address(at + 8).value = len(content)

    def _consume(self, _queue: int, _timeout_ms: int, into: Any, most: int) -> int:
        some, self._waiting = self._waiting[:most], self._waiting[most:]
        for number, place in enumerate(some):
            into[number] = place
        return len(some)

    def _destroy(self, _place: int) -> None:
        self.given_back += 1
