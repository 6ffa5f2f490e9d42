"""Writes log lines in a thread of its own, so that a slow or absent reader of the log delays only the log.

A pipe without a reader takes 64 KiB and then blocks every write. So the writer only puts a line into a queue, which is
bounded in bytes. Lines that do not fit are dropped and counted, and a line ``log_lines_dropped`` takes their place.
Lines come out in the order in which they were written.

The thread writes bytes to the descriptor itself, past ``sys.stderr``: a thread that waits in a buffered writer keeps
the lock of the writer, and any thread that wants to write or flush there would wait too.

Rejected: ``logging.handlers.QueueListener``. It raises an exception for each line that it drops, and its ``stop`` waits
for a blocked handler.
"""

import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

MAX_BYTES: Final = 4 << 20
"""Most bytes in the queue: a minute of the worst load known, and little beside the memory of the process."""

CHUNK_BYTES: Final = 65_536
TICK_S: Final = 1.0
FULL_AGAIN_S: Final = 0.05


class LineWriter:
    """The stream of a logger: ``write`` never waits. The thread runs until the process ends."""

    def __init__(self, descriptor: int, tick: Callable[[], None] = lambda: None, max_bytes: int = MAX_BYTES) -> None:
        """Write to `descriptor`; `tick` is called about once a second."""
        self.dropped = 0
        """Number of lines that were dropped since the start."""
        self._descriptor = descriptor
        self._tick = tick
        self._max_bytes = max_bytes
        self._queue: deque[bytes] = deque()
        # Lines that are being written still count.
        self._queued_bytes = 0
        self._unreported = 0
        # Reentrant: a finalizer may log while its thread is in here.
        self._changed = threading.Condition(threading.RLock())

    def start(self) -> "LineWriter":
        """Start the thread; call this once."""
        threading.Thread(target=self._run, name="log", daemon=True).start()
        return self

    def write(self, text: str) -> int:
        """Queue a line, or drop it if the queue is full."""
        line = text.encode("utf-8", "backslashreplace")
        with self._changed:
            # A full queue must become half empty before it takes lines again; otherwise every second line would report
            # a dropped one.
            room = self._max_bytes // 2 if self._unreported else self._max_bytes
            if self._queued_bytes + len(line) > room:
                self.dropped += 1
                self._unreported += 1
            else:
                self._tell_dropped()
                self._put(line)
        return len(text)

    def flush(self) -> None:
        """Do nothing: the thread writes as soon as it can."""

    def drain(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` until everything is written, and say whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._queued_bytes or self._unreported), timeout_s)

    def _put(self, line: bytes) -> None:
        self._queue.append(line)
        self._queued_bytes += len(line)
        self._changed.notify_all()

    def _tell_dropped(self) -> None:
        if self._unreported:
            moment = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            event = {"event": "log_lines_dropped", "lines": self._unreported, "level": "warning", "timestamp": moment}
            self._unreported = 0
            self._put(json.dumps(event).encode() + b"\n")

    def _run(self) -> None:
        ticked_s = time.monotonic()
        while True:
            with self._changed:
                if not self._queue:
                    self._tell_dropped()
                self._changed.wait_for(lambda: self._queue, TICK_S)
                lines = self._next()
            self._write(b"".join(lines), len(lines))
            if time.monotonic() - ticked_s >= TICK_S:
                self._tick()
                ticked_s = time.monotonic()

    def _next(self) -> list[bytes]:
        taken, taken_bytes = [], 0
        while self._queue and taken_bytes < CHUNK_BYTES:
            taken.append(self._queue.popleft())
            taken_bytes += len(taken[-1])
        return taken

    def _write(self, data: bytes, lines: int) -> None:
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:
                # Another process that shares the descriptor has made it non-blocking.
                time.sleep(FULL_AGAIN_S)
            except OSError:
                # The reader has gone, or the disk is full; the rest of the process works on.
                self.dropped += lines
                break
        with self._changed:
            self._queued_bytes -= len(data)
            self._changed.notify_all()
