"""Suppresses repeated lines of libraries: a line comes out once, then its repetitions are counted once a minute.

librdkafka logs each attempt to connect, of each client, to each broker, several times a second. A *kind* of line is one
text of one client role without the numbers that change from line to line. A kind comes out when it is news: the first
time, and after a minute without it.
"""

import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

EVERY_S: Final = 60.0
MAX_KINDS: Final = 200
"""Limit of kinds within a minute; further kinds count as one, as a peer with invented texts must not fill a log."""

MAX_TOLD: Final = 10

# "[delay-router-tail#consumer-12]" is one of the consumers of a role.
_CLIENT: Final = re.compile(r"(\[[^\]#]*#(?:producer|consumer))-\d+\]")
# Matches durations, counts and offsets, but not the port of a broker, which distinguishes brokers.
_NUMBER: Final = re.compile(r"(?<![\w:./\[-])\d+(?:\.\d+)?(?=\s|ms\b|s\b|[),;]|$)")
_SUPPRESSED: Final = re.compile(r", \d+ identical error\(s\) suppressed")

Told = Callable[..., Any]


class _LineKind:
    def __init__(self, now_s: float) -> None:
        self.heard_s = now_s
        self.again = 0
        self.text = ""


class Repeats:
    """The kinds of lines of the last minute; any thread may use it."""

    def __init__(self, tell: Told, now_s: Callable[[], float] = time.monotonic) -> None:
        """Take `tell`, which writes a line from the name of the level, the event, and its key-values as keywords."""
        self._tell = tell
        self._now_s = now_s
        self._lock = threading.RLock()
        self._kinds: dict[str, _LineKind] = {}
        self._told_s = now_s()
        self._unsaid = 0

    def is_news(self, library: str, text: str) -> bool:
        """Say whether this line must come out; otherwise count it."""
        kind = kind_of(library, text)
        now_s = self._now_s()
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= MAX_KINDS:
                kind = f"{library}: other lines"
            known = self._kinds.get(kind)
            if known is None:
                self._kinds[kind] = _LineKind(now_s)
                return True
            known.heard_s = now_s
            known.again += 1
            known.text = text
            return False

    def tick(self) -> None:
        """Report the repetitions once a minute, and forget silent kinds; the owner calls this about every second."""
        now_s = self._now_s()
        with self._lock:
            if now_s - self._told_s < EVERY_S:
                return
            self._told_s = now_s
            again = sorted((each for each in self._kinds.values() if each.again), key=lambda each: -each.again)
            count = sum(each.again for each in again)
            said = [{"times": each.again, "message": each.text} for each in again[:MAX_TOLD]]
            for each in again:
                each.again = 0
            self._kinds = {kind: each for kind, each in self._kinds.items() if now_s - each.heard_s < EVERY_S}
            self._unsaid += count
            unsaid, self._unsaid = self._unsaid, self._unsaid if count else 0
        if count:
            self._tell("warning", "library_log_repeated", lines=count, kinds=len(again), most=said)
        elif unsaid:
            self._tell("info", "library_log_quiet", lines=unsaid, quiet_s=int(EVERY_S))


def kind_of(library: str, text: str) -> str:
    """Return the kind of a line: its text without the numbers that change from line to line."""
    for pattern, instead in ((_SUPPRESSED, ""), (_CLIENT, r"\1]"), (_NUMBER, "#")):
        text = pattern.sub(instead, text)
    return f"{library}: {text}"
