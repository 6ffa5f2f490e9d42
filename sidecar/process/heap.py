"""Memory of records that have been sealed or merged, given back to the system.

What waits to be sealed, or is being merged, lies in columns (:mod:`sidecar.payload.packed_run`), some kilobytes to a
megabyte each, that are freed as a whole. Allocators keep what lies below the last piece in use, however small that is;
glibc's gives back all free pages when it is told to. For a hundred MiB that takes 5 to 12 ms, without the lock of the
interpreter; a thread that allocates may wait for as long.

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
    """Asked now and then by the main thread.

    ``resident_bytes`` is the payload in memory, which what merges hold is no part of.
    """

    def __init__(
        self,
        resident_bytes: Callable[[], int],
        is_merging: Callable[[], bool],
        trim: Callable[[], object],
        running_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resident_bytes = resident_bytes
        self._is_merging = is_merging
        self._has_merged = False
        self._trim = trim
        self._running_s = running_s
        self._most_bytes = 0
        self._last_s = running_s()

    def trim_if_worth(self) -> None:
        """Give back what is free when there is much less in memory than there was, or merging has ended."""
        used_bytes, is_merging = self._resident_bytes(), self._is_merging()
        self._has_merged |= is_merging
        self._most_bytes = max(self._most_bytes, used_bytes)
        now_s = self._running_s()
        is_worth = used_bytes + WORTH_BYTES <= self._most_bytes or (self._has_merged and not is_merging)
        if now_s < self._last_s + EVERY_S or not is_worth:
            return
        self._trim()
        self._most_bytes, self._last_s, self._has_merged = used_bytes, now_s, is_merging
