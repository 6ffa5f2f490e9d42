"""A log that a thread writes: every line before the end of a process comes out, uncaught errors included."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

BEGIN = """
import os, sys, threading
import structlog
from sidecar.logs import events
log = structlog.get_logger()
"""


def _lines(program: str, code: int) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code, done.stderr
    return [json.loads(line) if line[:1] == "{" else {"raw": line} for line in done.stderr.splitlines()]


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "lines.drain(2); os._exit(3)"])
def test_what_was_said_comes_out(end: str) -> None:
    program = f"""
with events.in_background("info") as lines:
    for number in range(1_000):
        log.info("said", number=number)
    {end}
log.warning("directly")
"""
    said = _lines(program, 3 if end else 0)
    assert [each["number"] for each in said if each["event"] == "said"] == list(range(1_000))
    assert [each["event"] for each in said[1_000:]] == ([] if end else ["directly"])


def test_what_a_thread_does_not_catch_is_a_line() -> None:
    program = """
with events.in_background("info"):
    thread = threading.Thread(target=lambda: {}["gone"])
    thread.start()
    thread.join()
"""
    (told,) = _lines(program, 0)
    assert (told["event"], told["level"]) == ("uncaught_error", "critical")
    assert told["exception"].endswith("KeyError: 'gone'")


def test_what_ends_the_process_is_shown_after_all_that_was_said() -> None:
    program = """
with events.in_background("info"):
    log.info("said")
    {}["gone"]
"""
    said, *traceback = _lines(program, 1)
    assert said["event"] == "said"
    assert traceback[-1] == {"raw": "KeyError: 'gone'"}


def test_nobody_reads_and_the_process_ends_all_the_same() -> None:
    program = """
with events.in_background("info"):
    for number in range(10_000):
        log.info("said", number=number)
    {}["gone"]
"""
    reader, writer = os.pipe()
    try:
        process = subprocess.Popen([sys.executable, "-c", BEGIN + program], stderr=writer)
        assert process.wait(30) == 1
    finally:
        os.close(reader)
        os.close(writer)
