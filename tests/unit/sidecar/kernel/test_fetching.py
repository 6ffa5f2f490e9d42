"""Messages that the kernel reads: decided like messages of confluent-kafka, for any bytes."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st

from index.errors import ClusterError
from index.protocol.record import Record
from index.protocol.schedule import Reason
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from index.rules.unreadable import UnreadableHeaders, decode_headers
from sidecar.engine.intake.decided import Decided, Rejected
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.payload.packing import records_of
from sidecar.kafka.reading.fetching import Connects, Fetching
from sidecar.kafka.reading.tail_clients import TailClients
from sidecar.kafka.reading.tails import Fetch, NativeTail, PythonTail, RawFetch, Tail
from sidecar.kernel.choice import PYTHON, Kernel
from sidecar.kernel.librdkafka import WatchedConsumer
from sidecar.process.host.budget import PayloadBudget
from snapshots.segments.rows import RowPacker
from tests.support.kernel import native_kernel
from tests.support.mock_broker import MockBroker

NATIVE = native_kernel()

from tests.support.fake_queue import FakeQueue, RawMessage  # noqa: E402 -- it needs the kernel

NOW_MS: Final = 1_800_000_000_000
RULES: Final = Rules("d", default_target="t", allowed_targets=("t*",))
BEFORE: Final = Rules("d", default_target="t", version=2)
PLENTY: Final = 1 << 40
MOST_BYTES: Final = 1_000_000
LIMITS: Final = (MOST_BYTES, MOST_BYTES)


def _varint(number: int) -> bytes:
    zigzag, encoded = number << 1 ^ number >> 63, bytearray()
    while zigzag >= 128:
        encoded.append(zigzag & 127 | 128)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def _encoded(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    pieces = [piece for header in headers for piece in header]
    sized = [_varint(-1) if piece is None else _varint(len(piece)) + piece for piece in pieces]
    return _varint(len(headers)) + b"".join(sized)


class _Given:
    """A raw message with the methods of a Message."""

    def __init__(self, raw: RawMessage) -> None:
        self._raw = raw

    def offset(self) -> int:
        return self._raw.at

    def error(self) -> KafkaError | None:
        return KafkaError(self._raw.code, "it broke") if self._raw.code else None

    def key(self) -> bytes | None:
        return self._raw.given_key

    def value(self) -> bytes | None:
        return self._raw.given_value

    def timestamp(self) -> tuple[int, int]:
        return 1, self._raw.timestamp_ms


def _decided(kernel: Kernel, rules: Rules, fetch: Fetch | RawFetch) -> Decided:
    budget = PayloadBudget(PLENTY)
    history = RuleHistory.beginning(0, rules)
    return Deciding(history, budget, now_ms=lambda: NOW_MS, soon_ms=1_000, native=kernel.decider).decide(fetch)


def _plain(thing: Any) -> Any:
    if isinstance(thing, RowPacker):
        return tuple(thing.names)
    if isinstance(thing, UnreadableHeaders):
        return "unreadable", list(thing), thing.why, thing.handed
    if isinstance(thing, tuple | list):
        return (type(thing).__name__, *(_plain(part) for part in thing))
    return type(thing).__name__, thing


def _outcome(kernel: Kernel, rules: Rules, messages: Sequence[RawMessage]) -> Any:
    try:
        if kernel.is_native:
            fetch: Fetch | RawFetch = RawFetch(FakeQueue(messages).reader.read(0, 1_000, PLENTY))
        else:
            given_messages = cast("Sequence[Message]", [_Given(each) for each in messages])
            fetch = Fetch(given_messages, [each.given if not each.code else () for each in messages])
        decided = _decided(kernel, rules, fetch)
    except Exception as error:  # noqa: BLE001 -- both must raise the same error
        return type(error), str(error)
    return _plain(decided.steps), decided.names, decided.resident_bytes, decided.without_time, decided.records


_NAMES: Final = [b"deliver-at", b"Deliver-At", b"deliver-after", b"deliver-to", b"deliver-id", b"deliver-key", b"trace"]
_ODD_NAMES: Final = [b"deliver-cancel", b"deliver-att", b"", b"\xff", b"a\0b", "\N{REPLACEMENT CHARACTER}".encode()]
_names = st.sampled_from(_NAMES) | st.sampled_from(_ODD_NAMES) | st.just("\N{SNOWMAN}".encode())
_contents = (
    st.none() | st.sampled_from([b"", b"t", b"10s", b"%d" % (NOW_MS + 9_000), b"%d" % NOW_MS]) | st.binary(max_size=90)
)
_good = st.lists(st.tuples(_names, _contents), max_size=5).map(_encoded)


@st.composite
def _damaged(draw: st.DrawFn) -> bytes:
    raw = bytearray(draw(_good))
    for _ in range(draw(st.integers(1, 3))):
        if raw:
            raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    return bytes(raw[: draw(st.integers(0, len(raw)))])


_raw_headers = _good | st.just(_encoded([(b"x", b"1")] * 101)) | st.just(b"")
_messages = st.lists(
    st.builds(
        RawMessage,
        st.integers(0, 2**63 - 2),
        _raw_headers,
        st.none() | st.binary(max_size=200),
        st.none() | st.binary(max_size=200),
        st.sampled_from([NOW_MS, 0, -1, 2**63 - 1]),
    ),
    max_size=6,
)


@given(_messages, st.sampled_from([RULES, BEFORE]))
def test_it_is_decided_as_what_is_handed_over(messages: list[RawMessage], rules: Rules) -> None:
    for message in messages:
        # Messages are judged one by one, since malformed headers end a fetch.
        assert _outcome(NATIVE, rules, [message]) == _outcome(PYTHON, rules, [message])
    sound = [message for message in messages if not isinstance(_outcome(PYTHON, rules, [message])[0], type)]
    assert _outcome(NATIVE, rules, sound) == _outcome(PYTHON, rules, sound)


@given(_damaged() | st.binary(max_size=12))
def test_damaged_headers_are_rejected_or_read_as_they_are(raw: bytes) -> None:
    """No broker takes them; the kernel must neither crash nor read others."""
    messages = FakeQueue([RawMessage(1, raw, timestamp_ms=NOW_MS)]).reader.read(0, 10, PLENTY)
    [message] = messages.handed(0, 1, KafkaError)
    if not message.is_hidden and message.raw_headers != b"\0":
        assert decode_headers(message.raw_headers) == decode_headers(raw)
    _decided(NATIVE, RULES, RawFetch(messages))


@pytest.mark.parametrize("name", [b"deliver-at\0x", b"\0", b"a\0"])
def test_a_name_that_is_not_shown_whole_is_rejected_where_its_bytes_are_not_found(name: bytes) -> None:
    raw = _encoded([(b"trace", b"1"), (name, b"%d" % NOW_MS), (name.split(b"\0")[0], b"1")])
    queue = FakeQueue([RawMessage(1, raw, timestamp_ms=NOW_MS)], has_memory=False)
    decided = _decided(NATIVE, RULES, RawFetch(queue.reader.read(0, 10, PLENTY)))
    (rejected,) = [step for step in decided.steps if isinstance(step, Rejected)]
    assert rejected.refused.rejection.reason is Reason.UNREADABLE
    assert (
        rejected.refused.rejection.message
        == "The client does not hand over the headers of the record as they are in the log"
    )
    assert rejected.refused.record.headers[0] == ("trace", b"1")


def test_very_many_headers_are_not_looked_at() -> None:
    """They are not turned into objects either, which could take more memory than there is."""
    message = RawMessage(1, _encoded([(b"x", b"")] * 200_000), timestamp_ms=NOW_MS)
    decided = _decided(NATIVE, RULES, RawFetch(FakeQueue([message]).reader.read(0, 10, PLENTY)))
    (rejected,) = [step for step in decided.steps if isinstance(step, Rejected)]
    assert rejected.refused.rejection.reason is Reason.UNREADABLE
    assert len(rejected.refused.record.headers) == 1


def test_a_fetch_ends_where_its_headers_are_enough() -> None:
    messages = [RawMessage(at, _encoded([(b"x", bytes(100))] * 10)) for at in range(1_000)]
    queue = FakeQueue(messages)
    some = [len(queue.reader.read(0, 1_000, 50_000)) for _ in range(3)]
    assert 48 <= some[0] < 48 + 64
    assert some == [some[0]] * 3
    assert len(queue.reader.read(0, 7, PLENTY)) == 7
    assert len(queue.reader.read(0, 0, PLENTY)) == 0


def test_all_is_given_back_once() -> None:
    queue = FakeQueue([RawMessage(at) for at in range(200)])
    messages = queue.reader.read(0, 150, PLENTY)
    messages.cut(100)
    assert (len(messages), messages.next_offset()) == (100, 100)
    assert len(messages.handed(0, 2**40, KafkaError)) == 100
    assert messages.handed(100, 150, KafkaError) == messages.handed(5, 2, KafkaError) == []
    messages.release()
    messages.release()
    assert (len(messages), messages.next_offset(), queue.given_back) == (0, None, 150)
    assert messages.handed(0, 1, KafkaError) == []
    assert _decided(NATIVE, RULES, RawFetch(messages)).steps == [[]]
    del messages
    assert queue.given_back == 150
    left = queue.reader.read(0, 150, PLENTY)
    queue.reader.close()
    assert len(queue.reader.read(0, 150, PLENTY)) == 0
    del left
    assert queue.given_back == 200


def test_errors_are_events_and_the_end_of_the_log_is_one() -> None:
    end = RawMessage(7, code=KafkaError._PARTITION_EOF)
    assert _outcome(NATIVE, RULES, [RawMessage(6), end]) == _outcome(PYTHON, RULES, [RawMessage(6), end])
    messages = FakeQueue([RawMessage(6), end]).reader.read(0, 10, PLENTY)
    assert (messages.errors(), messages.next_offset()) == ([1], 7)
    broken = RawMessage(7, code=KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(ClusterError, match="it broke"):
        _decided(NATIVE, RULES, RawFetch(FakeQueue([RawMessage(6), broken]).reader.read(0, 10, PLENTY)))


# Tests with a client.


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    with MockBroker() as broker:
        yield broker


def _tails(broker: MockBroker) -> TailClients:
    return TailClients(lambda _: _consumer(broker))


def _consumer(broker: MockBroker) -> Consumer:
    return WatchedConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "tail",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 5,
            "log_level": 0,
        }
    )


def _tail(broker: MockBroker, kernel: Kernel, at: TopicPartition) -> Tail:
    if kernel.is_native:
        return NativeTail(_tails(broker).lend(LIMITS, at), kernel, at, MOST_BYTES)
    return PythonTail(_consumer(broker), at, MOST_BYTES)


def _written(broker: MockBroker, topic: str, count: int) -> None:
    broker.producer.begin_transaction()
    for number in range(count):
        broker.producer.produce(
            topic,
            None if number % 5 == 0 else b"value %d" % number,
            [None, b"", b"key"][number % 3],
            0,
            timestamp=NOW_MS + number,
            headers=[
                ("deliver-at", b"%d" % (NOW_MS + number * 100)),
                ("trace", [None, b"", b"1"][number % 3]),
                *[("\N{SNOWMAN}", b"2")] * (number % 4),
                *[("deliver-cancel", b"7")] * (number % 7 == 0),
            ],
        )
    broker.producer.commit_transaction()


@pytest.mark.parametrize("rules", [RULES, BEFORE], ids=["now", "before"])
def test_a_client_gives_the_same_either_way(broker: MockBroker, rules: Rules) -> None:
    topic = f"same-{rules.version}"
    _written(broker, topic, 300)
    found: dict[str, list[Any]] = {}
    for kernel in (PYTHON, NATIVE):
        tail, read_to = _tail(broker, kernel, TopicPartition(topic, 0, 0)), 0
        steps: list[Any] = []
        # The last offset is the marker of the transaction.
        while read_to < 301:
            read = tail.read(0.25, 100)
            if read is not None:
                assert read.stumbled is None
                steps += _decided(kernel, rules, read.fetch).steps
                read_to = read.next_offset or 0
        assert tail.log_end() == 301
        tail.close()
        # The end of a fetch is random.
        flat = [entry for step in steps for entry in (step if isinstance(step, list) else [step])]
        payloads = [entry[2] for entry in flat if isinstance(entry, tuple) and type(entry) is tuple]
        rest = [entry[:2] if type(entry) is tuple else _plain(entry) for entry in flat]
        kinds = [type(payload).__name__ for payload in payloads]
        found[kernel.name] = [rest, kinds, records_of(payloads)]
    assert found["native"] == found["python"]
    assert isinstance(found["native"][2][0], Record)


@pytest.mark.parametrize("kernel", [PYTHON, NATIVE], ids=lambda each: each.name)
def test_an_offset_that_is_not_there_is_an_error(broker: MockBroker, kernel: Kernel) -> None:
    _written(broker, "short", 3)
    tail = _tail(broker, kernel, TopicPartition("short", 0, 1_000))
    read = None
    while read is None:
        read = tail.read(0.25, 100)
    with pytest.raises(ClusterError) as raised:
        _decided(kernel, RULES, read.fetch)
    assert raised.value.code == "_AUTO_OFFSET_RESET"
    tail.close()


@pytest.mark.parametrize("kernel", [PYTHON, NATIVE], ids=lambda each: each.name)
def test_it_closes_with_messages_that_nobody_has_looked_at(broker: MockBroker, kernel: Kernel) -> None:
    _written(broker, f"left-{kernel.name}", 200)
    connects = Connects(_tails(broker), lambda: _consumer(broker))
    fetching = Fetching(connects, TopicPartition(f"left-{kernel.name}", 0, 0), kernel)
    fetch = None
    while fetch is None:
        fetch = fetching.read(0.25, 20)
    fetching.close()


@pytest.mark.parametrize("kernel", [PYTHON, NATIVE], ids=lambda each: each.name)
def test_a_record_that_is_too_large_is_stepped_over(broker: MockBroker, kernel: Kernel) -> None:
    topic, sizes = f"large-{kernel.name}", [10, 1_001, 1_000, 1_002, 1_003, 20]
    broker.producer.begin_transaction()
    for size in sizes:
        broker.producer.produce(topic, bytes(size), partition=0, headers=[("name", b"value")])
    broker.producer.commit_transaction()
    connects = Connects(_tails(broker), lambda: _consumer(broker), LIMITS, 1_000)
    fetching = Fetching(connects, TopicPartition(topic, 0, 0), kernel)
    bad: list[tuple[int, int]] = []
    found: list[tuple[int, int]] = []
    while not found or found[-1][0] < len(sizes) - 1:
        fetch = fetching.read(0.25, 100)
        if fetch is not None and fetch.bad is not None:
            bad.append((fetch.bad.from_offset, fetch.bad.to_offset))
            assert fetch.bad.why == f"a record of {sizes[bad[-1][0]]} bytes, more than receive.message.max.bytes=1000"
        elif fetch is not None:
            some = [message for message, _ in fetch.some(0, 100) if message.error() is None]
            found += [(message.offset() or 0, len(message.value() or b"")) for message in some]
    fetching.close()
    assert bad == [(1, 2), (3, 4), (4, 5)]
    assert found == [(0, 10), (2, 1_000), (5, 20)]


@pytest.mark.parametrize("kernel", [PYTHON, NATIVE], ids=lambda each: each.name)
def test_it_is_closed_once_reading_could_not_go_on(
    broker: MockBroker, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, closed = f"stuck-{kernel.name}", list[Tail]()
    for kind in (PythonTail, NativeTail):

        def close(tail: Any, before: Callable[[Any], None] = kind.close) -> None:
            closed.append(tail)
            before(tail)

        monkeypatch.setattr(kind, "close", close)
    _written(broker, topic, 2)
    tails = _tails(broker)
    fetching = Fetching(Connects(tails, lambda: _consumer(broker), LIMITS, 1), TopicPartition(topic, 0, 0), kernel)
    tails.make = _refuse
    with pytest.raises(KafkaException):
        _read_often(fetching)
    fetching.close()
    assert len(closed) == 1


def _read_often(fetching: Fetching) -> None:
    for _ in range(100):
        fetching.read(0.25, 100)


def _refuse(_: object) -> Consumer:
    raise KafkaException(KafkaError(KafkaError._INVALID_ARG))


@settings(max_examples=30)
@given(st.integers(-1, 3), st.integers(-(2**31), 2**31 - 1), st.integers(-5, 5))
def test_no_place_is_outside_of_what_was_read(start: int, stop: int, most: int) -> None:
    messages = FakeQueue([RawMessage(at) for at in range(3)]).reader.read(0, most, PLENTY)
    assert len(messages) == max(0, min(most, 3))
    assert len(messages.handed(start, stop, KafkaError)) <= len(messages)
