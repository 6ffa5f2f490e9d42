"""A router whose calls are counted: ``python -m tests.bench.walked run --config FILE``.

It connects to the socket beside the file (``channel_of``). Each line that comes in ends a window of time and begins the
next one; the answer is one line of JSON: for each thread its calls into the project in the window that has ended, in
order, each as ``FILE:FUNCTION``. The first window begins with the process. See :mod:`tests.bench.walk`.
"""

import json
import socket
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("index", "snapshots", "sidecar")


class Recorder:
    """The calls of all threads since the last ``take``."""

    def __init__(self) -> None:
        self._names: dict[CodeType, str] = {}
        self._calls: dict[int, list[str]] = {}

    def begin(self) -> None:
        """Record the calls of this thread, and of each thread that begins from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def take(self) -> dict[str, list[str]]:
        """Return the calls by thread, and begin anew."""
        calls, self._calls = self._calls, {}
        threads = {thread.ident: thread.name for thread in threading.enumerate()}
        return {f"{threads.get(ident, 'ended')} {ident}": names for ident, names in calls.items()}

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        name = self._names.get(frame.f_code)
        if name is None:
            name = self._names[frame.f_code] = _name_of(frame.f_code)
        if name:
            self._calls.setdefault(threading.get_ident(), []).append(name)


def _name_of(code: CodeType) -> str:
    """Name a function of the project by its file; return nothing for comprehensions, modules and foreign code."""
    file = Path(code.co_filename)
    if not file.is_relative_to(ROOT) or code.co_name.startswith("<"):
        return ""
    path = file.relative_to(ROOT)
    return f"{path}:{code.co_qualname}" if path.parts[0] in PACKAGES else ""


def channel_of(config: Path) -> Path:
    """Return the socket of the router with this configuration."""
    return config.with_suffix(".sock")


def _answer(channel: socket.socket, recorder: Recorder) -> None:
    """Answer each line of the channel with the calls since the last one."""
    # The calls of this thread belong to no walk.
    sys.setprofile(None)
    with channel, channel.makefile("rw") as lines:
        for _ in lines:
            lines.write(json.dumps(recorder.take()) + "\n")
            lines.flush()


def main() -> None:
    """Run the router with the same arguments."""
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(str(channel_of(Path(sys.argv[-1]))))
    recorder = Recorder()
    threading.Thread(target=_answer, args=(channel, recorder), daemon=True).start()
    recorder.begin()
    from sidecar.cli import main as delay_router  # noqa: PLC0415 -- imported once calls are counted

    delay_router()


if __name__ == "__main__":
    main()
