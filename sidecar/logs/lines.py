"""Log lines leave by a thread of their own: whoever reads them slowly, or not at all, holds up nothing but them.

A pipe that nobody reads takes 64 KiB and then makes every write wait. So a line is only put into a queue here, which is
bounded in bytes; what does not fit is dropped and counted, and a line ``log_lines_dropped`` stands in its place. Lines
come out in the order they were written in.

Bytes are written to the descriptor itself, past ``sys.stderr``: a thread that waits in a buffered writer keeps its
lock, and the interpreter, which wants to flush it, would not end.

Rejected: ``logging.handlers.QueueListener``. What it drops it drops one exception a line, and ``stop`` waits for a
handler that waits.
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
"""Of lines in the queue: a minute of the worst that is known, and nothing beside the rest of the process."""

CHUNK_BYTES: Final = 65_536
TICK_S: Final = 1.0
FULL_AGAIN_S: Final = 0.05


class LineWriter:
    """The stream of a logger: ``write`` never waits. It is never stopped, and its thread ends with the process."""

    def __init__(self, descriptor: int, tick: Callable[[], None] = lambda: None, max_bytes: int = MAX_BYTES) -> None:
        """Write to `descriptor`; `tick` is called about once a second."""
        self.dropped = 0
        """Lines that were not written, ever."""
        self._descriptor = descriptor
        self._tick = tick
        self._max_bytes = max_bytes
        self._queue: deque[bytes] = deque()
        # What is being written counts until it is.
        self._queued_bytes = 0
        self._unreported = 0
        # Reentrant: a finalizer may log while its thread is in here.
        self._changed = threading.Condition(threading.RLock())

    def start(self) -> "LineWriter":
        """Begin to write what is put in from now on; once."""
        threading.Thread(target=self._run, name="log", daemon=True).start()
        return self

    def write(self, text: str) -> int:
        """Take a line, or drop it when too much waits already."""
        line = text.encode("utf-8", "backslashreplace")
        with self._changed:
            # Once full it must be half empty again, or every other line would be about one that was dropped.
            room = self._max_bytes // 2 if self._unreported else self._max_bytes
            if self._queued_bytes + len(line) > room:
                self.dropped += 1
                self._unreported += 1
            else:
                self._tell_dropped()
                self._put(line)
        return len(text)

    def flush(self) -> None:
        """Nothing: the thread writes as soon as it can."""

    def drain(self, timeout_s: float) -> bool:
        """Wait until everything is written, but no longer; whether it is."""
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
                # Somebody who shares it has made it so.
                time.sleep(FULL_AGAIN_S)
            except OSError:
                # Nobody reads any more, or the disk is full; the rest of the process works on.
                self.dropped += lines
                break
        with self._changed:
            self._queued_bytes -= len(data)
            self._changed.notify_all()
