"""When Python looks for reference cycles: never while records are being indexed or released.

Every pending record is a handful of tracked objects, and a collection walks them all: with it on, indexing costs two
to three times as much, and a full collection at a million pending stalls the release loop for a tenth of a second. What
is pending holds no cycles, it goes when its last reference does; cycles come from HTTP requests and exceptions, a few
kB an hour. So automatic collection is off, and one is made now and then while little is in memory.

What it has seen once is set aside (``gc.freeze``), and is not walked again: of 10 M records that are pending in buckets
the manifests alone are hundreds of thousands of objects, half a second each time. So is what has come since when that
is much: it is records and manifests. All is walked once in some hours.
"""

import gc
import time
from collections.abc import Callable

QUIET_BYTES = 8 * 1_048_576
"""With less payload than this in memory a collection takes a few milliseconds, but for manifests."""

FEW_OBJECTS = 50_000
"""More than so many since the last time are set aside without a look: it would take tens of milliseconds."""

QUIET_EVERY_S = 60.0
ANYWAY_EVERY_S = 6 * 3_600.0
"""A process that is never quiet collects all the same, at the price of one stall."""


class GarbageCollection:
    """Asked now and then by the main thread."""

    def __init__(self, resident_bytes: Callable[[], int], running_s: Callable[[], float] = time.monotonic) -> None:
        self._resident_bytes = resident_bytes
        self._running_s = running_s
        self._last_s = self._last_whole_s = running_s()
        gc.collect()
        gc.freeze()
        gc.disable()

    def collect_if_quiet(self) -> None:
        """Collect when it is time and costs nothing, or when it is long overdue."""
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
