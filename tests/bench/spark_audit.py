"""Measures Spark's ``audit`` of records that were released once, except for a few faults that it has to find.

The copies are written by hand: a router would take longer than the audit, and would not lose a record.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from tests.bench import child, router, scatter, workload
from tests.bench.context import Context
from tests.bench.results import BenchmarkFailed, Row, at_most
from tests.bench.router import Router

TIMEOUT_S: Final = 900.0
GOAL_RECORDS: Final = 5_000_000
GOAL_S: Final = 180
CORES: Final = 2
OVERDUE_MS: Final = 600_000
"""Every record was due this long ago, so that a record without a copy is lost."""

LOST: Final = 1
DOUBLED: Final = 2
EARLY: Final = 3
"""The offsets of the faults."""


def run(context: Context, sizes: Iterable[int]) -> Iterator[Row]:
    """Audit each number of records on local[2], released once each."""
    for count in sizes:
        context.say(f"measuring audit of {count:,} records ...")
        with router.prepared(context.bootstrap) as made:
            yield _audited(context, made, count)


def _audited(context: Context, made: Router, count: int) -> Row:
    _fill(context, made, count)
    told = child.run("tests.bench.spark_audit_job", TIMEOUT_S, config=str(made.process.config))
    counts = told["counts"]
    planted = {"sent": count, "released": count - 2, "lost": 1, "doubled": 1, "early": 1}
    found = {name: number for name, number in counts.items() if number}
    if found != planted:
        raise BenchmarkFailed(f"the audit counted {found}, but there are {planted}")
    goal = at_most(GOAL_S) if count == GOAL_RECORDS else None
    rate = count / told["elapsed_s"] / CORES
    detail = (
        f"{rate:,.0f} records/s a core; faults found: 1 lost, 1 doubled, 1 early; started in {told['start_s']:.1f} s"
    )
    return Row("spark audit", f"{count:,} records, released once", told["elapsed_s"], "s", goal=goal, detail=detail)


def _fill(context: Context, made: Router, count: int) -> None:
    last_ms = workload.now_ms() - OVERDUE_MS
    due_ms = scatter.due_times(context, count, last_ms - scatter.HOUR_MS, scatter.HOUR_MS)
    far_ms = workload.now_ms() + scatter.HOUR_MS
    target = made.target

    def sent(number: int) -> workload.Headers:
        return workload.headers(far_ms if number == EARLY else due_ms[number], target)

    def released(number: int) -> workload.Headers:
        # Copy number LOST is a second copy of DOUBLED.
        origin = DOUBLED if number == LOST else number
        return [
            ("delay-due", b"%d" % due_ms[origin]),
            ("delay-source", f"{made.delay_topic}/0/{origin}".encode()),
            ("delay-source-timestamp", b"%d" % last_ms),
        ]

    workload.fill(context.bootstrap, made.delay_topic, count, sent)
    workload.fill(context.bootstrap, target, count, released)
