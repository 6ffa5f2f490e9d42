"""Tests the memory of a router process against the formula in OPERATIONS, for records of any size."""

from pathlib import Path
from random import Random

import pytest

from index.buckets.bucket_rules import SealRules
from tests.faults.stage import FaultStage, settled
from tests.integration.scenario import now_ms, wait_until
from tests.wire import Broker, WireBatch, WireRecord, codecs

MIB = 1_048_576
PAYLOAD_MIB = 128
"""600 records of 900 kB are to this limit as 2,500 are to four times as much; a larger load would test the machine."""

PROCESS_MIB = 350
PARTITION_MIB = 6
RECORD_BYTES = 8
"""The formula: payload_memory + 350 MiB + 6 MiB for each partition + 8 B for each pending record."""

LEAD_MS = 15_000
"""The time before the first record is due: long enough to index, seal, and load all records again."""

POSTED_BYTES_PER_MS = 20_000
"""How fast a busy machine with two cores takes records in, at least."""

BOMB_BYTES = 1_000_000_000
"""Zeros, which gzip packs into less than the brokers' default of max.message.bytes."""

LARGE_BYTES = 900_000
assert SealRules().segment_bytes < LARGE_BYTES, "fits into a segment"

pytestmark = pytest.mark.timeout(600)
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("records", "least_bytes", "most_bytes", "within_ms", "partitions"),
    [
        pytest.param(600, LARGE_BYTES, LARGE_BYTES, 0, 1, marks=SLOW, id="large, due together"),
        pytest.param(600, LARGE_BYTES, LARGE_BYTES, 60_000, 1, marks=SLOW, id="large, due within a minute"),
        pytest.param(5_000, 100_000, 100_000, 0, 1, marks=SLOW, id="middling, due together"),
        pytest.param(100_000, 200, 200, 0, 1, marks=SLOW, id="small, due together"),
        # The short form leaves time for a disk that takes 4 MB/s.
        pytest.param(3_000, 200, LARGE_BYTES, 5_000, 100, id="of any size, in 100 partitions"),
        pytest.param(6_000, 200, LARGE_BYTES, 5_000, 100, marks=SLOW, id="many of any size, in 100 partitions"),
    ],
)
def test_a_process_takes_no_more_memory_than_operations_says(
    lone: FaultStage, rng: Random, records: int, least_bytes: int, most_bytes: int, within_ms: int, partitions: int
) -> None:
    out = lone.target("out")
    # Due at one instant, records stay in the delay topic (placement auto): one segment points to thousands of them.
    delay = lone.delay(partitions=partitions, default_target=out)
    values = rng.randbytes(most_bytes)
    sizes = [int(least_bytes * (most_bytes / least_bytes) ** rng.random()) for _ in range(records)]
    # A process with one partition uses no lanes.
    with lone.router(payload_memory=f"{PAYLOAD_MIB}MiB", transaction_timeout="60s", lanes=2) as router:
        router.start_and_wait()
        due_ms = now_ms() + LEAD_MS + sum(sizes) // POSTED_BYTES_PER_MS
        queued_bytes = 0
        for number, size in enumerate(sizes):
            at_ms = due_ms + (rng.randrange(within_ms) if within_ms else 0)
            header = ("deliver-at", b"%d" % at_ms)
            lone.post(delay, header, value=values[:size], key=b"%d" % number, partition=number % partitions)
            queued_bytes += size
            if queued_bytes > 32 * MIB:
                lone.flush()
                queued_bytes = 0
        lone.flush()
        assert now_ms() < due_ms, "not all were in before they were due"
        # An audit reads every record, and takes the interpreter from the proxy that the router's requests pass.
        wait_until(lambda: lone.offsets(out) >= records, f"{records} records in {out}", 300)
        report = settled(lone, at_least=records, timeout_s=300)
        assert report.released_once == records
        allowed_mib = PAYLOAD_MIB + PROCESS_MIB + PARTITION_MIB * partitions + RECORD_BYTES * records / MIB
        most_mib = _most_kib(router.pid) / 1_024
        print(f"{most_mib:.0f} MiB of {allowed_mib:.0f}")
        assert most_mib < allowed_mib
        assert router.stop() == 0


@SLOW
def test_a_bomb_takes_its_size_once_and_is_rejected(lone: FaultStage) -> None:
    """The memory stays below the chart's limit with room for payload_memory: 2,048 - 512 MiB."""
    out = lone.target("out")
    delay = lone.delay(default_target=out)
    soon = (b"deliver-after", b"200")
    good = WireBatch([WireRecord(b"k", b"good", [soon])])
    with Broker(lone.bootstrap) as broker:
        broker.produce(delay, 0, good.encode())
        broker.produce(delay, 0, WireBatch([WireRecord(b"k", bytes(BOMB_BYTES), [soon])], codecs.GZIP).encode())
        broker.produce(delay, 0, good.encode())
    with lone.router(transaction_timeout="60s") as router:
        router.start_and_wait()
        lone.wait_records(out, 2, 180)
        [stub] = lone.wait_records(f"{delay}.rejected", 1)
        most_mib = _most_kib(router.pid) / 1_024
        print(f"{most_mib:.0f} MiB for {BOMB_BYTES // MIB}")
        assert most_mib < BOMB_BYTES / MIB + PROCESS_MIB + PARTITION_MIB
        assert dict(stub.headers)["delay-error"] == b"UNREADABLE"
        assert router.stop() == 0


def _most_kib(pid: int) -> int:
    """Return the peak memory of a process in KiB, as Linux counts it."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
