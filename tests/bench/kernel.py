"""Measures the saving by the kernel for each task, in us of CPU per record: ``make bench-kernel``, without a broker.

The producer has no broker to send to, so that only the working thread is measured. Rounds of Python and of the kernel
alternate in one run, and the median of each is printed.
"""

import gc
import sys
import time
from array import array
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, Final, TypeAlias

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from index.pending.pending import Entry
from index.pending.progress import Position, Progress
from index.protocol.headers import NATIVE, Headers, StrippedNames
from index.protocol.record import Record
from index.protocol.schedule import KEEP_KEY, Schedule
from index.rules.rule_history import RuleHistory
from index.rules.rules import Rules
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.engine.intake.decided import Decided
from sidecar.engine.intake.deciding import Deciding
from sidecar.engine.payload.records import Scheduled
from sidecar.engine.release.transaction import Transaction
from sidecar.kafka.reading.fetching import Connects, Fetching
from sidecar.kafka.reading.tail_clients import TailClients
from sidecar.kafka.reading.tails import Fetch
from sidecar.kafka.writing.writer import PartitionWriter
from sidecar.kernel.choice import PYTHON, Kernel
from sidecar.kernel.jobs import KERNEL
from sidecar.kernel.librdkafka import WatchedConsumer, WatchedProducer
from sidecar.process.host.budget import PayloadBudget
from sidecar.process.host.read_ahead import FETCH_RECORDS, WAIT_S
from snapshots.segments.rows import RowPacker
from spark_backfill import kernel as spark_kernel
from spark_backfill.buckets.decisions import decisions, milliseconds
from tests.support.mock_broker import MockBroker

RECORDS: Final = 50_000
SEGMENT_RECORDS: Final = 2_500
"""The records of one segment, with 200 bytes of value each."""

BATCH_RECORDS: Final = 10_000
"""The size of one batch from Spark."""

LOG_RECORDS: Final = 15_000
"""Records with 200 bytes of value: the capacity of a partition in the in-process broker."""

ROUNDS: Final = 7
DUE_MS: Final = 1_800_000_000_000

Work: TypeAlias = Callable[[Kernel], float]
"""Processes some records, and returns the us of CPU per record."""


def main() -> None:
    """Measure and print. Exit with an error if there is no kernel."""
    native = Kernel.chosen({})
    if native.why_not:
        sys.exit(f"no kernel: {native.why_not}")
    entries = [_entry(offset) for offset in range(RECORDS)]
    segment = _Segment(entries[:SEGMENT_RECORDS])
    # The router also switches it off.
    gc.disable()
    with MockBroker() as broker:
        _measure(native, entries, segment, broker)


def _measure(native: Kernel, entries: list[Entry[Scheduled]], segment: "_Segment", broker: MockBroker) -> None:
    works: dict[str, Work] = {
        "release": lambda kernel: _release_us(kernel, entries),
        "join rows into segments": segment.join_us,
        "decode segments": segment.decode_us,
        "read and decide what is due soon": _Log(broker, "soon", -60_000).read_us,
        "read, decide and pack what is due later": _Log(broker, "later", 3_600_000).read_us,
        "decide what is due soon": _Fetches(-60_000).decide_us,
        "decide and pack what is due later": _Fetches(3_600_000).decide_us,
        "decide and pack a batch of a Spark job": _Batches().decide_us,
    }
    for name, work in works.items():
        sys.stdout.write(f"{name}, us of CPU a record: {_compared(native, work)}\n")


def _compared(native: Kernel, work: Work) -> str:
    rounds = [(work(PYTHON), work(native)) for _ in range(ROUNDS)]
    python_us, native_us = (median(column) for column in zip(*rounds, strict=True))
    ratio = median(python / native for python, native in rounds)
    return f"python {python_us:.2f}, native {native_us:.2f}, {ratio:.1f} x"


def _entry(offset: int) -> Entry[Scheduled]:
    due_ms = DUE_MS + offset // 7
    headers = [("deliver-at", b"%d" % due_ms), ("trace-id", b"%d" % offset)]
    schedule = Schedule(due_ms, ("orders",), -1, KEEP_KEY, None, both_times=False)
    return (due_ms, offset, Scheduled(schedule, 800, Record(b"%d" % offset, bytes(200), headers, DUE_MS - offset)))


def _release_us(kernel: Kernel, entries: list[Entry[Scheduled]]) -> float:
    producer = WatchedProducer({"queue.buffering.max.messages": 1_000_000, "log_level": 0})
    stripped = StrippedNames(alias.name for alias in NATIVE)
    writer = PartitionWriter(
        producer, DelayTopicConfig(name="delays", default_target="orders"), 0, stripped, "", kernel
    )
    transaction = Transaction(entries, [], Progress(0, Position(0, 0), 0))
    took_us = _cpu_us(lambda: writer.release_all(transaction), len(entries))
    assert len(producer) >= len(entries), "not everything was taken"
    producer.purge()
    producer.flush(0)
    return took_us


class _Segment:
    """The benchmark's records on their way into a segment, and out of it."""

    def __init__(self, entries: list[Entry[Scheduled]]) -> None:
        packer = RowPacker()
        self._dues_ms = array("q", [due_ms for due_ms, _, _ in entries])
        self._offsets = array("Q", [offset for _, offset, _ in entries])
        records = [scheduled.record for _, _, scheduled in entries if scheduled.record]
        self._timestamps_ms = array("q", [record.timestamp_ms for record in records])
        packed = [packer.pack(record.key, record.value, record.headers) for record in records]
        rows = [row for row in packed if row is not None]
        self._sizes, self._body = array("i", map(len, rows)), b"".join(rows)
        self._names = packer.names
        self._value = self._joined(PYTHON)

    def _joined(self, kernel: Kernel) -> bytes:
        numbers = self._dues_ms, self._offsets, self._timestamps_ms
        return kernel.codec.encode_body(*numbers, self._sizes, self._body, self._names)

    def join_us(self, kernel: Kernel) -> float:
        return _cpu_us(lambda: [self._joined(kernel) for _ in range(RECORDS // SEGMENT_RECORDS)], RECORDS)

    def decode_us(self, kernel: Kernel) -> float:
        decode, value = kernel.codec.decode_columns, self._value
        return _cpu_us(lambda: [len(decode(value).records) for _ in range(RECORDS // SEGMENT_RECORDS)], RECORDS)


class _Fetches:
    """Records as they are read, due this long after they are decided."""

    def __init__(self, ahead_ms: int) -> None:
        # A list of headers for each, as the client makes them.
        read = [
            (
                Message(offset=offset, key=b"%d" % offset, value=bytes(200), timestamp=(1, DUE_MS)),
                _headers(ahead_ms + offset),
            )
            for offset in range(RECORDS)
        ]
        some = [read[at : at + FETCH_RECORDS] for at in range(0, RECORDS, FETCH_RECORDS)]
        self._fetches = [Fetch([message for message, _ in each], [headers for _, headers in each]) for each in some]

    def decide_us(self, kernel: Kernel) -> float:
        history, budget = RuleHistory.beginning(0, Rules("delays", default_target="orders")), PayloadBudget(1 << 40)
        deciding = Deciding(history, budget, now_ms=lambda: DUE_MS, soon_ms=60_000, native=kernel.decider)
        # The result is kept, since the measurement must exclude its deallocation.
        return _cpu_us(lambda: [deciding.decide(fetch) for fetch in self._fetches], RECORDS)


class _Batches:
    """The benchmark's records as Spark hands them to a job: columns of Arrow."""

    def __init__(self) -> None:
        self._batches = [self._batch(range(at, at + BATCH_RECORDS)) for at in range(0, RECORDS, BATCH_RECORDS)]

    def _batch(self, offsets: range) -> pa.RecordBatch:
        headers = [[{"key": name, "value": raw} for name, raw in _headers(3_600_000 + offset)] for offset in offsets]
        columns = {
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([DUE_MS * 1_000] * len(offsets), pa.timestamp("us", "UTC")),
            "key": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
            "value": pa.array([bytes(200)] * len(offsets), pa.binary()),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
        return pa.RecordBatch.from_pydict(columns)

    def decide_us(self, kernel: Kernel) -> float:
        chosen = spark_kernel.TaskKernel(KERNEL if kernel.is_native else None)
        deciding = decisions(chosen, Rules("delays", default_target="orders"), packs=True, answered=False)
        works = [partial(deciding.of, each, milliseconds(each.column("timestamp"))) for each in self._batches]
        return _cpu_us(lambda: [work() for work in works], RECORDS)


class _Log:
    """The benchmark's records in a log of the in-process broker, up to its capacity."""

    def __init__(self, broker: MockBroker, topic: str, ahead_ms: int) -> None:
        self._broker = broker
        self._topic = topic
        broker.producer.begin_transaction()
        for offset in range(LOG_RECORDS):
            headers: list[Any] = [*_headers(ahead_ms + offset)]
            broker.producer.produce(topic, bytes(200), b"%d" % offset, 0, timestamp=DUE_MS, headers=headers)
            broker.producer.poll(0)
        broker.producer.commit_transaction()

    def read_us(self, kernel: Kernel) -> float:
        fetching = Fetching(
            Connects(TailClients(lambda _: self._connect()), self._connect), TopicPartition(self._topic, 0, 0), kernel
        )
        history, budget = RuleHistory.beginning(0, Rules("delays", default_target="orders")), PayloadBudget(1 << 40)
        deciding = Deciding(history, budget, now_ms=lambda: DUE_MS, soon_ms=60_000, native=kernel.decider)
        kept: list[Decided] = []
        read = 0

        def read_all() -> None:
            nonlocal read
            while read < LOG_RECORDS:
                fetch = fetching.read(WAIT_S, FETCH_RECORDS)
                if fetch is not None:
                    kept.append(deciding.decide(fetch))
                    read += kept[-1].records

        took_us = _cpu_us(read_all, LOG_RECORDS)
        fetching.close()
        return took_us

    def _connect(self) -> Consumer:
        settings = {"enable.partition.eof": True, "fetch.wait.max.ms": 5, "log_level": 0}
        return WatchedConsumer({"bootstrap.servers": self._broker.bootstrap, "group.id": "bench", **settings})


def _headers(ahead_ms: int) -> Headers:
    return [("deliver-at", b"%d" % (DUE_MS + ahead_ms)), ("trace-id", b"%d" % ahead_ms)]


def _cpu_us(work: Callable[[], object], records: int) -> float:
    began_s = time.thread_time()
    work()
    return (time.thread_time() - began_s) * 1e6 / records


if __name__ == "__main__":
    main()
