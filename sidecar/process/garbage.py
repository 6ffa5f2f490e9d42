"""Schedules Python's search for reference cycles so that it never runs while records are indexed or released.

Every pending record is a handful of tracked objects, and a collection walks all of them. Automatic collection makes
indexing two to three times as expensive, and a full collection at a million pending records stalls the release loop for
a tenth of a second. Pending records have no cycles and are freed with their last reference; cycles come from HTTP
requests and exceptions, a few kB an hour. So automatic collection is off, and the process collects now and then while
little is in memory.

Objects that survive a collection are set aside (``gc.freeze``) and not walked again: for 10 M records that are pending
in buckets the manifests alone are hundreds of thousands of objects, half a second each time. If very many objects have
been made since the last collection, they are set aside without one, because they are records and manifests. Once in
some hours a collection walks all objects.
"""

import gc
import time
from collections.abc import Callable

QUIET_BYTES = 8 * 1_048_576
"""Payload in memory below which a collection takes a few milliseconds, apart from manifests."""

FEW_OBJECTS = 50_000
"""More new objects than this are set aside without a collection, which would take tens of milliseconds."""

QUIET_EVERY_S = 60.0
ANYWAY_EVERY_S = 6 * 3_600.0
"""Interval after which even a busy process collects, at the price of one stall."""


class GarbageCollection:
    """Decides when to collect; the main thread calls it now and then."""

    def __init__(self, resident_bytes: Callable[[], int], running_s: Callable[[], float] = time.monotonic) -> None:
        self._resident_bytes = resident_bytes
        self._running_s = running_s
        self._last_s = self._last_whole_s = running_s()
        gc.collect()
        gc.freeze()
        gc.disable()

    def collect_if_quiet(self) -> None:
        """Collect when the interval has passed and little is in memory, or when a collection is long overdue."""
        now_s = self._running_s()
        if now_s >= self._last_whole_s + ANYWAY_EVERY_S:
            gc.unfreeze()
            gc.collect()
            self._set_aside(now_s)
            self._last_whole_s = now_s
        elif now_s >= self._last_s + QUIET_EVERY_S and self._resident_bytes() < QUIET_BYTES:
            if gc.get_count()[0] < FEW_OBJECTS:
                gc.collect()
            self._set_aside(now_s)

    def _set_aside(self, now_s: float) -> None:
        gc.freeze()
        self._last_s = now_s
