"""A queue of a partition that a test fills, in place of librdkafka's: messages may hold any bytes at all."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import cimpl

from index.protocol.headers import Headers
from index.rules.unreadable import RawHeader, count_headers, decode_headers, examined
from sidecar.kafka.reading.handed_over import headers_as_handed_over
from sidecar.kernel._fetching import Reader
from sidecar.kernel.librdkafka import READING, addresses_of, memory_file

_MESSAGE_BYTES: Final = 160
_HEADERS_AT: Final = (120, 128)
"""Positions in a message of librdkafka 2.16.0 of the length of its encoded headers, and of the pointer to them."""

_NO_HEADERS: Final = -156
_BAD: Final = -199
_MOST_READ: Final = 100_000
"""Most headers of a message that librdkafka reads."""


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


def built_headers(headers: Sequence[RawHeader]) -> int:
    """Return headers of librdkafka, with any bytes in their names; whoever takes them frees them."""
    library = ctypes.CDLL(cimpl.__file__)
    library.rd_kafka_headers_new.restype = ctypes.c_void_p
    made = int(library.rd_kafka_headers_new(ctypes.c_size_t(len(headers))))
    for name, content in headers:
        size = -1 if content is None else len(content)
        library.rd_kafka_header_add(
            ctypes.c_void_p(made), name, ctypes.c_ssize_t(len(name)), content, ctypes.c_ssize_t(size)
        )
    return made


_ALIVE: Final[list[object]] = []
"""Objects that native code may call at any time, as it may call librdkafka, so they are kept for ever."""


class FakeQueue:
    """Gives messages in which each readable field is memory of its own."""

    def __init__(
        self, messages: Sequence[RawMessage], error_text: bytes = b"it broke", *, has_memory: bool = True
    ) -> None:
        self.given_back = 0
        self._raw: dict[int, bytes] = {}
        self._headers: dict[int, int] = {}
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
            "rd_kafka_message_headers": ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(pointer))(self._show),
            "rd_kafka_message_detach_headers": ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.POINTER(pointer))(
                self._detach
            ),
        }
        _ALIVE.append((functions, self._kept))
        # Headers are those of the library itself.
        addresses = addresses_of(READING)
        addresses |= {name: ctypes.cast(function, pointer).value or 0 for name, function in functions.items()}
        self.reader = Reader(1, addresses, memory_file() if has_memory else -1)

    def _laid_out(self, message: RawMessage) -> int:
        place = ctypes.create_string_buffer(_MESSAGE_BYTES)
        at = ctypes.addressof(place)
        ctypes.c_int.from_address(at).value = message.code
        self._lay(at + 24, message.given_value)
        self._lay(at + 40, message.given_key)
        ctypes.c_int64.from_address(at + 56).value = message.at
        self._raw[at] = message.raw_headers
        ctypes.c_int32.from_address(at + _HEADERS_AT[0]).value = len(message.raw_headers)
        self._lay(at + _HEADERS_AT[1], message.raw_headers or None, has_size=False)
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

    def _show(self, place: int, into: Any) -> int:
        if place not in self._headers:
            try:
                count = count_headers(self._raw[place] or b"\0")
                if count <= 0:
                    return _NO_HEADERS
                headers = decode_headers(self._raw[place]) if count <= _MOST_READ else None
            except ValueError:
                headers = None
            if headers is None:
                return _BAD
            self._headers[place] = built_headers(headers)
        into[0] = self._headers[place]
        return 0

    def _detach(self, place: int, into: Any) -> int:
        code = self._show(place, into)
        self._headers.pop(place, None)
        return code

    def _destroy(self, _place: int) -> None:
        self.given_back += 1
