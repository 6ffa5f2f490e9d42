"""Reads the target topic back, counts every record, and measures lateness.

The router is not consulted: due times come from the sent records (by position in the delay topic), and the time of
release is the broker's append time.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.bench import workload
from tests.bench.results import BenchmarkFailed, Row, at_most

# The time to wait after the last due time; a router that needs longer has failed.
READ_TIMEOUT_S: Final = 60.0
CHUNK: Final = 10_000

CONSUMER: Final = {
    "group.id": "bench-audit",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "fetch.queue.backoff.ms": 10,
    "fetch.wait.max.ms": 10,
}


NEVER: Final = 1 << 62
NOT_YET: Final = 0


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of released records in ms, ascending, and the last append and due times (epoch ms)."""

    sorted_ms: Sequence[int]
    last_append_ms: int
    last_due_ms: int

    def percentile(self, percent: float) -> int:
        """Return the smallest lateness that ``percent`` of the records do not exceed."""
        rank = -(-len(self.sorted_ms) * percent // 100)
        return self.sorted_ms[max(int(rank), 1) - 1]

    def text(self) -> str:
        """Return the usual percentiles in words."""
        return (
            f"lateness ms: min {self.sorted_ms[0]}, p50 {self.percentile(50)}, p99 {self.percentile(99)}, "
            f"max {self.sorted_ms[-1]}"
        )


def lateness_between(due_ms: Sequence[int], appended_ms: Sequence[int], from_ms: int, to_ms: int) -> Lateness:
    """Return the lateness of the released records due in [from_ms, to_ms]. Raise BenchmarkFailed if there are none."""
    chosen = [
        (due, appended)
        for due, appended in zip(due_ms, appended_ms, strict=True)
        if appended != NOT_YET and from_ms <= due <= to_ms
    ]
    if not chosen:
        raise BenchmarkFailed("no record was due in the time that was to be measured")
    return Lateness(
        sorted(appended - due for due, appended in chosen),
        max(appended for _, appended in chosen),
        max(due for due, _ in chosen),
    )


def lateness_in(due_ms: Sequence[int], appended_ms: Sequence[int], windows: Sequence[tuple[int, int]]) -> Lateness:
    """Return the lateness in several windows together; see ``lateness_between``."""
    parts = [lateness_between(due_ms, appended_ms, from_ms, to_ms) for from_ms, to_ms in windows]
    return Lateness(
        sorted(late_ms for part in parts for late_ms in part.sorted_ms),
        max(part.last_append_ms for part in parts),
        max(part.last_due_ms for part in parts),
    )


def restart(benchmark: str, what: str, appended_ms: Sequence[int], started_ms: int, ready_ms: int, most_ms: int) -> Row:
    """Return the row of a restart after a kill, up to the first release. Raise BenchmarkFailed if there is none."""
    after = [append_ms for append_ms in appended_ms if append_ms >= started_ms]
    if not after:
        raise BenchmarkFailed("nothing was released after the restart")
    return Row(
        benchmark,
        f"{what}: from kill -9 and start to the first release",
        min(after) - started_ms,
        "ms",
        goal=at_most(most_ms),
        detail=f"ready after {ready_ms - started_ms} ms",
    )


class TargetReader:
    """Reads a target topic of one delay partition from its last position, so that several runs can share a router."""

    def __init__(self, bootstrap: str, delay_topic: str, target: str, partition: int = 0) -> None:
        self._bootstrap = bootstrap
        self._prefix = f"{delay_topic}/{partition}/".encode()
        self._target = target
        self._next_offset = 0

    def lateness(self, due_ms_by_offset: Sequence[int], first_offset: int = 0, until_ms: int = NEVER) -> Lateness:
        """Return the lateness of the records due by ``until_ms``; ``append_times`` checks the rest."""
        appended_ms = self.append_times(due_ms_by_offset, first_offset, until_ms)
        return lateness_between(due_ms_by_offset, appended_ms, 0, until_ms)

    def append_times(
        self, due_ms_by_offset: Sequence[int], first_offset: int = 0, until_ms: int = NEVER
    ) -> Sequence[int]:
        """Return the release time of each record, or NOT_YET. Raise BenchmarkFailed if something is wrong.

        ``due_ms_by_offset`` are the due times of the records sent, from ``first_offset`` of the delay topic on. Records
        due by ``until_ms`` must be there, later ones may; none may be doubled, altered or early.
        """
        sent = len(due_ms_by_offset)
        expected = sent if until_ms == NEVER else sum(due_ms <= until_ms for due_ms in due_ms_by_offset)
        appended_ms = array("q", [NOT_YET]) * sent
        for message in self._read(expected):
            place = self._source_of(message) - first_offset
            if not 0 <= place < sent or appended_ms[place]:
                raise BenchmarkFailed(f"released twice or never sent: offset {place + first_offset} of the delay topic")
            if message.value() != workload.VALUE or message.key() != workload.KEY:
                raise BenchmarkFailed(f"altered: the record of offset {place + first_offset}")
            append_ms = message.timestamp()[1]
            if append_ms < due_ms_by_offset[place]:
                raise BenchmarkFailed(f"released {due_ms_by_offset[place] - append_ms} ms before it was due")
            appended_ms[place] = append_ms
        lost = sum(
            not append_ms and due_ms <= until_ms
            for due_ms, append_ms in zip(due_ms_by_offset, appended_ms, strict=True)
        )
        if lost:
            raise BenchmarkFailed(f"lost: {lost} of {expected} records")
        return appended_ms

    def _read(self, expected: int) -> Iterator[Message]:
        """Read until the count is reached, and then to the end of the topic, to find duplicates."""
        consumer = Consumer({"bootstrap.servers": self._bootstrap, **CONSUMER})
        consumer.assign([TopicPartition(self._target, 0, self._next_offset)])
        deadline_ms = workload.now_ms() + int(READ_TIMEOUT_S * 1000)
        count, at_end = 0, False
        while (count < expected or not at_end) and workload.now_ms() < deadline_ms:
            for message in consumer.consume(CHUNK, 0.05):
                error = message.error()
                at_end = error is not None
                if error is None:
                    count += 1
                    yield message
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise BenchmarkFailed(f"{self._target}: {error}")
        self._next_offset = consumer.position([TopicPartition(self._target, 0)])[0].offset
        consumer.close()

    def _source_of(self, message: Message) -> int:
        headers = message.headers()
        for name, value in headers if isinstance(headers, list) else ():
            if name == "delay-source" and isinstance(value, bytes) and value.startswith(self._prefix):
                return int(value.removeprefix(self._prefix))
        raise BenchmarkFailed(f"{self._target}@{message.offset()} does not say which record it was")
