"""Log lines at a terminal: readable, and impossible to forge."""

import os
import pty
import subprocess
import sys

from sidecar.logs.readable import readable

EVENT = {"timestamp": "2026-11-22T10:11:12.5Z", "level": "info", "event": "router_started"}


def line(**facts: object) -> str:
    return readable(None, "", {**EVENT, **facts}).partition(" ")[2]


def test_an_event_is_words_and_facts() -> None:
    assert line(topics=["a.delay"], version="0.1.0") == 'router started topics=["a.delay"] version=0.1.0'
    assert line(level="error", event="partition_failed", why="it is so") == "error: partition failed why=it is so"
    assert readable(None, "", EVENT)[2::3][:2] == "::"


def test_what_comes_from_outside_forges_no_line_and_steers_no_terminal() -> None:
    forged = line(topic="a\r\n10:00:00 stopped", why="\x1b[31m", name="\u202eabc", exception="one\n\x1b[2Jtwo")
    assert forged.splitlines() == [
        r'router started topic="a\r\n10:00:00 stopped" why="\u001b[31m" name="\u202eabc"',
        "one",
        r'"\u001b[2Jtwo"',
    ]


def test_only_a_terminal_gets_it() -> None:
    code = (
        "from sidecar.logs import events; import structlog\n"
        "with events.in_background('info'): structlog.get_logger().info('begun', n=1)"
    )
    call = [sys.executable, "-c", code]
    piped = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60).stderr
    assert piped.startswith('{"n": 1, "event": "begun"')
    ours, theirs = pty.openpty()
    try:
        subprocess.run(call, stderr=theirs, check=True, timeout=60)
        assert os.read(ours, 1_000).decode().partition(" ")[2] == "begun n=1\r\n"
    finally:
        os.close(ours)
        os.close(theirs)
