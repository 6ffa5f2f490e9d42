"""Measures answer times and memory of a router while records arrive faster than it indexes them."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from tests.bench import router
from tests.bench.results import MIB, BenchmarkFailed, Row, at_most

PATHS: Final = ("/livez", "/metrics")
EVERY_S: Final = 1.0
GIVEN_UP_AFTER_S: Final = 60.0

LIVE_WITHIN_MS: Final = 1_000
"""The default timeout of a Kubernetes probe."""

SCRAPED_WITHIN_MS: Final = router.SCRAPE_TIMEOUT_S * 1_000


@dataclass(slots=True)
class Watched:
    """The slowest answers, in ms, and the peak of memory."""

    slowest_ms: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PATHS, 0.0))
    resident_bytes: int = 0
    failed: str = ""

    def rows(self, what: str) -> Iterator[Row]:
        """Yield the measured rows. Raise BenchmarkFailed if a request failed."""
        if self.failed:
            raise BenchmarkFailed(self.failed)
        for path, within_ms in zip(PATHS, (LIVE_WITHIN_MS, SCRAPED_WITHIN_MS), strict=True):
            name = f"slowest answer of {path} while {what} come in"
            yield Row("page", name, self.slowest_ms[path], "ms", goal=at_most(within_ms))
        yield Row("page", "memory at most meanwhile", self.resident_bytes / MIB, "MiB")


@contextmanager
def watched(running: router.Router) -> Iterator[Watched]:
    """Send requests once a second until the end of the block."""
    seen, done = Watched(), threading.Event()

    def ask(path: str) -> None:
        while not done.wait(EVERY_S):
            began_s = time.monotonic()
            status, text = running.process.http(path, GIVEN_UP_AFTER_S)
            if status != HTTPStatus.OK:
                seen.failed = f"{path} answers {status}: {text}"
            seen.slowest_ms[path] = max(seen.slowest_ms[path], (time.monotonic() - began_s) * 1_000)
            seen.resident_bytes = max(seen.resident_bytes, running.resident_bytes())

    threads = [threading.Thread(target=ask, args=(path,), name=f"asks {path}", daemon=True) for path in PATHS]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        done.set()
        for thread in threads:
            thread.join()
