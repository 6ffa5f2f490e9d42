"""Tests that the router loops over no empty bitmap, which leaks memory."""

import subprocess
import sys

from tests.support.paths import ROOT

SEEDS = 30


def test_no_empty_bitmap_is_looped_over() -> None:
    call = [sys.executable, "-m", "tests.simulation.watched_bitmaps", str(SEEDS)]
    done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3_000:]
