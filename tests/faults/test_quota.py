"""Tests a producer quota far below the due volume: transactions shrink to the accepted size, which ensures progress."""

import time

import pytest

from tests.faults.stage import FaultStage, settled
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import now_ms
from tests.support import kafka_tools

BYTES_A_SECOND = 300_000
RECORDS = 12_000
VALUE = b"x" * 1_000
LONGEST_STILL_S = 60.0
"""The time without a new record in the target: an abandoned transaction, the take-over after it, and the next one."""

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
