"""Measures the process of a router: CPU and memory, with its version, host and start."""

import os
import resource
import socket
import sys
import time
from pathlib import Path
from typing import Final

from sidecar import __version__
from sidecar.clock import Clock
from sidecar.operations.status.reports import Vitals

AGAIN_AFTER_S: Final = 10.0
"""Least interval between two measurements: a report of an idle router is sent as seldom."""

_STATM: Final = Path("/proc/self/statm")


class VitalsProbe:
    """Measures now and then; made when the process starts, and used by one thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since_ms = clock.now_ms()
        self._measured_s, self._used_s = clock.running_s(), time.process_time()
        self._last: Vitals | None = None

    def take(self) -> Vitals:
        """Return the vitals, measured again after AGAIN_AFTER_S; the CPU is that of the time in between."""
        now_s = self._clock.running_s()
        if self._last is None or now_s - self._measured_s >= AGAIN_AFTER_S:
            used_s = time.process_time()
            cores = (used_s - self._used_s) / max(now_s - self._measured_s, 0.001)
            self._measured_s, self._used_s = now_s, used_s
            self._last = Vitals(__version__, socket.gethostname(), self._since_ms, round(cores, 3), memory_bytes())
        return self._last


def memory_bytes() -> int:
    """Return the resident memory of this process; the most that it had where the system does not tell the present."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        # Bytes on macOS, kilobytes elsewhere.
        return most if sys.platform == "darwin" else most * 1_024
