"""Sends records to a retry topic at a constant rate, and fails with each that comes back, in a separate process.

Each record goes up the whole ladder: it comes back once in each attempt, and then in the dead-letter topic.
"""

import time
from array import array
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.bench import child, workload
from tests.bench.released import CHUNK, CONSUMER, lateness_between
from tests.bench.results import BenchmarkFailed

TICK_S: Final = 0.005
LINGER_MS: Final = 5
NUMBER: Final = "number"
"""The header that tells records apart."""

AFTERMATH_S: Final = 2.0
"""Time to read on after the last arrival: a record that comes once more is doubled."""


class Arrivals:
    """The arrivals of ``records`` records, each in ``attempts`` attempts and then in the dead-letter topic."""

    def __init__(self, records: int, attempts: int) -> None:
        self._expected = records * (attempts + 1)
        self._attempts = attempts
        self._seen: set[int] = set()
        self.due_ms = array("q")
        self.appended_ms = array("q")
        self.doubled = 0

    @property
    def lost(self) -> int:
        """The number of arrivals that are missing."""
        return self._expected - len(self._seen)

    def add(self, headers: Mapping[str, Any], appended_ms: int) -> bool:
        """Count an arrival; return whether its consumer is to send it back."""
        number, attempt = int(headers[NUMBER]), int(headers["delay-attempt"])
        is_exhausted = "delay-attempts-exhausted" in headers
        step = number * (self._attempts + 1) + (self._attempts if is_exhausted else attempt - 1)
        if step in self._seen:
            self.doubled += 1
            return False
        self._seen.add(step)
        if not is_exhausted:
            # What is exhausted leaves at once, and is due when it is written.
            self.due_ms.append(int(headers["delay-due"]))
            self.appended_ms.append(appended_ms)
        return not is_exhausted


def fail(
    bootstrap: str, topic: str, targets: list[str], per_s: float, seconds: float, attempts: int, ladder_s: float
) -> None:
    """Send for so many seconds, and answer with the lateness of the time in which the whole ladder is busy."""
    producer = workload.ordered_producer(bootstrap, LINGER_MS)
    consumer = Consumer({"bootstrap.servers": bootstrap, **CONSUMER})
    consumer.assign([TopicPartition(each, 0, 0) for each in targets])
    total, sent, failures, steady = int(per_s * seconds), 0, 0, 0
    arrivals = Arrivals(total, attempts)
    began_s, began_ms = time.monotonic(), workload.now_ms()
    until_s = began_s + seconds + 2 * ladder_s + AFTERMATH_S + 60
    whole_s = 0.0
    while (now_s := time.monotonic()) < until_s:
        wanted = min(int((now_s - began_s + TICK_S) * per_s), total)
        back: list[workload.Headers] = [[(NUMBER, b"%d" % number)] for number in range(sent, wanted)]
        sent = wanted
        for message in consumer.consume(CHUNK, TICK_S):
            error = message.error()
            if error is None:
                headers: Any = message.headers()
                if arrivals.add(dict(headers), message.timestamp()[1]):
                    back.append(headers)
            elif error.code() != KafkaError._PARTITION_EOF:
                raise BenchmarkFailed(str(error))
        for each in back:
            workload.produce(producer, topic, each)
        failures += len(back)
        steady += len(back) if ladder_s <= now_s - began_s < seconds else 0
        producer.poll(0)
        if not arrivals.lost:
            whole_s = whole_s or now_s
            if now_s > whole_s + AFTERMATH_S:
                break
    consumer.close()
    from_ms, to_ms = (began_ms + int(after_s * 1_000) for after_s in (ladder_s, seconds))
    lateness = lateness_between(arrivals.due_ms, arrivals.appended_ms, from_ms, to_ms)
    child.answer(
        late_ms=list(lateness.sorted_ms),
        failures_per_s=steady / (seconds - ladder_s),
        failures=failures,
        lost=arrivals.lost,
        doubled=arrivals.doubled,
    )


if __name__ == "__main__":
    fail(**child.arguments())
