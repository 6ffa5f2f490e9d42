"""A tiny process that outlives its parent just long enough to clean up after it.

A broker must not survive the demo or the test run that started it, not even when that process is killed with
SIGKILL. The kernel's parent-death signal does not do: it fires when the *thread* that started the child ends,
and it exists on Linux only. So one process for each cluster holds the reading end of a pipe: when the parent
is gone, the kernel closes the other end, and whatever was registered is killed and removed. (testcontainers'
Ryuk is the same idea.)

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
    """The parent's side: tells the helper process what is to be removed if this process dies."""

    def __init__(self) -> None:
        # -S -E: nothing but the standard library is needed, so that it starts soon and stays small.
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def watch(self, thing: int | Path) -> None:
        """Have a process (by its id) or a directory removed when this process dies."""
        self._tell(f"+{thing}")

    def forget(self, thing: int | Path) -> None:
        """Take a thing back: it is gone already, or it is to stay."""
        self._tell(f"-{thing}")

    def close(self) -> None:
        """End the helper; what is still registered is removed now."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        if self._process.stdin is None:
            raise AssertionError("the reaper was started with a pipe")
        # A helper that somebody killed leaves only the clean-up after a crash undone.
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
