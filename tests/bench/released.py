"""What came out: the target topic read back, every record counted, and how late each was.

Nothing here asks the router: due times come from the records as they were sent (by position in the delay topic), the
time of release is the broker's append time.
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.bench import workload
from tests.bench.results import BenchmarkFailed

# From the last record that was due to the end of waiting; a router that needs longer has failed.
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


@dataclass(frozen=True, slots=True)
class Lateness:
    """Lateness of released records in ms, ascending, and when the last one was appended (epoch ms)."""

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


class TargetReader:
    """Reads a target topic on from where it stopped, so that several runs can share one router."""

    def __init__(self, bootstrap: str, delay_topic: str, target: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = f"{delay_topic}/0/".encode()
        self._target = target
        self._next_offset = 0

    def lateness(self, due_ms_by_offset: Sequence[int], first_offset: int = 0) -> Lateness:
        """Read as many records as were sent; BenchmarkFailed when one is lost, doubled, altered or early.

        ``due_ms_by_offset`` are the due times of the records sent, from ``first_offset`` of the delay topic on.
        """
        expected = len(due_ms_by_offset)
        unseen = bytearray(b"\1") * expected
        late_ms = array("q")
        last_append_ms = 0
        for message in self._read(expected):
            place = self._source_of(message) - first_offset
            if not 0 <= place < expected or not unseen[place]:
                raise BenchmarkFailed(f"released twice or never sent: offset {place + first_offset} of the delay topic")
            unseen[place] = 0
            if message.value() != workload.VALUE or message.key() != workload.KEY:
                raise BenchmarkFailed(f"altered: the record of offset {place + first_offset}")
            append_ms = message.timestamp()[1]
            late_ms.append(append_ms - due_ms_by_offset[place])
            last_append_ms = max(last_append_ms, append_ms)
        if any(unseen):
            raise BenchmarkFailed(f"lost: {sum(unseen)} of {expected} records")
        ordered = sorted(late_ms)
        if ordered[0] < 0:
            raise BenchmarkFailed(f"released {-ordered[0]} ms before it was due")
        return Lateness(ordered, last_append_ms, max(due_ms_by_offset))

    def _read(self, expected: int) -> Iterator[Message]:
        """Read until the count is reached and then to the end of the topic, where doubles would be."""
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
