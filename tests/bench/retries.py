"""Measures a retry topic: a ladder of attempts under load, and its throughput beside that of plain delays."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from index.rules.retrying import ONE, Retry, ladder
from tests.bench import child, router, workload
from tests.bench.context import Context
from tests.bench.overdue import DRAIN_TIMEOUT_MS
from tests.bench.released import Lateness, TargetReader
from tests.bench.results import BenchmarkFailed, Row, at_least, at_most

ATTEMPTS: Final = 8
FIRST_MS: Final = 50
FACTOR: Final = 2
WAIT_MS: Final = FIRST_MS * FACTOR
"""Wait of the records whose throughput is measured: that of the second attempt."""

LADDER_P99_MS: Final = 60
LEAST_OF_PLAIN: Final = 0.9

SETTLED_MS: Final = 1_000
"""Time beyond that wait, so that each record is due before a router starts."""


def retries(context: Context) -> Iterator[Row]:
    """Measure the ladder, then the rates of plain delays and of retries."""
    yield _ladder(context)
    count = context.sizes.retry_records
    plain_per_s = _overdue_per_s(context, count, [("deliver-after", b"%d" % WAIT_MS)], counts_attempts=False)
    name = f"{count // 1_000} k overdue, never seen before"
    yield Row("retries", f"{name}: plain delays", plain_per_s, "records/s")
    retries_per_s = _overdue_per_s(context, count, [("delay-attempt", b"1")], counts_attempts=True)
    ratio = retries_per_s / plain_per_s
    goal = at_least(LEAST_OF_PLAIN)
    yield Row("retries", f"{name}: retries", retries_per_s, "records/s", ratio, "plain delays", goal=goal)


def ladder_ms() -> int:
    """Return the sum of all waits of the ladder.

    >>> ladder_ms()
    12750
    """
    *_, (_, _, _, total_ms) = ladder(Retry(FIRST_MS, FACTOR * ONE, 1 << 40, 0, ATTEMPTS, "dead"))
    return total_ms


def row_of(told: Mapping[str, Any], per_s: int) -> Row:
    """Return the row of a ladder; raise BenchmarkFailed when a record was lost, doubled or early."""
    lost, doubled, late_ms = told["lost"], told["doubled"], told["late_ms"]
    if lost or doubled or late_ms[0] < 0:
        raise BenchmarkFailed(
            f"lost {lost}, doubled {doubled}, earliest {late_ms[0]} ms of {told['failures']} failures"
        )
    lateness = Lateness(late_ms, 0, 0)
    detail = f"{told['failures_per_s']:.0f} failures/s sent; {lateness.text()}; lost 0, doubled 0 of {told['failures']}"
    name = f"ladder of {ATTEMPTS} attempts, {per_s} failures/s: p99"
    return Row("retries", name, lateness.percentile(99), "ms", goal=at_most(LADDER_P99_MS), detail=detail)


def _retry(dead_letter: str) -> dict[str, object]:
    waits = {"first": f"{FIRST_MS}ms", "factor": FACTOR, "max": "1h"}
    return {"retry": {**waits, "attempts": ATTEMPTS, "dead_letter": dead_letter}}


def _ladder(context: Context) -> Row:
    per_s, seconds, ladder_s = context.sizes.retry_per_s, context.sizes.retry_s, ladder_ms() / 1_000
    dead = workload.name("dead")
    workload.create(context.bootstrap, dead, workload.APPEND_TIME)
    try:
        with router.running(context.bootstrap, topic=_retry(dead)) as running:
            told = child.run(
                "tests.bench.failing",
                seconds + 2 * ladder_s + 120.0,
                bootstrap=context.bootstrap,
                topic=running.delay_topic,
                targets=[running.target, dead],
                # A record fails once before its first attempt, and once after each.
                per_s=per_s / (ATTEMPTS + 1),
                seconds=seconds,
                attempts=ATTEMPTS,
                ladder_s=ladder_s,
            )
    finally:
        workload.delete(context.bootstrap, [dead])
    return row_of(told, per_s)


def _overdue_per_s(context: Context, count: int, headers: workload.Headers, *, counts_attempts: bool) -> float:
    """Return the rate from the start of a router to its last append, with all records overdue before it."""
    dead = workload.name("dead")
    workload.create(context.bootstrap, dead)
    try:
        with router.prepared(context.bootstrap, topic=_retry(dead) if counts_attempts else {}) as made:
            began_ms = workload.now_ms()
            workload.fill(context.bootstrap, made.delay_topic, count, lambda _: headers)
            workload.sleep_until(workload.now_ms() + WAIT_MS + SETTLED_MS)
            made.start()
            ready_ms = workload.now_ms()
            deadline_ms = ready_ms + DRAIN_TIMEOUT_MS
            made.wait_standing("released", lambda at: at.cursor >= count and not at.pending, deadline_ms)
            made.process.stop()
            reader = TargetReader(context.bootstrap, made.delay_topic, made.target)
            appended_ms = reader.append_times([began_ms + WAIT_MS] * count)
    finally:
        workload.delete(context.bootstrap, [dead])
    took_ms = max(appended_ms) - min(ready_ms, *appended_ms)
    if not took_ms:
        raise BenchmarkFailed(f"{count} records were released within one millisecond: too few to measure a rate")
    return count * 1_000 / took_ms
