"""Tests records that are rejected, redriven and rejected again, by parallel redrives, some of which are killed."""

import json
import signal
import subprocess
import time
from collections import Counter
from random import Random

import pytest

from tests.faults.stage import FaultStage, settled
from tests.integration.redrives import redrive_call
from tests.integration.router_process import RouterProcess
from tests.integration.scenario import header

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COUNT = 150
TIMES = 4
RACES = 3


def test_each_record_is_redriven_as_often_as_may_be_and_then_released_once(lone: FaultStage, rng: Random) -> None:
    out = lone.target()
    delay = lone.delay(partitions=2, default_target=out)
    with lone.router() as router:
        router.start_and_wait()
        for number in range(COUNT):
            lone.post(delay, ("deliver-at", b"soon"), value=b"%d" % number, partition=number % 2)
        lone.flush()
        lone.wait_records(f"{delay}.rejected", COUNT)
        options = [delay, "--config", str(router.config), "--json", "--max-redriven", str(TIMES)]
        for _ in range(RACES):
            _race(options, rng)
        _redrive_to_the_end(router, options, over_limit=COUNT)
        driven = _driven(lone, delay)
        assert driven == {(b"%d" % number, b"%d" % time): 1 for number in range(COUNT) for time in range(1, TIMES + 1)}

        last = [*options[:-1], str(TIMES + 1), "--set-header", "deliver-at=1"]
        _race(last, rng)
        _redrive_to_the_end(router, last, over_limit=0)
        released = lone.wait_records(out, COUNT)
        assert Counter(each.value for each in released) == {b"%d" % number: 1 for number in range(COUNT)}
        assert {header(each, "delay-redriven") for each in released} == {b"%d" % (TIMES + 1)}
        report = settled(lone)
        assert (report.released_once, report.rejected) == (COUNT, COUNT * (TIMES + 1))
        assert router.stop() == 0


def _race(options: list[str], rng: Random) -> None:
    """Run redrives at the same time, some of them killed around a commit.

    Each ends, names the one that goes on, or names the error of a broker and says that it may begin again: a broker may
    answer a commit with an unknown error while another producer of the same id begins.
    """
    calls = [
        redrive_call(*options),
        redrive_call(*options, killed="before", at=rng.randint(1, 4)),
        redrive_call(*options, killed="after", at=rng.randint(1, 4)),
        redrive_call(*options),
    ]
    runs: list[subprocess.Popen[str]] = []
    for call in rng.sample(calls, len(calls)):
        runs.append(subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        # Some are overtaken before they have driven anything, and some in the middle.
        time.sleep(rng.uniform(0, 1))
    for run in runs:
        _, told = run.communicate(timeout=90)
        assert run.returncode in (0, 1, -signal.SIGKILL), told
        may_fail = "another redrive of" in told or "none is driven twice when you begin again" in told
        assert run.returncode != 1 or may_fail, told


def _redrive_to_the_end(router: RouterProcess, options: list[str], *, over_limit: int) -> None:
    """Redrive until only this number of records over the limit remains; the router rejects again a little later."""
    report = {}
    for _ in range(60):
        done = router.command("rejected", "redrive", *options[:1], *options[3:])
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        if (report["driven"], report["over_limit"]) == (0, over_limit):
            return
    raise AssertionError(f"not driven to the end: {report}")


def _driven(stage: FaultStage, delay: str) -> Counter[tuple[bytes | None, bytes | None]]:
    """Count the copies of each record in the delay topic, by how often it was driven."""
    copies = [each for each in stage.records(delay) if "delay-redriven" in dict(each.headers)]
    return Counter((each.value, header(each, "delay-redriven")) for each in copies)
