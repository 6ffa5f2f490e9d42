"""What it costs the worker to write a released record, in Python and by the kernel: ``make bench-kernel``, no broker.

The producer has nobody to send to, so that what is measured is the thread that releases; rounds alternate, and the
middle of each is printed..
"""

import gc
import sys
import time
from statistics import median
from typing import Final

from confluent_kafka import Producer

from index.headers import NATIVE, StrippedNames
from index.pending import Entry
from index.record import Record
from index.schedule import KEEP_KEY, Schedule
from sidecar.config.delay_topic import DelayTopicConfig
from sidecar.kernel.choice import PYTHON, Kernel
from sidecar.payload.records import Scheduled
from sidecar.release.writer import PartitionWriter

RECORDS: Final = 50_000
ROUNDS: Final = 7
DUE_MS: Final = 1_800_000_000_000


def main() -> None:
    """Measure and print; 1 where there is no kernel to measure."""
    native = Kernel.chosen({})
    if native.why_not:
        sys.exit(f"no kernel: {native.why_not}")
    entries = [_entry(offset) for offset in range(RECORDS)]
    # As in the router.
    gc.disable()
    rounds = [(_cpu_us(PYTHON, entries), _cpu_us(native, entries)) for _ in range(ROUNDS)]
    python_us, native_us = (median(column) for column in zip(*rounds, strict=True))
    ratio = median(python / native for python, native in rounds)
    sys.stdout.write(f"release, us of CPU a record: python {python_us:.2f}, native {native_us:.2f}, {ratio:.1f} x\n")


def _entry(offset: int) -> Entry[Scheduled]:
    due_ms = DUE_MS + offset // 7
    headers = [("deliver-at", b"%d" % due_ms), ("trace-id", b"%d" % offset)]
    schedule = Schedule(due_ms, ("orders",), -1, KEEP_KEY, None, both_times=False)
    return (due_ms, offset, Scheduled(schedule, 800, Record(b"%d" % offset, bytes(200), headers, DUE_MS - offset)))


def _cpu_us(kernel: Kernel, entries: list[Entry[Scheduled]]) -> float:
    producer = Producer({"queue.buffering.max.messages": 1_000_000, "log_level": 0})
    stripped = StrippedNames(alias.name for alias in NATIVE)
    writer = PartitionWriter(
        producer, DelayTopicConfig(name="delays", default_target="orders"), 0, stripped, "", kernel
    )
    began_s = time.thread_time()
    writer.release_all(entries)
    took_s = time.thread_time() - began_s
    assert len(producer) >= len(entries), "not everything was taken"
    producer.purge()
    producer.flush(0)
    return took_s * 1e6 / len(entries)


if __name__ == "__main__":
    main()
