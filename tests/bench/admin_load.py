"""Measures the lateness that a busy admin API adds to releases.

A steady scattered load is due all the time. In every second window a separate process sends 100 requests a second to
the admin API: every kind of question, and sometimes a new policy. Windows with and without requests take turns.
"""

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any, Final

from tests.bench import child, router, scatter, workload
from tests.bench.api import Api, api
from tests.bench.context import Context
from tests.bench.released import Lateness, TargetReader, lateness_in
from tests.bench.results import BenchmarkFailed, Row, at_most

RECORDS_PER_S: Final = 1_000
REQUESTS_PER_S: Final = 100
KEPT_SHARE: Final = 0.98
WINDOWS: Final = 4
LIMIT_MS: Final = 10

Window = tuple[int, int]


def admin_load(context: Context) -> Iterator[Row]:
    """Measure p99 of lateness with and without requests to the admin API."""
    policies = workload.name("policies")
    with api("operate") as served:
        try:
            with router.running(
                context.bootstrap, router={"policies_topic": policies}, admin=served.settings
            ) as running:
                yield from _measured(context, running, served)
        finally:
            workload.delete(context.bootstrap, [policies])


def _measured(context: Context, running: router.Router, served: Api) -> Iterator[Row]:
    window_ms = context.sizes.admin_window_s * 1_000
    count = RECORDS_PER_S * WINDOWS * context.sizes.admin_window_s
    due_times_ms, first_ms = scatter.write_ahead(context, running, count, WINDOWS * window_ms)
    windows = [(first_ms + number * window_ms, first_ms + (number + 1) * window_ms - 1) for number in range(WINDOWS)]
    calm, busy = windows[::2], windows[1::2]
    asked = child.run(
        "tests.bench.admin_requests",
        (WINDOWS * window_ms + scatter.lead_ms(count)) / 1_000 + 60,
        listen=served.listen,
        token=served.token,
        requests=_requests(running, REQUESTS_PER_S),
        rate_per_s=REQUESTS_PER_S,
        windows=busy,
    )
    workload.sleep_until(windows[-1][1] + 1_000)
    running.wait_pending(lambda pending: pending == 0, until_ms=workload.now_ms() + 60_000)
    running.process.stop()
    appended_ms = TargetReader(context.bootstrap, running.delay_topic, running.target).append_times(due_times_ms)
    text = _answers(asked, len(busy) * context.sizes.admin_window_s * REQUESTS_PER_S)
    without, beside = (lateness_in(due_times_ms, appended_ms, some) for some in (calm, busy))
    yield Row("admin", "p99 without requests", without.percentile(99), "ms", detail=without.text())
    what = f"p99 with {REQUESTS_PER_S} requests/s"
    yield Row("admin", what, beside.percentile(99), "ms", detail=beside.text())
    added_ms = beside.percentile(99) - without.percentile(99)
    what = f"{REQUESTS_PER_S} requests/s: what they add to p99"
    yield Row("admin", what, added_ms, "ms", goal=at_most(LIMIT_MS), detail=text)


def _requests(running: router.Router, count: int) -> list[tuple[str, str, dict[str, Any] | None]]:
    """Return the requests of a second: status, pending, and one policy for an unused target."""
    topic = f"/api/v1/topics/{running.delay_topic}"
    asked = islice(cycle(["/api/v1/topics", topic, f"{topic}/pending"]), count - 1)
    policy = f"/api/v1/policies/targets/{running.target}-other"
    return [*(("GET", path, None) for path in asked), ("PUT", policy, {"expire_after": "1h"})]


def _answers(asked: dict[str, Any], wanted: int) -> str:
    """Return the answers in words. Raise BenchmarkFailed if requests failed, or too few were answered."""
    wrong = {status: count for status, count in asked["statuses"].items() if not 200 <= int(status) < 300}
    if wrong:
        raise BenchmarkFailed(f"the admin API answered {wrong}, at first: {asked['first_wrong']}")
    answered = sum(asked["statuses"].values())
    if answered < KEPT_SHARE * wanted:
        raise BenchmarkFailed(f"{answered} of {wanted} requests were answered in time")
    taken = Lateness(asked["taken_ms"], 0, 0)
    return f"{answered} answered; ms: p50 {taken.percentile(50)}, p99 {taken.percentile(99)}, max {taken.sorted_ms[-1]}"
