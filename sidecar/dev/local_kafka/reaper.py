"""A small helper process that outlives its parent just long enough to clean up after it.

A broker must not survive the demo or the test run that started it, even if that process is killed with SIGKILL. The
parent-death signal of the kernel does not suffice: it fires when the *thread* that started the child ends, and it
exists only on Linux. So one helper process for each cluster holds the reading end of a pipe. When the parent is gone,
the kernel closes the other end, and the helper kills the registered processes and removes the registered directories.
(testcontainers' Ryuk works in the same way.)

Lines on standard input: ``+pid`` and ``-pid`` for a process, ``+/path`` and ``-/path`` for a directory.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


class Reaper:
    """The parent's side: registers processes and directories that the helper removes if this process dies."""

    def __init__(self) -> None:
        # -S -E: the helper needs only the standard library, so it starts fast and stays small.
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def watch(self, thing: int | Path) -> None:
        """Register a process (by its id) or a directory for removal when this process dies."""
        self._tell(f"+{thing}")

    def forget(self, thing: int | Path) -> None:
        """Unregister a process or directory that is gone already, or that must stay."""
        self._tell(f"-{thing}")

    def close(self) -> None:
        """End the helper, which now removes everything that is still registered."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        if self._process.stdin is None:
            raise AssertionError("the reaper was started with a pipe")
        # If the helper was killed, only the clean-up after a crash is missing.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def _serve(lines: Iterable[str]) -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    things: dict[str, None] = {}
    for line in lines:
        sign, thing = line[0], line[1:].rstrip("\n")
        if sign == "+":
            things[thing] = None
        else:
            things.pop(thing, None)
    for thing in things:
        if thing.isdigit():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(thing), signal.SIGKILL)
    for thing in things:
        if not thing.isdigit():
            shutil.rmtree(thing, ignore_errors=True)


if __name__ == "__main__":
    _serve(sys.stdin)
