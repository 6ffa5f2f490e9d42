"""Records that the kernel writes: equal to Python's byte for byte, in the same order and with the same errors."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import given, settings
from hypothesis import strategies as st

from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from index.protocol.headers import MAX_REMEMBERED, NATIVE, StrippedNames
from index.protocol.record import Record
from index.protocol.recurring import Occurrence
from index.protocol.schedule import AT_ONCE, BY_KEY, KEEP_KEY, NO_EXPIRY, Attempted, Schedule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.transaction import Timestamps, Transaction
from sidecar.kafka.writing.writer import PartitionWriter
from sidecar.kernel.choice import PYTHON, Kernel
from sidecar.kernel.librdkafka import WatchedProducer
from tests.support.kernel import native_kernel
from tests.support.mock_broker import PARTITIONS, MockBroker, Seen
from tests.support.paths import ROOT

NATIVE_KERNEL = native_kernel()
TARGETS = ("orders", "billing")
DUE_MS = 4_000_000_000_000
PROGRESS = Progress(0, Position(0, 0), 0)
RELEASE = {None: 0}

_contents = st.none() | st.binary(max_size=9)
_times = st.sampled_from([-1, 0, 1, 9, 10, DUE_MS, 2**60]) | st.integers(-(2**60), 2**60)
_names = st.sampled_from(
    [
        "deliver-at",
        "Deliver-Unknown",
        "trace",
        "Trace",
        "delay-source",
        "delay-hops",
        "delay-id",
        "Delay-Attempt",
        "delay-target",
        "delay-attempts-exhausted",
        "",
        "a\0b",
        "\N{SNOWMAN}",
    ]
)
_records = st.builds(Record, _contents, _contents, st.lists(st.tuples(_names, _contents), max_size=5), _times)
_schedules = st.builds(
    Schedule,
    st.just(0),
    st.sampled_from([TARGETS[:1], TARGETS[:1], TARGETS[1:], TARGETS]),
    st.integers(BY_KEY, PARTITIONS - 1),
    st.just(KEEP_KEY) | _contents,
    _contents,
    st.booleans(),
    st.just(NO_EXPIRY),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([None, None, None, Attempted(2), Attempted(8, exhausted=True)]),
)
_dues = st.sampled_from([AT_ONCE, 1, DUE_MS, 2**60])
_entries = st.lists(
    st.tuples(
        _dues,
        st.sampled_from([0, 9, 10]) | st.integers(0, 2**63 - 1),
        st.builds(Scheduled, _schedules, st.just(1), _records),
    ).filter(lambda entry: entry[0] or not entry[2].schedule.shift_ms),
    max_size=20,
)
_modes = st.sampled_from(["release", "due", "source"])


def _writer(producer: Producer, kernel: Kernel) -> PartitionWriter:
    stripped = StrippedNames(alias.name for alias in NATIVE)
    return PartitionWriter(
        producer, DelayTopicConfig(name="delays", default_target="orders"), 3, stripped, "id", kernel
    )


def _entry(offset: int, record: Record | None = None, **schedule: Any) -> Entry[Scheduled]:
    asked = Schedule(DUE_MS, ("orders",), 0, KEEP_KEY, None, both_times=False)._replace(**schedule)
    return (asked.due_ms, offset, Scheduled(asked, 100, record or Record(b"k", b"v", [("trace", b"1")], DUE_MS - 1)))


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, MockBroker]]:
    with ExitStack() as stack:
        yield {each.name: stack.enter_context(MockBroker()) for each in (PYTHON, NATIVE_KERNEL)}


def _released(broker: MockBroker, kernel: Kernel, entries: Sequence[Entry[Scheduled]], modes: Timestamps) -> list[Seen]:
    writer = _writer(broker.producer, kernel)
    broker.producer.begin_transaction()
    writer.release_all(Transaction(entries, [], PROGRESS, timestamps=modes))
    broker.producer.commit_transaction()
    return broker.written(*TARGETS)


def _comparable(seen: Seen) -> Seen:
    # Without a key, librdkafka draws a random partition. The time of release differs between runs; no other timestamp
    # is near it.
    is_now = abs(seen.timestamp_ms - time.time() * 1_000) < 3_600_000
    at = seen._replace(timestamp_ms=0) if is_now else seen
    return at._replace(partition=-1) if seen.key is None else at


@settings(max_examples=150)
@given(entries=_entries, mode=_modes, own=st.dictionaries(st.sampled_from(TARGETS), _modes))
def test_it_writes_what_python_writes(
    brokers: dict[str, MockBroker], entries: list[Entry[Scheduled]], mode: str, own: dict[str, str]
) -> None:
    modes = Timestamps(mode, own)
    written = {
        kernel.name: _released(brokers[kernel.name], kernel, entries, modes) for kernel in (PYTHON, NATIVE_KERNEL)
    }
    python, native = (
        sorted((_comparable(each) for each in written[kernel.name]), key=repr) for kernel in (PYTHON, NATIVE_KERNEL)
    )
    assert native == python
    assert len(native) == sum(len(scheduled.schedule.targets) for _, _, scheduled in entries)


def test_what_was_spread_says_when_it_was_due_and_by_how_much(brokers: dict[str, MockBroker]) -> None:
    for kernel in (PYTHON, NATIVE_KERNEL):
        spread = [_entry(7, due_ms=DUE_MS + 70, shift_ms=70), _entry(8)]
        (first, second) = _released(brokers[kernel.name], kernel, spread, Timestamps("due"))
        assert (first.timestamp_ms, dict(first.headers)["delay-due"]) == (DUE_MS, b"%d" % DUE_MS)
        assert first.headers[-1] == ("delay-spread", b"70")
        assert "delay-spread" not in dict(second.headers)


def test_records_of_a_partition_stay_in_order_whoever_writes_them(brokers: dict[str, MockBroker]) -> None:
    odd = {7, 8, 1_500, 2_999}
    entries = [
        _entry(offset, targets=TARGETS if offset in odd else TARGETS[:1], key=b"%d" % offset) for offset in range(3_000)
    ]
    seen = _released(brokers["native"], NATIVE_KERNEL, entries, Timestamps())
    assert [each.key for each in seen if each.topic == "orders"] == [b"%d" % offset for offset in range(3_000)]
    assert {each.key for each in seen if each.topic == "billing"} == {b"%d" % offset for offset in odd}


def test_the_headers_of_a_released_record(brokers: dict[str, MockBroker]) -> None:
    record = Record(b"k", b"", [("deliver-at", b"1"), ("a", None), ("a", b""), ("delay-due", b"9")], -1)
    entries = [_entry(2**63 - 1, record, deliver_id=b"mine"), _entry(0, record, due_ms=AT_ONCE)]
    first, second = _released(brokers["native"], NATIVE_KERNEL, entries, Timestamps())
    assert first.headers == (
        ("a", None),
        ("a", b""),
        ("delay-due", b"%d" % DUE_MS),
        ("delay-source", b"delays/3/%d" % (2**63 - 1)),
        ("delay-source-timestamp", b"-1"),
        ("delay-id", b"mine"),
    )
    assert dict(second.headers)["delay-due"] == b"0"
    assert (first.key, first.value) == (b"k", b"")


def test_the_headers_of_an_attempt(brokers: dict[str, MockBroker]) -> None:
    came = [("delay-attempt", b"1"), ("a", b"7"), ("DELAY-TARGET", b"x"), ("delay-attempts-exhausted", b"8")]
    (seen,) = _released(
        brokers["native"], NATIVE_KERNEL, [_entry(5, _PLAIN._replace(headers=came), attempt=Attempted(2))], Timestamps()
    )
    assert seen.headers[0] == ("a", b"7")
    assert seen.headers[-2:] == (("delay-attempt", b"2"), ("delay-target", b"orders"))
    assert len(seen.headers) == 6


def test_it_writes_a_record_with_an_attempt_left() -> None:
    producer = WatchedProducer({})
    entries = [_entry(0, attempt=Attempted(1)), _entry(1, attempt=Attempted(1_000, jitter_ms=5)), _entry(2)]
    assert _native(producer).release(entries, 0, 10, RELEASE) == (3, 0)
    producer.purge()
    producer.flush(0)


def test_occurrences_of_a_series_are_written_as_such(brokers: dict[str, MockBroker]) -> None:
    broker = brokers["native"]
    writer = _writer(broker.producer, NATIVE_KERNEL)
    broker.producer.begin_transaction()
    occurrences = {1: Occurrence(0, 2, DUE_MS)}
    writer.release_all(Transaction([_entry(0), _entry(1)], [], PROGRESS, occurrences=occurrences))
    broker.producer.commit_transaction()
    once, again = (dict(each.headers) for each in broker.written("orders"))
    assert again.keys() - once.keys() == {"delay-occurrence", "delay-series"}
    assert (again["delay-occurrence"], again["delay-series"]) == (b"2", b"delays/3/0")


def _native(producer: Producer) -> Any:
    return NATIVE_KERNEL.writer(producer, StrippedNames(["deliver-at"]), b"d/0/")


class _Listed(list[Any]):
    pass


_PLAIN = Record(b"k", b"v", [], 0)
_TEXT: Any = "text"


@pytest.mark.parametrize(
    "odd",
    [
        _entry(1, targets=("a", "b")),
        _entry(1, targets=()),
        _entry(1, targets=("a\0b",)),
        _entry(1, attempt=Attempted(8, exhausted=True)),
        _entry(1, attempt=(1, False)),
        _entry(1, attempt=2),
        _entry(1, targets=("\ud800",)),
        _entry(1, partition=2**31),
        _entry(1, partition=-2),
        _entry(2**63),
        _entry(1, due_ms=2**63),
        _entry(1, _PLAIN._replace(timestamp_ms=-(2**63) - 1)),
        _entry(1, key="text"),
        _entry(1, _PLAIN._replace(headers=[("a\0b", b"")])),
        _entry(1, _PLAIN._replace(headers=[("\ud800", b"")])),
        _entry(1, _PLAIN._replace(headers=[("a", _TEXT)])),
        _entry(1, _PLAIN._replace(headers=_Listed())),
        _entry(1, _PLAIN._replace(headers=[("delay-source", b"x")]), due_ms=AT_ONCE),
        (DUE_MS, 1, Scheduled(_entry(1)[2].schedule, 1, None)),
        (DUE_MS, 1),
        None,
    ],
)
def test_it_stops_in_front_of_what_is_for_python_to_do(odd: Any) -> None:
    producer = WatchedProducer({})
    native = _native(producer)
    assert native.release([_entry(0), odd, _entry(2)], 0, 10, RELEASE) == (1, 0)
    assert native.release([_entry(0), odd, _entry(2)], 1, 10, RELEASE) == (1, 0)
    assert native.release([_entry(0), odd, _entry(2)], 2, 10, RELEASE) == (3, 0)
    producer.purge()
    producer.flush(0)


def test_it_takes_so_many_and_no_more() -> None:
    producer = WatchedProducer({})
    native, entries = _native(producer), [_entry(offset) for offset in range(10)]
    assert native.release(entries, 2, 3, RELEASE) == (5, 0)
    for start, most in ((0, 0), (0, -1), (-1, 3), (10, 1), (2**40, 1)):
        assert native.release(entries, start, most, RELEASE) == (start, 0)
    assert native.release(entries, 0, 2**40, RELEASE) == (10, 0)
    producer.purge()
    producer.flush(0)


def test_what_librdkafka_does_not_take_is_named_and_nothing_of_it_is_written() -> None:
    producer = WatchedProducer({"queue.buffering.max.messages": 3})
    entries = [_entry(offset) for offset in range(5)]
    assert _native(producer).release(entries, 0, 10, RELEASE) == (3, KafkaError._QUEUE_FULL)
    producer.purge()
    producer.flush(0)


def test_a_full_queue_is_waited_for() -> None:
    with MockBroker(**{"queue.buffering.max.messages": 10}) as broker:
        entries = [_entry(offset, key=b"%d" % offset) for offset in range(100)]
        seen = _released(broker, NATIVE_KERNEL, entries, Timestamps())
        assert [each.key for each in seen] == [b"%d" % offset for offset in range(100)]


@pytest.mark.parametrize("kernel", [PYTHON, NATIVE_KERNEL], ids=lambda each: each.name)
def test_a_record_that_is_too_large_is_the_same_error(kernel: Kernel) -> None:
    with MockBroker(**{"message.max.bytes": 2_000}) as broker:
        entries = [_entry(0), _entry(1, Record(b"k", bytes(3_000), [], 0)), _entry(2)]
        with pytest.raises(KafkaException) as raised:
            _released(broker, kernel, entries, Timestamps())
        assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
        broker.producer.commit_transaction()
        assert len(broker.written("orders")) == 1


def test_more_names_than_are_remembered_are_all_judged() -> None:
    producer = WatchedProducer({})
    headers = [(f"name-{number}", b"") for number in range(MAX_REMEMBERED + 10)]
    entries = [_entry(number, Record(None, None, headers, 0)) for number in range(3)]
    assert _native(producer).release(entries, 0, 10, RELEASE) == (3, 0)
    producer.purge()
    producer.flush(0)


def test_a_source_that_no_topic_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than any topic name"):
        NATIVE_KERNEL.writer(WatchedProducer({}), StrippedNames([]), bytes(301))


@pytest.mark.parametrize("seed", range(3))
def test_no_entry_whatever_it_is_ends_the_process(seed: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONFAULTHANDLER": "1"}
    script = Path(__file__).parents[3] / "support" / "garbage.py"
    done = subprocess.run(
        [sys.executable, str(script), str(seed), "3000"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[:1]) == (0, ["taken"]), done.stderr
    taken, left = map(int, done.stdout.split()[1::2])
    assert taken > 0
    assert left > 0
