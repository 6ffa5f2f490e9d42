"""Measures half a million cancels with millions of pending records, the search for one of them by id, and one query.

At the beginning all pending records lie in buckets. One in ten records has an id; half of these are cancelled, spread
over all buckets. The first control makes the router read the ids of its buckets, which is measured separately.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench import child, router, scatter, workload
from tests.bench.api import Api, api
from tests.bench.compacted import contents
from tests.bench.context import Context
from tests.bench.named import schedules
from tests.bench.named.schedules import receipts_of
from tests.bench.released import Lateness
from tests.bench.results import BenchmarkFailed, Row, at_most
from tests.bench.router import Router

NAMED_EVERY: Final = 10
CANCELLED_EVERY: Final = 20
SEALED_MS: Final = 120_000
FIRST_TIMEOUT_S: Final = 600.0
TIMEOUT_S: Final = 600.0
FINDS_PER_S: Final = 10
FINDS_MS: Final = 30_000

WITHIN_S: Final = 40
QUERIED_OF: Final = 10
QUERIED_S: Final = 5
QUERIED_BYTES: Final = 10_000
STATE_BYTES: Final = 10_000_000
FOUND_MS: Final = 200


def cancels(context: Context) -> Iterator[Row]:
    """Measure the first cancel, all the others at once, the remainder in the state, and the search by id."""
    count = context.sizes.large_records
    what = f"{count / 1e6:g} M pending"
    with api() as served, router.running(context.bootstrap, topic={"seal_age": "10s"}, admin=served.settings) as under:
        first_due_ms = _fill(context, under, count)
        before = _state_bytes(context, under)
        with receipts_of(context.bootstrap, under.delay_topic) as receipts:
            first_s = _taken_s(context, under, receipts, [0], FIRST_TIMEOUT_S)
            yield Row("cancels", f"{what}: the first cancel, to its receipt", first_s, "s")
            others = range(CANCELLED_EVERY, count, CANCELLED_EVERY)
            taken_s = _taken_s(context, under, receipts, others, TIMEOUT_S)
        detail = f"{len(others) / taken_s / 1_000:.1f} k/s, from the first that is written to the last receipt"
        of_all = f"{what}: {len(others) / 1_000:.0f} k cancels"
        yield Row("cancels", of_all, taken_s, "s", goal=at_most(WITHIN_S), detail=detail)
        state = _state_bytes(context, under)
        detail = f"{before:,} B before"
        yield Row("cancels", f"{of_all}: state", state, "B", goal=at_most(STATE_BYTES), detail=detail)
        began_s = time.monotonic()
        pages = served.find(schedules.path(under.delay_topic, NAMED_EVERY))
        detail = f"{pages} pages"
        yield Row("cancels", f"{what}: found by id, the first", time.monotonic() - began_s, "s", detail=detail)
        found = _finds(under, served, count)
        name = f"{what}: found by id, others, p99"
        yield Row("cancels", name, found.percentile(99), "ms", goal=at_most(FOUND_MS), detail=found.text())
        yield from _by_query(context, under, first_due_ms, count)


def _by_query(context: Context, under: Router, first_due_ms: int, count: int) -> Iterator[Row]:
    """Cancel the tenth of all records that is due first."""
    before = _state_bytes(context, under)
    query = schedules.cancel_where(first_due_ms, first_due_ms + scatter.HOUR_MS // QUERIED_OF)
    with receipts_of(context.bootstrap, under.delay_topic) as receipts:
        began_s = time.monotonic()
        workload.fill(context.bootstrap, under.delay_topic, 1, lambda _: query)
        receipts.wait(1, TIMEOUT_S)
        taken_s = time.monotonic() - began_s
    what = f"{count / 1e6:g} M pending: one query that cancels about {count // QUERIED_OF / 1_000:.0f} k"
    yield Row("cancels", f"{what}, to its receipt", taken_s, "s", goal=at_most(QUERIED_S))
    added = _state_bytes(context, under) - before
    yield Row("cancels", f"{what}: added to the state", added, "B", goal=at_most(QUERIED_BYTES))


def _state_bytes(context: Context, under: Router) -> int:
    stored = contents(context.bootstrap, f"{under.delay_topic}.delay-state")
    return sum(len(key) + len(value) for key, value in stored.items())


def _fill(context: Context, under: Router, count: int) -> int:
    """Write the records, due in an hour or later, and wait until they are sealed. Return the first due time."""
    due_ms = workload.now_ms() + scatter.lead_ms(count) + scatter.HOUR_MS
    dues_ms = scatter.due_times(context, count, due_ms, scatter.HOUR_MS)

    def headers_of(number: int) -> workload.Headers:
        if number % NAMED_EVERY:
            return workload.headers(dues_ms[number], under.target)
        return schedules.named(dues_ms[number], under.target, number)

    workload.fill(context.bootstrap, under.delay_topic, count, headers_of)
    until_ms = workload.now_ms() + scatter.lead_ms(count) + SEALED_MS
    standing = scatter.wait_sealed(context, under, count, until_ms)
    if standing.sealed_to < count:
        raise BenchmarkFailed(f"not sealed in time: {standing}")
    return due_ms


def _taken_s(
    context: Context, under: Router, receipts: schedules.Receipts, numbers: Sequence[int], timeout_s: float
) -> float:
    wanted = len(receipts.heard_ms) + len(numbers)
    began_s = time.monotonic()
    headers_of = [schedules.cancel(number) for number in numbers].__getitem__
    workload.fill(context.bootstrap, under.delay_topic, len(numbers), headers_of)
    receipts.wait(wanted, timeout_s)
    return time.monotonic() - began_s


def _finds(under: Router, served: Api, count: int) -> Lateness:
    """Request pending schedules by their id, one after the other. Return the answer times."""
    begin_ms = workload.now_ms()
    wanted = FINDS_MS // 1_000 * FINDS_PER_S
    every = max(count // wanted // CANCELLED_EVERY, 1) * CANCELLED_EVERY
    asked = child.run(
        "tests.bench.admin_requests",
        FINDS_MS / 1_000 + 120,
        listen=served.listen,
        token=served.token,
        requests=[
            ("GET", schedules.path(under.delay_topic, number), None) for number in range(NAMED_EVERY, count, every)
        ],
        rate_per_s=FINDS_PER_S,
        windows=[(begin_ms, begin_ms + FINDS_MS)],
    )
    served.require_found(asked)
    return Lateness(asked["taken_ms"], 0, 0)
