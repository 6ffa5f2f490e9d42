"""Tests a producer quota below the due volume: transactions shrink to the accepted size, which ensures progress."""

import time

import pytest

from tests.faults.stage import FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import now_ms, released_late_ms
from tests.support import kafka_tools

BYTES_A_SECOND = 300_000
RECORDS = 12_000
VALUE = b"x" * 1_000
LONGEST_STILL_S = 60.0
"""The time without a new record in the target: an abandoned transaction, the take-over after it, and the next one."""

MANY_S = 45
"""The time for which one partition has more bytes than a quota of ``MANY_BYTES_A_SECOND`` allows."""

MANY_BYTES_A_SECOND = 500_000
LARGE = b"x" * 35_000
LARGE_A_SECOND = 20
FEW_A_SECOND = 30
OTHERS = range(1, 5)
MOST_LATE_MS = 1_000
"""The median of the lateness of the others: 240 to 300 ms, and 1,500 to 2,000 ms where each wait lowers the size of
their transactions. The brokers hold back all requests of the client for some seconds now and then."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("lanes", [0, 1])
def test_a_burst_under_a_quota_leaves_without_being_written_again_and_again(lanes: int, lone: FaultStage) -> None:
    out = lone.target("out")
    delay = lone.delay("delay", 1 + lanes, default_target=out)
    with lone.router(transaction_timeout="60s", lanes=lanes) as router:
        router.start_and_wait()
        kafka_tools.limit_producers(lone.bootstrap, lone.group_id, BYTES_A_SECOND)
        due_ms = now_ms() + 4_000
        for number in range(RECORDS):
            lone.post(
                delay, ("deliver-at", b"%d" % due_ms), value=VALUE, key=b"%d" % number, partition=number % (1 + lanes)
            )
        lone.flush()
        whys = _watched(lone, router, out)
        assert any("quota" in why for why in whys), whys
        assert router.metric(f'throttled_seconds_total{{topic="{delay}"}}') > 1
        assert settled(lone, at_least=RECORDS).released_once == RECORDS
        # Besides the records themselves: records of abandoned transactions, and a marker for each transaction.
        assert lone.offsets(out) < 1.5 * RECORDS
        assert router.stop() == 0


@pytest.mark.parametrize("lanes", [0, 1])
def test_partitions_with_few_bytes_do_not_fall_behind_one_that_uses_up_the_quota(lanes: int, lone: FaultStage) -> None:
    out, large = lone.target("out"), lone.target("large")
    delay = lone.delay("delay", 1 + len(OTHERS), default_target=out, allowed_targets=[large])
    with lone.router(lanes=lanes) as router:
        router.start_and_wait()
        kafka_tools.limit_producers(lone.bootstrap, lone.group_id, MANY_BYTES_A_SECOND)
        first_ms = now_ms() + 8_000
        for number in range(MANY_S * LARGE_A_SECOND):
            due_ms = first_ms + number * 1_000 // LARGE_A_SECOND
            lone.post(delay, ("deliver-at", b"%d" % due_ms), ("deliver-to", large.encode()), value=LARGE)
        for number in range(MANY_S * FEW_A_SECOND):
            due_ms = first_ms + number * 1_000 // FEW_A_SECOND
            for partition in OTHERS:
                lone.post(delay, ("deliver-at", b"%d" % due_ms), value=b"%d" % number, partition=partition)
        lone.flush()
        records = lone.wait_records(out, MANY_S * FEW_A_SECOND * len(OTHERS), 4 * MANY_S)
        assert router.metric(f'throttled_seconds_total{{topic="{delay}"}}') > 1
        late_ms = sorted(map(released_late_ms, records))
        print(f"lateness of the others: p50 {late_ms[len(late_ms) // 2]}, longest {late_ms[-1]} ms")
        assert late_ms[len(late_ms) // 2] < MOST_LATE_MS
        settled(lone, timeout_s=4 * MANY_S)
        assert router.stop() == 0


def _watched(stage: FaultStage, router: RouterProcess, out: str) -> set[str]:
    """Wait until all records have arrived, and collect the router's reports. Raise AssertionError without progress."""
    whys: set[str] = set()
    there, moved_s = 0, time.monotonic()
    while there < RECORDS:
        now_there, now_s = len(stage.records(out)), time.monotonic()
        if now_there > there:
            print(f"{now_there} records after {now_s - moved_s:.1f} s more, log of {stage.offsets(out)}")
            there, moved_s = now_there, now_s
        assert now_s - moved_s < LONGEST_STILL_S, f"{there} of {RECORDS} records, log of {stage.offsets(out)}"
        whys.add(router.http("/readyz")[1])
        time.sleep(0.3)
    return whys
