"""Measures the lateness that searches for pending schedules add to the releases of the same router.

Scattered records are due all the time. In every third window one client searches for one schedule after the other by
id. In every third window it pages through all pending schedules, again and again. Both go as fast as allowed. Windows
of all three kinds take turns in one run.
"""

from collections.abc import Iterator
from typing import Any, Final

from tests.bench import child, router, scatter, workload
from tests.bench.api import Api, api
from tests.bench.context import Context
from tests.bench.named import schedules
from tests.bench.released import Lateness, TargetReader, lateness_in
from tests.bench.results import BenchmarkFailed, Row, at_most

RELEASED_PER_S: Final = 10_000
TURNS: Final = 2
PAGE: Final = 500
IDS: Final = 500
SEALED_MS: Final = 120_000
ADDED_MS: Final = 10

Window = tuple[int, int]


def finding(context: Context) -> Iterator[Row]:
    """Measure p99 of lateness without requests, with searches by id, and with paging."""
    with api() as served, router.running(context.bootstrap, topic={"seal_age": "10s"}, admin=served.settings) as under:
        yield from _measured(context, under, served)


def _measured(context: Context, under: router.Router, served: Api) -> Iterator[Row]:
    window_s, named = context.sizes.named_window_s, context.sizes.named_ids
    _name(context, under, named)
    count = RELEASED_PER_S * 3 * TURNS * window_s
    window_ms = window_s * 1_000
    first_ms = workload.now_ms() + scatter.lead_ms(count)
    due_times_ms = scatter.due_times(context, count, first_ms, 3 * TURNS * window_ms)
    scatter.write(context, under, due_times_ms)
    under.wait_standing("indexed", lambda at: at.cursor >= named + count or at.pending >= named + count, first_ms)
    windows = [(first_ms + n * window_ms, first_ms + (n + 1) * window_ms - 1) for n in range(3 * TURNS)]
    # The turns go forward and backward, so that no kind of window always finds the machine more settled.
    calm, by_id, paging = ([windows[n], windows[-1 - n]] for n in range(3))
    ids = [schedules.path(under.delay_topic, number) for number in range(0, named, named // IDS)]
    clients = [
        _client(served, ids, by_id),
        _client(served, [f"/api/v1/topics/{under.delay_topic}/schedules?limit={PAGE}"], paging),
    ]
    told = [child.finish(client, (windows[-1][1] - workload.now_ms()) / 1_000 + 60) for client in clients]
    for each in told:
        served.require_found(each)
    workload.sleep_until(windows[-1][1] + 1_000)
    under.wait_pending(lambda pending: pending <= named, until_ms=workload.now_ms() + 60_000)
    under.process.stop()
    reader = TargetReader(context.bootstrap, under.delay_topic, under.target)
    appended_ms = reader.append_times(due_times_ms, first_offset=named)
    lateness = [lateness_in(due_times_ms, appended_ms, some) for some in (calm, by_id, paging)]
    beside = f"beside {RELEASED_PER_S // 1_000} k/s released"
    yield Row("finding", "p99 of lateness, nothing asked", lateness[0].percentile(99), "ms", detail=lateness[0].text())
    found, pages = told
    if found["shown"] < found["ended"]:
        raise BenchmarkFailed(f"{found['shown']} schedules were found by {found['ended']} ids")
    what = {"found by id": found, f"pages of {PAGE}": pages}
    for late, (name, said) in zip(lateness[1:], what.items(), strict=True):
        taken = Lateness(said["taken_ms"], 0, 0)
        rate = f"{len(said['taken_ms']) / TURNS / window_s:.0f}/s"
        answered = (
            f"{rate} answered, {said['shown']:,} shown; ms: p50 {taken.percentile(50)}, p99 {taken.percentile(99)}"
        )
        added_ms = late.percentile(99) - lateness[0].percentile(99)
        detail = f"{late.text()}; {answered}"
        yield Row("finding", f"{name} {beside}: added to p99", added_ms, "ms", goal=at_most(ADDED_MS), detail=detail)


def _name(context: Context, under: router.Router, count: int) -> None:
    """Write schedules with ids, due in an hour or later, and wait until they are sealed."""
    far_ms = workload.now_ms() + scatter.HOUR_MS
    workload.fill(
        context.bootstrap,
        under.delay_topic,
        count,
        lambda number: schedules.named(far_ms + number, under.target, number),
    )
    standing = scatter.wait_sealed(context, under, count, workload.now_ms() + SEALED_MS)
    if standing.sealed_to < count:
        raise BenchmarkFailed(f"not sealed in time: {standing}")


def _client(served: Api, paths: list[str], windows: list[Window]) -> Any:
    return child.start(
        "tests.bench.named.asking", listen=served.listen, token=served.token, paths=paths, windows=windows
    )
