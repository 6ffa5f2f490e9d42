"""Runs the short form of ``make soak``: a minute in which each of its parts has its turn."""

import re
import subprocess
import sys

import pytest


@pytest.mark.timeout(600)
def test_a_minute_of_faults(needs_own_nodes: None) -> None:
    """Play them in a lane, as most tests of faults that CI plays use none."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.faults.soak", "1", "--lanes", "1"], capture_output=True, text=True, check=False
    )
    told = done.stdout + done.stderr
    assert done.returncode == 0, told
    assert re.search(r"^[1-9]\d* passed, 0 failed$", done.stdout, re.MULTILINE), told
