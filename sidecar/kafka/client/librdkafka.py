"""Parts of librdkafka that confluent-kafka does not offer: read through the C interface, and from memory.

confluent-kafka delivers headers as Python text, and loses some on the way: see :mod:`index.rules.unreadable`. The
library that it brings along still has them:

* ``serialized_sizes``: the number of bytes that the headers of messages had in the log, which tells whether any was
  altered. A C call for each message would cost a tenth of all work on a record; so the two numbers on the way there are
  read in place, through a view of the memory of the process.
* ``PartitionQueue``: the queue from which native code reads a partition by the C interface.
* ``Partition``: a partition read by the C interface, with headers as they were written.
* ``address_of`` and ``CLIENT_HANDLE``: the functions that native code (:mod:`sidecar.kernel`) calls, and their client.

All of them rely on positions in memory, which hold only for the versions in ``KNOWN``. ``check_client`` runs before
everything else and refuses other versions. It also lets the library build headers and checks that their number and
size are at the expected positions.
"""

import ctypes
import platform
import struct
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition, cimpl

from index.errors import ConfigError

KNOWN: Final = frozenset({("2.16.1", "2.16.0")})
"""Versions of confluent-kafka and of librdkafka whose layout the tests have seen."""

_WORD: Final = 8
_MESSAGE_BYTES: Final = 120
_MESSAGE_HEADERS: Final = 48 // _WORD
"""Position in a Message of confluent-kafka of its pointer to the headers of librdkafka, valid until they are read."""
_HEADERS_SIZE: Final = 40 // _WORD
"""Position in these headers of the sum of their serialized sizes; their number is the upper half of the first word."""
CLIENT_HANDLE: Final = 16
"""Position in a Producer and a Consumer of confluent-kafka of the handle of librdkafka."""
_CLIENT_BYTES: Final = 176
_RAW_HEADERS_SIZE: Final = 120
_RAW_HEADERS: Final = 128
"""Positions in a message of librdkafka of the length of its raw headers, and of the pointer to them."""
RAW_HEADERS_AT: Final = (_RAW_HEADERS_SIZE, _RAW_HEADERS)

_NO_FORWARDING: Final = None


class _CMessage(ctypes.Structure):
    """The public type ``rd_kafka_message_t``."""

    _fields_ = [
        ("err", ctypes.c_int),
        ("topic", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    ]


def _declared(name: str, returns: Any, *takes: Any) -> Any:
    function = getattr(_LIBRARY, name)
    function.restype, function.argtypes = returns, takes
    return function


# The binding's own file gives access to the library that it has loaded, independently of that library's file name.
_LIBRARY = ctypes.CDLL(cimpl.__file__)
_queue_of = _declared("rd_kafka_queue_get_partition", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32)
_queue_forward = _declared("rd_kafka_queue_forward", None, ctypes.c_void_p, ctypes.c_void_p)
_queue_destroy = _declared("rd_kafka_queue_destroy", None, ctypes.c_void_p)
_consume = _declared("rd_kafka_consume_queue", ctypes.POINTER(_CMessage), ctypes.c_void_p, ctypes.c_int)
_timestamp = _declared("rd_kafka_message_timestamp", ctypes.c_int64, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
_message_destroy = _declared("rd_kafka_message_destroy", None, ctypes.c_void_p)
_headers_new = _declared("rd_kafka_headers_new", ctypes.c_void_p, ctypes.c_size_t)
_headers_destroy = _declared("rd_kafka_headers_destroy", None, ctypes.c_void_p)
_header_add = _declared(
    "rd_kafka_header_add",
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_ssize_t,
    ctypes.c_char_p,
    ctypes.c_ssize_t,
)

# All memory of the process as words; the code reads only words to which a live object points.
_MEMORY: Final = memoryview((ctypes.c_uint64 * (1 << 44)).from_address(0)).cast("B").cast("Q")


class RawRecord(NamedTuple):
    """A record of a log with its raw, encoded headers."""

    offset: int
    headers: bytes
    timestamp_ms: int = -1


def check_client() -> None:
    """Raise ConfigError unless the headers of this client can be compared with the log."""
    if is_known():
        return
    found = versions()
    wanted = " or ".join(f"{binding} (librdkafka {library})" for binding, library in sorted(KNOWN))
    raise ConfigError(
        f"confluent-kafka {found[0]} with librdkafka {found[1]} on {platform.python_implementation()}"
        f" {platform.python_version()}, {platform.machine()}: it is not known how this one hands headers over, so they"
        f" could be altered without a word. Install confluent-kafka {wanted} from its wheel"
    )


def versions() -> tuple[str, str]:
    """Return the versions of confluent-kafka and of librdkafka."""
    return str(confluent_kafka.version()), str(confluent_kafka.libversion()[0])


def is_known() -> bool:
    """Say whether the tests know the memory layout of this client."""
    return versions() in KNOWN and _is_laid_out()


def address_of(name: str) -> int:
    """Return the address of a function of librdkafka, which native code calls."""
    address = ctypes.cast(getattr(_LIBRARY, name), ctypes.c_void_p).value
    assert address, f"{name} has no address"
    return address


def _is_laid_out() -> bool:
    if sys.implementation.name != "cpython" or struct.calcsize("P") != _WORD or sys.byteorder != "little":
        return False
    if (Message.__basicsize__, Consumer.__basicsize__, Producer.__basicsize__) != (
        _MESSAGE_BYTES,
        _CLIENT_BYTES,
        _CLIENT_BYTES,
    ):
        return False
    headers = _headers_new(2)
    _header_add(headers, b"a\0b", 3, b"xy", 2)
    _header_add(headers, b"c", 1, None, -1)
    first, size = _MEMORY[headers // _WORD], _MEMORY[headers // _WORD + _HEADERS_SIZE]
    _headers_destroy(headers)
    return (first >> 32, size) == (2, len(b"\6a\0b\4xy" + b"\2c\1"))


def serialized_sizes(messages: Sequence[Message]) -> list[int]:
    """Return the bytes that the headers of each message took in the log, without their count; 0 for no headers.

    The messages must be of confluent-kafka, and their headers must not have been read yet.
    """
    memory, headers, size = _MEMORY, _MESSAGE_HEADERS, _HEADERS_SIZE
    places = [memory[(address >> 3) + headers] for address in map(id, messages)]
    return [memory[(place >> 3) + size] if place else 0 for place in places]


def header_count(message: Message) -> int:
    """Return the number of headers of a message whose headers have not been read yet."""
    place = _MEMORY[id(message) // _WORD + _MESSAGE_HEADERS]
    return _MEMORY[place // _WORD] >> 32 if place else 0


class PartitionQueue:
    """The queue of one partition, hidden from confluent-kafka; it must be made before the partition is assigned.

    The queue is at ``address`` until it is closed, and it must be closed before the consumer.
    """

    def __init__(self, consumer: Consumer, at: TopicPartition) -> None:
        handle = ctypes.c_void_p.from_address(id(consumer) + CLIENT_HANDLE)
        self.address: int = _queue_of(handle, at.topic.encode(), at.partition)
        _queue_forward(self.address, _NO_FORWARDING)

    def close(self) -> None:
        """Return the queue to librdkafka."""
        if self.address:
            _queue_destroy(self.address)
            self.address = 0


class Partition:
    """One partition, read from an offset on with raw headers; a context manager for one thread.

    The consumer keeps its settings and its security, and serves no other purpose: the messages of the partition arrive
    in their own queue, which confluent-kafka never sees.
    """

    def __init__(self, consumer: Consumer, at: TopicPartition) -> None:
        self._consumer = consumer
        self._queue = PartitionQueue(consumer, at)
        consumer.assign([at])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._consumer.unassign()
        self._queue.close()

    def next(self, timeout_s: float) -> RawRecord | None:
        """Return the next record, or None at the end of the partition.

        Raise KafkaException on timeout or any other error.
        """
        found = _consume(self._queue.address, int(timeout_s * 1_000))
        if not found:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "a record was not read in time"))
        place = ctypes.addressof(found.contents)
        try:
            message = found.contents
            if message.err == KafkaError._PARTITION_EOF:
                return None
            if message.err:
                raise KafkaException(KafkaError(message.err))
            size = ctypes.c_int32.from_address(place + _RAW_HEADERS_SIZE).value
            content = ctypes.c_void_p.from_address(place + _RAW_HEADERS).value
            headers = ctypes.string_at(content, size) if content and size > 0 else b"\0"
            return RawRecord(message.offset, headers, _timestamp(place, ctypes.byref(ctypes.c_int())))
        finally:
            _message_destroy(place)
