"""Returns the memory of sealed or merged records, and of take-overs, to the system.

Records that wait to be sealed, or are being merged, lie in columns (:mod:`sidecar.engine.payload.packed_run`) of some
kilobytes to a megabyte, each freed as a whole. An allocator keeps all memory below the last piece in use, even a small
piece; glibc's allocator returns all free pages on request. For a hundred MiB that takes 5 to 12 ms, without the lock of
the interpreter; a thread that allocates may wait for as long.

A take-over has up to three Kafka clients, which end with it. With 300 idle partitions a third to a half of the memory
of a process was memory that these had freed.

Rejected: mapping every large piece by itself (``M_MMAP_THRESHOLD``), which returns it at once, but makes sealing a
third slower, because fresh pages come one fault at a time. Rejected: another allocator, which would have to be shipped.
"""

import ctypes
import time
from collections.abc import Callable

WORTH_BYTES = 16 * 1_048_576
"""Decrease of the payload in memory that makes a trim worth its time."""

EVERY_S = 10.0
"""Least interval between trims: while records keep arriving, the next bucket reuses the memory of the last one."""


def _nothing() -> None:
    """Do nothing, for a process whose allocator cannot return pages on request."""


def glibc_trim() -> Callable[[], object]:
    """Return the function of glibc that returns free pages, or one that does nothing if there is none."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return _nothing
    return lambda: trim(ctypes.c_size_t(0))


class HeapTrim:
    """Decides when to trim the heap; the main thread calls it now and then.

    ``resident_bytes`` gives the payload in memory, without the payload that merges hold, and ``served`` the number of
    partitions that have been taken over.
    """

    def __init__(
        self,
        resident_bytes: Callable[[], int],
        is_merging: Callable[[], bool],
        served: Callable[[], int],
        trim: Callable[[], object],
        running_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resident_bytes = resident_bytes
        self._is_merging = is_merging
        self._has_merged = False
        self._served = served
        self._was_served = 0
        self._trim = trim
        self._running_s = running_s
        self._most_bytes = 0
        self._last_s = running_s()

    def trim_if_worth(self) -> None:
        """Trim when there is much less payload in memory than before, or when merges or take-overs have ended."""
        used_bytes, is_merging, served = self._resident_bytes(), self._is_merging(), self._served()
        self._has_merged |= is_merging
        self._most_bytes = max(self._most_bytes, used_bytes)
        self._was_served = min(self._was_served, served)
        now_s = self._running_s()
        has_shrunk = used_bytes + WORTH_BYTES <= self._most_bytes
        is_worth = has_shrunk or (self._has_merged and not is_merging) or served > self._was_served
        if now_s < self._last_s + EVERY_S or not is_worth:
            return
        self._trim()
        self._most_bytes, self._last_s = used_bytes, now_s
        self._has_merged, self._was_served = is_merging, served
