"""Places at which a test can kill or freeze the router, to show that a crash there loses and duplicates nothing.

A failpoint is refused unless the source tree with its tests exists (``SWITCH``). An image or an installed package has
no such file, so a user who can set its environment cannot kill it at a critical moment.

Failpoints are inert unless the environment says ``DELAY_ROUTER_FAILPOINT=<name>`` or ``<name>:<n>``. Then the process
kills itself with SIGKILL when it passes the place for the first, or the n-th, time. With ``stop@`` in front of the name
it stops itself instead until it gets SIGCONT; by then it may have lost its partitions without knowing it. An inactive
place costs the read of one variable, and no place lies on the path of single records.

Rejected: only killing from outside at random moments. Tests do that too, but the gap between the commit of segments and
the commit of their manifest is milliseconds wide, and a test that hits it once in fifty runs shows nothing.
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
"""A file in the source tree, beside the tests that need it; no image or package contains it."""

PLACES: Final[Mapping[str, str]] = {
    "seal.segment_written": "segments of a bucket are committed, and nothing refers to them yet",
    "seal.before_manifest": "all segments of a bucket are committed, its manifest is not written",
    "seal.after_manifest": "a manifest and S are committed",
    "merge.segment_written": "a segment of a merged bucket is committed, and nothing refers to it yet",
    "merge.before_manifest": "all segments of a merged bucket are committed, the sources are in force",
    "merge.after_manifest": "a merged bucket is in force, segments of its sources are not removed",
    "removal.before": "keys of the state that the watermark has passed are still there",
    "removal.after": "tombstones for these keys are committed",
    "adopt.before": "a staged bucket is about to be adopted, everything of before is sealed",
    "adopt.after": "a staged bucket is adopted, nothing of it has left and intake is where it was",
    "adopt.catching_up": "some of an adopted bucket has left, and not everything up to the watermark",
    "recovery.fenced": "the former owner is fenced, nothing has been read",
    "recovery.state_read": "progress and manifests are read",
    "recovery.noted": "the state names the lane of the new owner, which has written nothing in it",
    "recovery.replayed": "[S, C) is indexed again, nothing has been released",
    "ending.noted": "end-transaction has written its note, and the forgotten transaction is still open",
    "ending.closed": "the forgotten transaction is aborted, and its committed records are not written again yet",
    "group.given_up": "partitions are given up, and the group waits for the member to say so",
    "load.taken": "a segment was fetched and taken in",
}
"""Every place, with the state of the partition there."""

STOP: Final = "stop@"

_armed: str | None = None
_left = 0
_signal = signal.SIGKILL
_lock = threading.Lock()


def arm(environ: Mapping[str, str]) -> None:
    """Arm the failpoint in the environment; raise ConfigError for an unknown place, or outside of the source tree."""
    global _armed, _left, _signal  # noqa: PLW0603 - the alternative is a parameter through every layer
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
    """Pass a place: the process kills or stops itself here if the place is armed."""
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
