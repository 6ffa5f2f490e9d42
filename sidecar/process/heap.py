"""Memory of records that have been sealed, given back to the system.

What waits to be sealed lies in columns (:mod:`sidecar.payload.packed_run`), some kilobytes to a megabyte each, that are
freed as a whole. Allocators keep what lies below the last piece in use, however small that is; glibc's gives back all
free pages when it is told to. For a hundred MiB that takes 5 to 12 ms, without the lock of the interpreter; a thread
that allocates may wait for as long.

Rejected: having every piece of some size mapped by itself (``M_MMAP_THRESHOLD``), which gives it back at once, and
made sealing a third slower, since fresh pages come one fault at a time; another allocator, which somebody has to ship.
"""

import ctypes
import time
from collections.abc import Callable

WORTH_BYTES = 16 * 1_048_576
"""So much less payload in memory than before is worth the while."""

EVERY_S = 10.0
"""While records keep coming in, what one bucket has left is used again for the next."""


def _nothing() -> None:
    """Where there is no such function, the allocator does as it pleases."""


def glibc_trim() -> Callable[[], object]:
    """What gives free pages back, where the process has it."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return _nothing
    return lambda: trim(ctypes.c_size_t(0))


class HeapTrim:
    """Asked now and then by the main thread."""

    def __init__(
        self,
        resident_bytes: Callable[[], int],
        trim: Callable[[], object],
        running_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resident_bytes = resident_bytes
        self._trim = trim
        self._running_s = running_s
        self._most_bytes = 0
        self._last_s = running_s()

    def trim_if_worth(self) -> None:
        """Give back what is free when there is much less in memory than there was."""
        used_bytes = self._resident_bytes()
        self._most_bytes = max(self._most_bytes, used_bytes)
        now_s = self._running_s()
        if now_s < self._last_s + EVERY_S or used_bytes + WORTH_BYTES > self._most_bytes:
            return
        self._trim()
        self._most_bytes, self._last_s = used_bytes, now_s
