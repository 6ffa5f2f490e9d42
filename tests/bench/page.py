"""Measures the cost of an open page: time to the first view, the router's CPU, and the lateness of releases.

A delay topic with many partitions has records pending for days. In a real Chromium the page shows the topics and
requests them every two seconds. Windows with the page and without take turns in one run, first with nothing due, for
the CPU, and then beside a steady scattered load. The browser shares the cores with the router and the broker.
"""

import shutil
import statistics
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import psutil
from structlog.testing import capture_logs

from sidecar.http.api.server import AdminApi
from tests.bench import router, scatter, workload
from tests.bench.api import Api, api
from tests.bench.coming_in import watched
from tests.bench.context import Context
from tests.bench.machine import cpu_s
from tests.bench.released import TargetReader, lateness_in
from tests.bench.results import MIB, BenchmarkFailed, Row, at_most
from tests.page.browser import Browser, browser
from tests.page.many import TOPICS, Many, many_topics
from tests.support.admin_api import READ

PARTITIONS: Final = 100
RECORDS_PER_S: Final = 1_000
WINDOWS: Final = 4
CPU_WINDOWS: Final = 10
VIEWS: Final = 5

DAY_MS: Final = 86_400_000
SEALED_BY_AGE_MS: Final = 70_000
"""The last bucket of a partition is sealed when it is a minute old."""

SETTLE_MS: Final = 30_000
"""A router gives free memory back within ten seconds."""

MEMORY_BYTES: Final = 12
FIRST_VIEW_MS: Final = 1_000
CPU_PERCENT: Final = 1
LATER_MS: Final = 2
"""Two equal runs differ by as much."""

_NOTES_WHEN_SHOWN: Final = """
new MutationObserver((_, observer) => {
  if (!document.querySelector("main tbody tr")) return;
  observer.disconnect();
  // The next frame but one begins when the rows are painted.
  requestAnimationFrame(() => requestAnimationFrame(() => { window.shownMs = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""


def page(context: Context) -> Iterator[Row]:
    """Measure the first view, the CPU of an open page, and p99 of lateness with and without one."""
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        raise BenchmarkFailed("chromium and chromedriver are not installed; on Debian: apt-get install chromium-driver")
    yield _many_topics()
    with api("read") as served, tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
        admin = {**served.settings, "page": True}
        with (
            router.running(context.bootstrap, PARTITIONS, admin=admin) as running,
            browser(Path(directory)) as window,
        ):
            what = f"{context.sizes.page_records / 1e6:g} M in {PARTITIONS} partitions"
            empty = running.settled_bytes(SETTLE_MS)
            with watched(running) as coming_in:
                _fill(context, running)
            yield from coming_in.rows(what)
            yield _at_rest(context, running, what, empty)
            yield from _seen(context, running, served, window)


def _many_topics() -> Row:
    """Measure the first view of 300 topics, whose numbers come from a double in this process: no broker takes part."""
    # Nobody reads the log of requests here, and writing it takes time.
    with capture_logs(), tempfile.TemporaryDirectory(prefix="delay-router-bench-") as directory:
        tokens = Path(directory) / "tokens"
        tokens.write_text(f"read {READ}\n")
        config = many_topics(tokens)
        serving = AdminApi(config, Many(config))
        try:
            with browser(Path(directory) / "profile") as window:
                url = f"http://localhost:{serving.port}"
                window.open(url)
                window.sign_in(READ)
                window.wait("main tbody tr")
                return _first_view(f"{TOPICS} topics of 3 partitions", _first_views(window, url))
        finally:
            serving.stop()


def _first_view(what: str, shown_ms: list[float]) -> Row:
    detail = f"of {VIEWS}: {min(shown_ms):.0f} to {max(shown_ms):.0f} ms"
    median_ms = statistics.median(shown_ms)
    return Row("page", f"first view, {what}", median_ms, "ms", goal=at_most(FIRST_VIEW_MS), detail=detail)


def _fill(context: Context, running: router.Router) -> None:
    """Write records that are pending for days to all partitions but the first."""
    count = context.sizes.page_records
    producer = workload.ordered_producer(context.bootstrap, workload.FILL_LINGER_MS)
    first_ms = workload.now_ms() + DAY_MS
    for number in range(count):
        due_ms = first_ms + int(context.random.random() * 6 * DAY_MS)
        headers = workload.headers(due_ms, running.target)
        workload.produce(producer, running.delay_topic, headers, 1 + number % (PARTITIONS - 1))
    workload.flush(producer)
    context.say(f"{count:,} are written")
    # A router with a hundred partitions indexes at less than half of the rate of one with a single partition.
    until_ms = workload.now_ms() + 3 * scatter.lead_ms(count) + SEALED_BY_AGE_MS
    running.wait_pending(lambda pending: pending >= count, until_ms)
    workload.sleep_until(workload.now_ms() + SEALED_BY_AGE_MS)


def _at_rest(context: Context, running: router.Router, what: str, empty: int) -> Row:
    until_ms = workload.now_ms() + SEALED_BY_AGE_MS
    while unsealed := sum(each.sealed_to < each.cursor for each in running.standings()):
        if workload.now_ms() > until_ms:
            raise BenchmarkFailed(f"{unsealed} partitions still have records that are not sealed")
        workload.sleep_until(workload.now_ms() + scatter.LOOK_EVERY_MS)
    resident = running.settled_bytes(SETTLE_MS)
    each = (resident - empty) / context.sizes.page_records
    detail = f"{resident / MIB:.0f} MiB, empty {empty / MIB:.0f} MiB"
    return Row("page", f"{what}: memory for each at rest", each, "B", goal=at_most(MEMORY_BYTES), detail=detail)


def _seen(context: Context, running: router.Router, served: Api, window: Browser) -> Iterator[Row]:
    what = f"{PARTITIONS} partitions, {context.sizes.page_records / 1e6:g} M pending"
    url = f"http://{served.listen}"
    window.open(url)
    window.sign_in(served.token)
    window.wait("main tbody tr", running.delay_topic)
    yield _first_view(what, _first_views(window, url))
    added = _added_cpu(context, running, window, url)
    detail = f"{CPU_WINDOWS} windows in turn: {min(added):.2f} to {max(added):.2f}"
    yield Row(
        "page",
        "the router, for an open page",
        statistics.median(added),
        "% of a core",
        goal=at_most(CPU_PERCENT),
        detail=detail,
    )
    yield from _lateness(context, running, window, url)


def _first_views(window: Browser, url: str) -> list[float]:
    """Return the times in ms from the load of the page to the first row of its table, without a cache."""
    driver = window.driver
    driver.execute_cdp_cmd("Network.enable", {})
    driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": _NOTES_WHEN_SHOWN})
    taken_ms = []
    for _ in range(VIEWS):
        driver.get(url)
        window.wait("main tbody tr")
        taken_ms.append(
            float(
                window.script("while (!window.shownMs) await new Promise(requestAnimationFrame); return window.shownMs")
            )
        )
    driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": False})
    return taken_ms


def _added_cpu(context: Context, running: router.Router, window: Browser, url: str) -> list[float]:
    """Return the CPU that each window with the page used beyond the previous one without, in percent of a core."""
    process = psutil.Process(running.process.pid)
    shares = []
    for number in range(CPU_WINDOWS):
        _show(window, url if number % 2 else "about:blank")
        began_s, began_ms = cpu_s(process), workload.now_ms()
        workload.sleep_until(began_ms + context.sizes.admin_window_s * 1_000)
        shares.append(100_000 * (cpu_s(process) - began_s) / (workload.now_ms() - began_ms))
    return [shown - closed for closed, shown in list(pairwise(shares))[::2]]


def _show(window: Browser, address: str) -> None:
    window.driver.get(address)
    if address != "about:blank":
        window.wait(".freshness", "live")


def _lateness(context: Context, running: router.Router, window: Browser, url: str) -> Iterator[Row]:
    window_ms = context.sizes.admin_window_s * 1_000
    count = RECORDS_PER_S * WINDOWS * context.sizes.admin_window_s
    _show(window, "about:blank")
    due_times_ms, first_ms = scatter.write_ahead(context, running, count, WINDOWS * window_ms)
    windows = [(first_ms + number * window_ms, first_ms + (number + 1) * window_ms - 1) for number in range(WINDOWS)]
    for number, (begin_ms, _) in enumerate(windows):
        workload.sleep_until(begin_ms)
        _show(window, url if number % 2 else "about:blank")
    workload.sleep_until(windows[-1][1] + 1_000)
    far = context.sizes.page_records
    running.wait_pending(lambda pending: pending <= far, until_ms=workload.now_ms() + 60_000)
    appended_ms = TargetReader(context.bootstrap, running.delay_topic, running.target).append_times(due_times_ms)
    closed, shown = (lateness_in(due_times_ms, appended_ms, windows[first::2]) for first in (0, 1))
    yield Row("page", "p99 without a page", closed.percentile(99), "ms", detail=closed.text())
    yield Row("page", "p99 beside an open page", shown.percentile(99), "ms", detail=shown.text())
    added_ms = shown.percentile(99) - closed.percentile(99)
    yield Row("page", "an open page: what it adds to p99", added_ms, "ms", goal=at_most(LATER_MS))
