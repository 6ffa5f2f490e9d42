"""When Python looks for reference cycles: never while records are being indexed or released.

Every pending record is a handful of tracked objects, and a collection walks them all: with it on, indexing costs two
to three times as much, and a full collection at a million pending stalls the release loop for a tenth of a second. What
is pending holds no cycles, it goes when its last reference does; cycles come from HTTP requests and exceptions, a few
kB an hour. So automatic collection is off, and one is made now and then while little is in memory.
"""

import gc
import time
from collections.abc import Callable

QUIET_BYTES = 8 * 1_048_576
"""With less payload than this in memory a collection takes a few milliseconds."""

QUIET_EVERY_S = 60.0
ANYWAY_EVERY_S = 6 * 3_600.0
"""A process that is never quiet collects all the same, at the price of one stall."""


class GarbageCollection:
    """Asked now and then by the main thread."""

    def __init__(self, resident_bytes: Callable[[], int]) -> None:
        self._resident_bytes = resident_bytes
        self._last_s = time.monotonic()
        gc.collect()
        gc.disable()

    def collect_if_quiet(self) -> None:
        """Collect when it is time and costs nothing, or when it is long overdue."""
        waited_s = time.monotonic() - self._last_s
        quiet = waited_s >= QUIET_EVERY_S and self._resident_bytes() < QUIET_BYTES
        if quiet or waited_s >= ANYWAY_EVERY_S:
            gc.collect()
            self._last_s = time.monotonic()
