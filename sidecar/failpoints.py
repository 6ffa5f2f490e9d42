"""Places where a test has the router die as ``kill -9`` would, or stand still, to see that it costs nothing there.

Refused unless the source tree with its tests is there (``SWITCH``): an image or an installed package has no such file,
so that who can set its environment cannot have it killed in its worst moments.

Inert unless the environment says ``DELAY_ROUTER_FAILPOINT=<name>`` or ``<name>:<n>``: then the process kills itself
when it passes that place for the first, or the n-th, time. With ``stop@`` in front of the name it stops itself instead,
until somebody sends SIGCONT: by then it may own nothing any more and does not know. Off, a place costs the look at one
variable, and none lies where records pass one by one.

Rejected: killing from outside at random moments alone. It is done too, but the gap between the commit of the segments
and that of their manifest is milliseconds wide, and a test that meets it once in fifty runs shows nothing.
"""

import os
import signal
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from index.errors import ConfigError

VARIABLE: Final = "DELAY_ROUTER_FAILPOINT"

SWITCH: Final = Path(__file__).resolve().parent.parent / "tests" / "faults" / "FAILPOINTS_ALLOWED"
"""Lies in the source tree beside the tests that need it, and in nothing that is built from it."""

PLACES: Final[Mapping[str, str]] = {
    "seal.segment_written": "segments of a bucket are committed, and nothing refers to them yet",
    "seal.before_manifest": "all segments of a bucket are committed, its manifest is not written",
    "seal.after_manifest": "a manifest and S are committed",
    "merge.segment_written": "a segment of a merged bucket is committed, and nothing refers to it yet",
    "merge.before_manifest": "all segments of a merged bucket are committed, the sources are in force",
    "merge.after_manifest": "a merged bucket is in force, segments of its sources are not removed",
    "removal.before": "what the watermark has passed is still there",
    "removal.after": "tombstones for it are committed",
    "adopt.before": "a staged bucket is about to be adopted, everything of before is sealed",
    "adopt.after": "a staged bucket is adopted, nothing of it has left and intake is where it was",
    "adopt.catching_up": "some of an adopted bucket has left, and not everything up to the watermark",
    "recovery.fenced": "the former owner is fenced, nothing has been read",
    "recovery.state_read": "progress and manifests are read",
    "recovery.replayed": "[S, C) is indexed again, nothing has been released",
    "ending.noted": "end-transaction has written its note, and the forgotten transaction is still open",
    "ending.closed": "the forgotten transaction is aborted, and its committed records are not written again yet",
    "load.taken": "a segment was fetched and taken in",
}
"""Every place and what is true there."""

STOP: Final = "stop@"

_armed: str | None = None
_left = 0
_signal = signal.SIGKILL
_lock = threading.Lock()


def arm(environ: Mapping[str, str]) -> None:
    """Do as the environment says; ConfigError for a place that does not exist, or where this is not the source tree."""
    global _armed, _left, _signal  # noqa: PLW0603 - a parameter through every layer is what this must not cost
    given = environ.get(VARIABLE, "")
    name, colon, passes = given.removeprefix(STOP).partition(":")
    if not given:
        _armed = None
        return
    if not SWITCH.is_file():
        raise ConfigError(f"{VARIABLE}={given}: only tests in the source tree may stop a router so; unset the variable")
    if name not in PLACES:
        raise ConfigError(f"{VARIABLE}={given}: there is no such place; there are {', '.join(PLACES)}")
    if colon and not (passes.isascii() and passes.isdecimal() and int(passes) > 0):
        raise ConfigError(f"{VARIABLE}={given}: write <name>:<n> to die when the place is passed for the n-th time")
    _armed, _left = name, int(passes or 1)
    _signal = signal.SIGSTOP if given.startswith(STOP) else signal.SIGKILL


def passing(name: str) -> None:
    """Say that a place is passed: it may be the last thing this process does."""
    if _armed is None:
        return
    _count(name)


def _count(name: str) -> None:
    global _left  # noqa: PLW0603
    assert name in PLACES, f"{name} is not in the table of places"
    if name != _armed:
        return
    with _lock:
        _left -= 1
        if _left == 0:
            os.kill(os.getpid(), _signal)
