"""Measures a rolling restart of three routers under load, as a StatefulSet does it, but without its pauses.

Each router gets a SIGTERM and ends, is started again and becomes ready; then the next one follows. The routers are
static members, so partitions wait for their owner and do not move. The auditor counts from the topics alone that no
record is lost, doubled or early.
"""

import threading
import time
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple, Self

from sidecar.dev.audit import AuditReport, audit
from sidecar.dev.demo.router import RouterProcess
from tests.bench import instances, workload
from tests.bench.context import Context
from tests.bench.instances import Group
from tests.bench.results import BenchmarkFailed, Row, at_most

INSTANCES: Final = 3
PARTITIONS: Final = 6
LIMIT_MS: Final = 5_000

BEFORE_S: Final = 5.0
BETWEEN_S: Final = 2.0
DELAYS_MS: Final = (500, 5_000)
TICK_S: Final = 0.01


class Restart(NamedTuple):
    """The times of one router's restart, in seconds."""

    to_gone_s: float
    to_ready_s: float


class Load(threading.Thread):
    """Writes records with random delays to all partitions at a steady rate until the context ends."""

    def __init__(self, context: Context, group: Group) -> None:
        super().__init__(daemon=True)
        self._producer = workload.ordered_producer(context.bootstrap, linger_ms=5)
        self._group = group
        self._rate_per_s = context.sizes.rolling_per_s
        self._random = Random(context.random.random())
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.join()
        workload.flush(self._producer)

    def run(self) -> None:
        """Write records; a late tick writes the missing ones, too."""
        began_s, sent = time.monotonic(), 0
        while not self._stopping.wait(TICK_S):
            wanted = int((time.monotonic() - began_s) * self._rate_per_s)
            for number in range(sent, wanted):
                headers = workload.headers(workload.now_ms() + self._random.randint(*DELAYS_MS), self._group.target)
                # Values differ, so that the auditor notices a record in place of another.
                value = b"%d" % number
                self._producer.produce(self._group.delay_topic, value, None, number % PARTITIONS, headers=headers)
            sent = wanted
            self._producer.poll(0)


def rolling(context: Context) -> Iterator[Row]:
    """Measure the greatest lateness while three routers are restarted one after the other."""
    with instances.running(context.bootstrap, INSTANCES, PARTITIONS) as group:
        with Load(context, group):
            time.sleep(BEFORE_S)
            restarts = [_restart(context, process) for process in group.routers]
            time.sleep(BETWEEN_S)
        workload.sleep_until(workload.now_ms() + DELAYS_MS[1])
        group.wait_released()
        report = _audited(context, group)
    times = "; ".join(f"gone {each.to_gone_s:.1f} s, ready {each.to_ready_s:.1f} s later" for each in restarts)
    rate = context.sizes.rolling_per_s
    what = f"rolling restart of {INSTANCES}, {rate}/s over {PARTITIONS} partitions"
    latest_ms = report.percentile_ms(100)
    detail = (
        f"{report.summary()}; lateness ms: p50 {report.percentile_ms(50)}, p99 {report.percentile_ms(99)}, "
        f"max {latest_ms}; {times}"
    )
    yield Row("rolling", f"{what}: latest record", latest_ms, "ms", goal=at_most(LIMIT_MS), detail=detail)
    wrong = report.lost + report.duplicated + report.early + report.altered + report.foreign + report.wrong_target
    yield Row("rolling", f"{what}: lost, doubled, early", wrong, "records", goal=at_most(0))


def _restart(context: Context, process: RouterProcess) -> Restart:
    began_s = time.monotonic()
    process.stop()
    gone_s = time.monotonic()
    process.start()
    process.wait_ready()
    ready_s = time.monotonic()
    context.say(f"restarted: gone after {gone_s - began_s:.1f} s, ready {ready_s - gone_s:.1f} s later")
    time.sleep(BETWEEN_S)
    return Restart(gone_s - began_s, ready_s - gone_s)


def _audited(context: Context, group: Group) -> AuditReport:
    report = audit(
        {"bootstrap.servers": context.bootstrap},
        delay=[group.delay_topic],
        targets=[group.target],
        rejected=[group.rejected],
        receipts=[f"{group.delay_topic}.receipts"],
    )
    if not report.ok or report.pending or report.rejected:
        raise BenchmarkFailed(f"{report.summary()}: {dict(report.samples)}")
    return report
