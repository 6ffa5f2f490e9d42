"""Headers that confluent-kafka hands over altered: each reader sees the log, or rejects the record."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import pytest
from confluent_kafka import TopicPartition, cimpl

from index.protocol.headers import Headers
from index.rules.unreadable import DELAY_UNREADABLE_HEADERS, RawHeader, UnreadableHeaders, examined
from sidecar.kafka.reading.offset_reader import OffsetReader
from sidecar.kafka.reading.tail_clients import TailClients
from sidecar.kafka.reading.tails import NativeTail, PythonTail, Tail
from sidecar.kernel.librdkafka import WatchedConsumer
from tests.support.kernel import native_kernel
from tests.support.mock_broker import MockBroker
from tests.wire.batch import encode_headers

KERNEL: Final = native_kernel()

from tests.support.fake_queue import built_headers  # noqa: E402 -- it needs the kernel

MOST_BYTES: Final = 1 << 30
TOPIC: Final = "odd"

SHAPES: Final[list[list[RawHeader]]] = [
    [(b"a", b"1")],
    [(b"a", None), (b"a", b""), (b"b", b"x" * 70)],
    [],
    [("\N{SNOWMAN}".encode(), b"1")],
    [(b"n%d" % number, b"") for number in range(600)],
    [(b"deliver-at\0x", b"1"), (b"k", b"2")],
    [(b"a", None), (b"a\0b", None)],
    [(b"a\0b", None), (b"a", None)],
    [(b"\0", b"")],
    [(b"\xff", b"1")],
    [("\N{REPLACEMENT CHARACTER}".encode(), b"1")],
    [(b"n", None)] * 20_000,
    [(b"n\0m", b"1")] * 12_000,
    [(b"n", b"1")] * 120_000,
]


def _produce(broker: MockBroker, headers: Sequence[RawHeader]) -> None:
    """Write a record with any bytes in the names of its headers, which confluent-kafka does not take."""
    assert broker.producer.watch is not None
    pointer, number = ctypes.c_void_p, ctypes.c_int
    code = ctypes.CDLL(cimpl.__file__).rd_kafka_producev(
        *(pointer(broker.producer.watch.client), number(1), TOPIC.encode(), number(3), ctypes.c_int32(0)),
        *(number(4), b"v", ctypes.c_size_t(1), number(7), number(2)),
        *(number(10), pointer(built_headers(headers)), number(0)),
    )
    assert code == 0


@pytest.fixture(name="connect", scope="module")
def _connect() -> Iterator[Callable[[], WatchedConsumer]]:
    with MockBroker() as broker:
        broker.producer.begin_transaction()
        for headers in SHAPES:
            _produce(broker, headers)
        broker.producer.commit_transaction()
        settings = {"bootstrap.servers": broker.bootstrap, "group.id": "odd", "log_level": 0}
        yield lambda: WatchedConsumer({**settings, "auto.offset.reset": "error", "enable.partition.eof": True})


def _read(tail: Tail) -> list[Headers]:
    found: list[Headers] = []
    while len(found) < len(SHAPES):
        read = tail.read(1, 100)
        if read is not None:
            assert read.stumbled is None
            found += [headers for message, headers in read.fetch.some(0, 100) if message.error() is None]
    tail.close()
    return found


def _check(found: Sequence[Headers]) -> None:
    for headers, shape in zip(found, SHAPES, strict=True):
        expected = examined(encode_headers(shape), None)
        assert type(headers) is UnreadableHeaders or not isinstance(expected, UnreadableHeaders)
        assert list(headers) == list(expected)


def test_a_tail_sees_them_as_they_are_in_the_log(connect: Callable[[], WatchedConsumer]) -> None:
    at = TopicPartition(TOPIC, 0, 0)
    tails = TailClients(lambda _: connect())
    _check(_read(NativeTail(tails.lend((MOST_BYTES, MOST_BYTES), at), KERNEL, at, MOST_BYTES)))
    _check(_read(PythonTail(connect(), at, MOST_BYTES)))


def test_a_reader_by_offset_sees_them_as_they_are_in_the_log(connect: Callable[[], WatchedConsumer]) -> None:
    reader = OffsetReader(connect)
    _check([record.headers for _, record in reader.scan(TOPIC, 0, 0, len(SHAPES))])
    # Offsets in any order, each with an assignment of its own.
    for offset in (5, 1, 9, 0):
        record = reader.read(TOPIC, 0, [offset])[offset]
        assert record is not None
        assert list(record.headers) == list(examined(encode_headers(SHAPES[offset]), None))
    assert reader.first_timestamp_ms(TOPIC, 0, 5) is not None
    reader.close()


def test_a_record_that_the_plugin_has_not_seen_is_an_error(connect: Callable[[], WatchedConsumer]) -> None:
    consumer = connect()
    assert consumer.watch is not None
    consumer.watch.begin()
    with pytest.raises(RuntimeError, match="showed 0 of 1 records"):
        consumer.watch.doubts(1)
    client = consumer.watch.client
    consumer.close()
    assert client
    assert consumer.watch.client == 0


def test_without_the_kernel_two_shapes_go_unnoticed_and_the_others_are_rejected(
    connect: Callable[[], WatchedConsumer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.kernel.librdkafka.plugin", lambda: "")
    found = _read(PythonTail(connect(), TopicPartition(TOPIC, 0, 0), MOST_BYTES))
    unnoticed = 0
    for headers, shape in zip(found, SHAPES, strict=True):
        expected = examined(encode_headers(shape), None)
        is_rejected = isinstance(headers, UnreadableHeaders)
        if is_rejected or not isinstance(expected, UnreadableHeaders):
            assert is_rejected == isinstance(expected, UnreadableHeaders)
        else:
            assert len(shape) > 100_000 or any(b"\0" in name for name, _ in shape)
            unnoticed += 1
    assert unnoticed == 5
    replaced = found[SHAPES.index([("\N{REPLACEMENT CHARACTER}".encode(), b"1")])]
    assert list(replaced) == [
        (DELAY_UNREADABLE_HEADERS, encode_headers([("\N{REPLACEMENT CHARACTER}".encode(), b"1")]))
    ]
