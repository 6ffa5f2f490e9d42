"""Compares records kept as columns until they are sealed with tuples, in cost and memory: ``make bench-kernel``.

Both are measured in one run without a broker, each in its own process: indexed on arrival, taken in release order and
cut, joined into segments, deallocated. Memory is the growth of the process by then.
"""

import gc
import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, TypeVar

import psutil

from index.buckets.bucket_rules import SealRules, cut_runs
from index.pending.pending import Entry
from index.pending.progress import BEFORE_ALL
from index.pending.run import NOTHING_WAITS, Runs
from index.pending.unsealed import Unsealed
from sidecar.engine.buckets.sealing import Sealing, stored_sizes
from sidecar.engine.limits import LIMITS
from sidecar.engine.payload.packed_run import packed_runs
from sidecar.engine.payload.records import Payload, packed
from sidecar.kernel.choice import Kernel
from sidecar.process.heap import glibc_trim
from snapshots.segments.rows import RowPacker

T = TypeVar("T")

RECORDS: Final = 100_000
"""The records of a bucket, the default of ``seal_records``."""

FETCH_RECORDS: Final = 2_500
BUCKETS: Final = 4
SPREAD_MS: Final = 3_600_000
CODEC: Final = Kernel.chosen({}).codec
KEPT: Final[dict[str, Runs[Any]]] = {"tuples": NOTHING_WAITS, "columns": packed_runs(CODEC.in_order)}
RULES: Final = SealRules(segment_entries=2_000, segment_bytes=512 << 10, placement="inline")


def main() -> None:
    """Measure each in a separate process, so that none reuses the memory of another."""
    if len(sys.argv) > 1:
        sys.stdout.write(_measured(sys.argv[1]) + "\n")
        return
    for kept in KEPT:
        subprocess.run([sys.executable, "-m", "tests.bench.waiting", kept], check=True)


def _measured(kept: str) -> str:
    gc.disable()
    process = psutil.Process()
    empty_bytes = process.memory_info().rss
    buckets = [_Bucket(KEPT[kept], random.Random(number)) for number in range(BUCKETS)]
    rounds = [bucket.through() for bucket in buckets]
    figures = ", ".join(f"{what} {min(each[what] for each in rounds):.2f}" for what in rounds[0])
    most, left = max(bucket.most_bytes for bucket in buckets), process.memory_info().rss
    # The router does the same.
    glibc_trim()()
    trimmed = process.memory_info().rss
    memory = ", ".join(str((size - empty_bytes) >> 20) for size in (most, left, trimmed))
    return f"{kept}, us of CPU a record: {figures}; MiB at most, with nothing left, given back: {memory}"


class _Bucket:
    """The records of one bucket."""

    def __init__(self, runs: Runs[Any], dice: random.Random) -> None:
        self._dice = dice
        self._packer = RowPacker()
        self._unsealed: Unsealed[Payload] = Unsealed(0, runs)
        self.most_bytes = 0

    def through(self) -> dict[str, float]:
        """Return the cost of each step in us of CPU per record."""
        took_us = {
            "index": self._index_us(),
            "take in order and cut": _cpu_us(self._cut),
            "the same and join": _cpu_us(self._seal),
        }
        self.most_bytes = psutil.Process().memory_info().rss
        dropped: list[object] = [*self._unsealed.soon.take_all(), *self._unsealed.waiting.take_all()]
        took_us["let go of"] = _cpu_us(dropped.clear)
        return took_us

    def _index_us(self) -> float:
        took_us = 0.0
        for first in range(0, RECORDS, FETCH_RECORDS):
            entries = [_entry(offset, self._dice, self._packer) for offset in range(first, first + FETCH_RECORDS)]
            took_us += _cpu_us(partial(self._unsealed.add, entries))
        return took_us

    def _cut(self) -> None:
        assert sum(map(len, cut_runs(self._unsealed.pieces(), RULES, stored_sizes, RECORDS))) == RECORDS

    def _seal(self) -> None:
        sealing = Sealing(self._unsealed, RECORDS, 1, RULES, LIMITS, _at_once, CODEC)
        while (segments := sealing.next_segments()) is not None:
            sealing.written(range(len(segments)))
        assert sealing.installation(BEFORE_ALL) is not None


def _cpu_us(work: Callable[[], object]) -> float:
    began_s = time.thread_time()
    work()
    return (time.thread_time() - began_s) * 1e6 / RECORDS


def _entry(offset: int, dice: random.Random, packer: RowPacker) -> Entry[Payload]:
    due_ms = 1_800_000_000_000 + dice.randrange(SPREAD_MS)
    row = packer.pack(b"%d" % offset, bytes(200), [("deliver-at", b"%d" % due_ms), ("trace-id", b"%d" % offset)])
    assert row is not None
    return due_ms, offset, packed(1_800_000_000_000 + offset, row, packer, "orders")


def _at_once(work: Callable[[], T]) -> "Future[T]":
    future: Future[T] = Future()
    future.set_result(work())
    return future


if __name__ == "__main__":
    main()
