"""Tests that records released behind an open transaction cost the next owner neither memory nor time."""

import time
from pathlib import Path
from typing import NamedTuple

import pytest

from sidecar.dev.audit import ranges, read
from tests.faults.forwarding import NEVER, Application, hidden, restarted
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import Stage, wait_until

VALUE_BYTES = 1_000
POSTED_AT_ONCE = 20_000
"""A fifth of the queue of a producer."""

MORE_S = 2.0
RESTARTS = 3
"""Start times vary on a busy machine, so the fastest of several restarts counts."""

MORE_MIB = 50.0
SETTLED_S = 3.0
"""A process that has been ready for this long has ended its reads."""

RESTART_WITHIN_S = 60.0
RELEASED_WITHIN_S = 240.0


class Cost(NamedTuple):
    """The cost of a start: seconds until the router is ready, and the peak memory of the process."""

    ready_s: float
    peak_mib: float


@pytest.mark.parametrize("count", [200_000, pytest.param(400_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(600)
def test_what_lies_behind_an_open_transaction_is_not_read(count: int, stage: Stage) -> None:
    out = stage.target()
    delay = stage.delay(default_target=out)
    stranger = Application(stage)
    with stage.router() as router:
        router.start_and_wait()
        stranger.write(out, b"stranger")
        _send(stage, delay, count)
        wait_until(lambda: _released(router, delay, out) >= count, f"{count} releases", RELEASED_WITHIN_S)
        beside = _cost_of_restarts(router)
        assert hidden(stage, out) > count, "the transaction has ended too early"
        stranger.end(commit=True)
        wait_until(lambda: hidden(stage, out) == 0, "the end of the transaction")
        alone = _cost_of_restarts(router)
        print(f"behind {count} records: {beside}; alone: {alone}")
        assert _sources(stage, out) == count + 1, "records were doubled or lost"
        assert beside.peak_mib <= alone.peak_mib + MORE_MIB
        assert beside.ready_s <= alone.ready_s + MORE_S
        assert router.stop() == 0


def _send(stage: Stage, delay: str, count: int) -> None:
    for number in range(count):
        stage.post(delay, value=b"%0*d" % (VALUE_BYTES, number))
        if number % POSTED_AT_ONCE == 0:
            stage.flush()
    stage.flush()


def _released(router: RouterProcess, delay: str, target: str) -> float:
    return router.metric(f'records_released_total{{target="{target}",topic="{delay}"}}')


def _cost_of_restarts(router: RouterProcess) -> Cost:
    """Return the shortest time and the highest memory of several restarts."""
    costs = [_cost_of_restart(router) for _ in range(RESTARTS)]
    return Cost(min(each.ready_s for each in costs), max(each.peak_mib for each in costs))


def _cost_of_restart(router: RouterProcess) -> Cost:
    ready_s = restarted(router, within_s=RESTART_WITHIN_S)
    assert ready_s < NEVER, router.http("/readyz")[1]
    time.sleep(SETTLED_S)
    status = Path(f"/proc/{router.pid}/status").read_text(encoding="utf-8")
    (kib,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")]
    return Cost(round(ready_s, 1), round(kib / 1024, 1))


def _sources(stage: Stage, topic: str) -> int:
    """Return the number of committed records. Raise AssertionError if two have the same origin."""
    origins = [dict(record.headers).get("delay-source") for record in read(stage.kafka, ranges(stage.kafka, [topic]))]
    assert len(origins) == len(set(origins)), "a record is there twice"
    return len(origins)
