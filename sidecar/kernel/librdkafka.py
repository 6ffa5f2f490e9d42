"""The way to librdkafka beside confluent-kafka: its public C interface, which is stable within a major version.

confluent-kafka makes every client, and keeps configuration, security, tokens, callbacks and transactions. It gives no
handle of its clients, and it hands some headers over altered (:mod:`index.rules.unreadable`). Both come by a plugin,
which librdkafka loads by its setting ``plugin.library.paths``: the compiled module ``_fetching``. So the clients below
have a ``watch`` where the kernel can run, and None otherwise.

One thing has no public function: the encoded headers of a record with the names that librdkafka cuts. The kernel
copies them from memory where it finds bytes that agree with all that the public functions show (``_headers.pxd``). A
record whose bytes it does not find is rejected.
"""

import ctypes
import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition, cimpl

from index.errors import ConfigError
from sidecar.kernel.compiled import not_compiled

if TYPE_CHECKING:
    from sidecar.kernel._fetching import Watch

_HEADERS: Final = (
    "rd_kafka_message_headers",
    "rd_kafka_message_detach_headers",
    "rd_kafka_header_cnt",
    "rd_kafka_header_get_all",
    "rd_kafka_header_get",
    "rd_kafka_headers_destroy",
)
"""Functions that the kernel reads headers with."""

READING: Final = (
    "rd_kafka_consume_batch_queue",
    "rd_kafka_message_timestamp",
    "rd_kafka_message_destroy",
    "rd_kafka_message_errstr",
    *_HEADERS,
)
"""Functions that the kernel reads a partition with."""

_PLUGIN: Final = (
    "rd_kafka_conf_interceptor_add_on_new",
    "rd_kafka_interceptor_add_on_consume",
    "rd_kafka_interceptor_add_on_destroy",
    *_HEADERS,
)

_NO_FORWARDING: Final = None


def _declared(name: str, returns: Any, *takes: Any) -> Any:
    function = getattr(_LIBRARY, name)
    function.restype, function.argtypes = returns, takes
    return function


# The binding's own file gives access to the library that it has loaded, independently of that library's file name.
_LIBRARY = ctypes.CDLL(cimpl.__file__)
_queue_of = _declared("rd_kafka_queue_get_partition", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32)
_queue_forward = _declared("rd_kafka_queue_forward", None, ctypes.c_void_p, ctypes.c_void_p)
_queue_destroy = _declared("rd_kafka_queue_destroy", None, ctypes.c_void_p)
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
_header_get = _declared(
    "rd_kafka_header_get",
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_char_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
)


def check_client() -> None:
    """Raise ConfigError unless this librdkafka tells a header name with a NUL from the part in front of the NUL."""
    headers = _headers_new(2)
    try:
        _header_add(headers, b"a\0b", 3, b"xy", 2)
        _header_add(headers, b"c", 1, None, -1)
        content, size = ctypes.c_void_p(), ctypes.c_size_t()
        is_found = [
            _header_get(headers, 0, name, ctypes.byref(content), ctypes.byref(size)) == 0 for name in (b"a", b"c")
        ]
    finally:
        _headers_destroy(headers)
    if is_found != [False, True]:
        raise ConfigError(
            "this librdkafka does not tell a header name with a NUL from the part in front of it, so headers could be"
            " altered without a word. Install the confluent-kafka of requirements.lock"
        )


def addresses_of(names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of functions of librdkafka, which native code calls."""
    return {name: _address_of(name) for name in names}


def _address_of(name: str) -> int:
    address = ctypes.cast(getattr(_LIBRARY, name), ctypes.c_void_p).value
    assert address, f"{name} has no address"
    return address


@cache
def memory_file() -> int:
    """Return a file with the memory of this process; -1 where the system gives none."""
    try:
        return os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


@cache
def plugin() -> str:
    """Return the path of the compiled plugin of librdkafka; empty where it cannot be used."""
    if not_compiled(os.environ):
        return ""
    from sidecar.kernel import _fetching  # noqa: PLC0415 -- it may not be compiled

    _fetching.plug(addresses_of(_PLUGIN), memory_file())
    path = str(_fetching.__file__)
    try:
        Producer({"plugin.library.paths": path, "log_level": 0})
    except KafkaException:
        # This librdkafka was built without plugins.
        return ""
    return path if _fetching.newest() is not None else ""


class WatchedConsumer(Consumer):
    """A consumer whose handle native code can use, and whose odd headers can be told; see ``watch``."""

    def __init__(self, settings: Mapping[str, Any], **options: Any) -> None:
        super().__init__({**settings, **_loading()}, **options)
        self.watch = _newest()


class WatchedProducer(Producer):
    """A producer whose handle native code can use; see ``watch``."""

    def __init__(self, settings: Mapping[str, Any], **options: Any) -> None:
        super().__init__({**settings, **_loading()}, **options)
        self.watch = _newest()


def watch_of(client: Consumer | Producer) -> "Watch | None":
    """Return the watch of a client; None where it has none."""
    return client.watch if isinstance(client, WatchedConsumer | WatchedProducer) else None


def _loading() -> dict[str, str]:
    return {"plugin.library.paths": plugin()} if plugin() else {}


def _newest() -> "Watch | None":
    if not plugin():
        return None
    from sidecar.kernel import _fetching  # noqa: PLC0415 -- it may not be compiled

    return _fetching.newest()


class PartitionQueue:
    """The queue of one partition, hidden from confluent-kafka; it must be made before the partition is assigned.

    The queue is at ``address`` until it is closed, and it must be closed before the consumer.
    """

    def __init__(self, consumer: Consumer, at: TopicPartition) -> None:
        watch = watch_of(consumer)
        assert watch is not None, "the consumer was made without the plugin"
        self.address: int = _queue_of(watch.client, at.topic.encode(), at.partition)
        _queue_forward(self.address, _NO_FORWARDING)

    def close(self) -> None:
        """Return the queue to librdkafka."""
        if self.address:
            _queue_destroy(self.address)
            self.address = 0
